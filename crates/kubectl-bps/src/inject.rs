//! Puts the agent into manifests, and takes it out again. Everything else in them stays as it is, but for comments and anchors.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use bps_api::keys;
use bps_core::manifests::{AgentSource, InjectError, InjectWarning, Injection, inject, uninject};
use clap::ValueEnum as _;

use super::Error;
use super::arguments::{AgentDelivery, CommandWords, Format, InjectArguments};
use super::document::{self, Document};
use super::workload::{Workload, WorkloadChoice, group_and_kind, objects};

/// Manifests after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The text.
    pub manifests: String,
    /// Lines for standard error, in the order of the workloads.
    pub warnings: Vec<String>,
}

/// Reads, changes and returns the manifests; warnings about them go to standard error.
///
/// # Errors
/// `ReadFile` and `Parse` if they cannot be read, `Inject` if one of them cannot run the agent, `Refused` if none can, if it
/// is not clear which one shall, or if the arguments contradict each other.
pub fn run(wanted: &InjectArguments) -> Result<String, Error> {
    let InjectArguments { file, group, container, image_command, workloads, uninject, output, .. } = wanted;
    let source = agent_source(wanted)?;
    refuse_overlap_in_both_roles(wanted)?;
    refuse_arguments_of_one_seat(wanted)?;
    let injection = group.as_ref().filter(|_| !uninject).map(|group| Injection {
        group: group.clone(),
        source,
        container: container.clone(),
        image_command: image_command.clone().map(|CommandWords(words)| words),
        arguments: agent_arguments(wanted),
    });
    let Changed { manifests, warnings } = changed(&text(file)?, injection.as_ref(), workloads, *output)?;
    for warning in warnings {
        eprintln!("{warning}");
    }
    Ok(manifests)
}

fn agent_source(wanted: &InjectArguments) -> Result<AgentSource, Error> {
    let InjectArguments { agent_source, agent_image, agent_path, .. } = wanted;
    match (agent_source, agent_path) {
        (AgentDelivery::Copy, None) => Ok(AgentSource::Copy { image: agent_image.clone() }),
        (AgentDelivery::ImageVolume, None) => Ok(AgentSource::ImageVolume { image: agent_image.clone() }),
        (AgentDelivery::Image, path) => {
            let path = path.clone().unwrap_or_else(|| keys::AGENT_IMAGE_PROGRAM_PATH.to_owned());
            Ok(AgentSource::Image { path })
        }
        (AgentDelivery::Copy | AgentDelivery::ImageVolume, Some(_)) => Err(Error::Refused(
            "--agent-path says where the agent is in the application's image: add --agent-source=image, or leave it \
             out"
                .to_owned(),
        )),
    }
}

/// The agent refuses it, too, but only once it is started.
fn refuse_overlap_in_both_roles(wanted: &InjectArguments) -> Result<(), Error> {
    let runs_in_both = wanted.agent_arguments.iter().any(|argument| argument == "--run-in-standby");
    if wanted.handover.is_some() && runs_in_both {
        return Err(Error::Refused(
            "--handover is for an application that runs in one role: leave it out, or --run-in-standby"
                .to_owned(),
        ));
    }
    Ok(())
}

/// What a standby of several actives cannot do.
const OF_ONE_SEAT: [&str; 4] = ["--relay-port", "--on-standby", "--run-in-standby", "--promote-when"];

/// The agent refuses those, too, but only once it is started.
fn refuse_arguments_of_one_seat(wanted: &InjectArguments) -> Result<(), Error> {
    let arguments = || wanted.agent_arguments.iter();
    if arguments().any(|argument| argument.starts_with("--standby-for")) {
        return Err(Error::Refused(
            "write --standby-for instead of --agent-argument=--standby-for".to_owned(),
        ));
    }
    let is_of_one = |argument: &&String| OF_ONE_SEAT.iter().any(|name| argument.starts_with(name));
    let wrong = arguments().find(is_of_one).filter(|_| wanted.standby_for.is_some());
    match wrong {
        Some(argument) => Err(Error::Refused(format!(
            "a standby for several actives runs nothing of the application, relays nothing, and acts with the whole state only: leave \
             out --standby-for, or {argument}"
        ))),
        None => Ok(()),
    }
}

/// What the typed flags and the others come to.
fn agent_arguments(wanted: &InjectArguments) -> Vec<String> {
    let replicate = wanted.replicate.as_ref().map(|folder| format!("--replicate={folder}"));
    let when = wanted.promote_when.and_then(|when| when.to_possible_value());
    let when = when.map(|when| format!("--promote-when={}", when.get_name()));
    let places = wanted.standby_for.map(|places| format!("--standby-for={places}"));
    let handover = wanted.handover.and_then(|order| order.to_possible_value());
    let handover = handover.map(|order| format!("--handover={}", order.get_name()));
    replicate
        .into_iter()
        .chain(when)
        .chain(places)
        .chain(handover)
        .chain(wanted.agent_arguments.iter().cloned())
        .collect()
}

/// The manifests with the agent in them; without an injection, with the agent taken out.
///
/// `chosen` are the workloads that are changed. Without one it is the only one there is, and an agent is taken out of all.
///
/// # Errors
/// As [`run`], which reads the text.
pub fn changed(
    text: &str,
    injection: Option<&Injection>,
    chosen: &[WorkloadChoice],
    format: Format,
) -> Result<Changed, Error> {
    let mut documents: Vec<Document> = document::read(text)?;
    documents.retain(|document| *document != Document::Scalar(serde_json::Value::Null));
    check_choice(&documents, chosen, injection.is_some())?;
    let mut change = Change { injection, chosen, changed: 0, passed: BTreeSet::new(), warnings: Vec::new() };
    for document in &mut documents {
        change.object(document)?;
    }
    if change.changed == 0 {
        return Err(Error::Refused(change.nothing()));
    }
    Ok(Changed { manifests: document::write(&documents, format)?, warnings: change.warnings })
}

/// Pods of one group are each other's partners, so that two workloads in it by mistake would share one application.
fn check_choice(documents: &[Document], chosen: &[WorkloadChoice], injects: bool) -> Result<(), Error> {
    let objects: Vec<&Document> = documents.iter().flat_map(objects).collect();
    let found: Vec<Workload> = objects.iter().copied().filter_map(Workload::of).collect();
    let words = |each: &dyn Fn(&Workload) -> String| found.iter().map(each).collect::<Vec<_>>();

    if let Some(unknown) = chosen.iter().find(|choice| !found.iter().any(|workload| choice.names(workload))) {
        let mut meant = objects.into_iter().map(Workload::named).filter(|object| unknown.names(object));
        if let Some(refused) = meant.find_map(|object| unfit(&object)) {
            return Err(refused);
        }
        let known = words(&Workload::argument).join(", ");
        let known = if known.is_empty() { "no workload" } else { &known };
        return Err(Error::Refused(format!("the manifests have no {unknown}; they have {known}")));
    }

    if injects && chosen.is_empty() && found.len() > 1 {
        let flags = words(&|workload| format!("--workload={}", workload.argument()));
        return Err(Error::Refused(format!(
            "there are several workloads, and all Pods of a group are peers: say which get the agent, by one or more of {}",
            flags.join(" ")
        )));
    }
    Ok(())
}

/// That an object gets no agent because of its kind; `None` if its kind is no reason.
fn unfit(object: &Workload) -> Option<Error> {
    object.unfit().map(|reason| Error::Refused(format!("{object} takes no agent this way: {reason}")))
}

fn text(file: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    read.map_err(|source| Error::ReadFile { path: file.display().to_string(), source })
}

struct Change<'a> {
    injection: Option<&'a Injection>,
    /// The only ones that are changed; all if it is empty.
    chosen: &'a [WorkloadChoice],
    /// Workloads that were met.
    changed: usize,
    /// Kinds that were passed on.
    passed: BTreeSet<String>,
    /// Lines about the workloads that were changed.
    warnings: Vec<String>,
}

impl Change<'_> {
    fn object(&mut self, object: &mut Document) -> Result<(), Error> {
        if let Some(workload) = Workload::of(object) {
            let is_chosen =
                self.chosen.is_empty() || self.chosen.iter().any(|choice| choice.names(&workload));
            return if is_chosen { self.workload(&workload, object) } else { Ok(()) };
        }
        match group_and_kind(object) {
            ("", "List") => {
                let Some(Document::List(items)) = object.get_mut("items") else { return Ok(()) };
                items.iter_mut().try_for_each(|item| self.object(item))
            }
            _ => self.pass_by(&Workload::named(object)),
        }
    }

    /// A set is refused instead: its user wants the agent, and there is a way to it.
    fn pass_by(&mut self, object: &Workload) -> Result<(), Error> {
        let wants_agent = self.injection.is_some() && self.chosen.is_empty();
        match unfit(object).filter(|_| wants_agent && object.is_set()) {
            Some(refused) => Err(refused),
            None => {
                self.passed.insert(object.kind_in_words());
                Ok(())
            }
        }
    }

    fn workload(&mut self, workload: &Workload, object: &mut Document) -> Result<(), Error> {
        let title = workload.to_string();
        if workload.is_pod() {
            return self.template(&title, object);
        }
        self.selector(&title, object)?;
        if let (Some(_), Some(kind), Some(spec)) = (self.injection, workload.known_kind(), object.get("spec"))
        {
            self.warn(&title, Injection::rollout_warning(kind, &spec.value()));
        }
        match object.get_mut("spec").and_then(|spec| spec.get_mut("template")) {
            Some(template) => self.template(&title, template),
            None => Err(Error::Refused(format!("{title} has no spec.template: write one"))),
        }
    }

    /// The selector stays as it is, so Pods with an agent must match it as long as they live.
    fn selector(&self, title: &str, workload: &Document) -> Result<(), Error> {
        let selector = workload.get("spec").and_then(|spec| spec.get("selector"));
        match (self.injection, selector) {
            (Some(_), Some(selector)) => {
                Injection::check_selector(&selector.value()).map_err(cannot_run(title))
            }
            (None, _) | (_, None) => Ok(()),
        }
    }

    fn template(&mut self, title: &str, template: &mut Document) -> Result<(), Error> {
        let before = template.value();
        let after = match self.injection {
            None => uninject(&before),
            Some(injection) => inject(&before, injection),
        };
        let after = after.map_err(cannot_run(title))?;
        let warnings = self.injection.map(|injection| injection.warnings(&before));
        self.warn(title, warnings.unwrap_or_default());
        // An unchanged template keeps its form, and the order of its lists too.
        if after != before {
            *template = Document::ordered(after, Some(template));
        }
        self.changed += 1;
        Ok(())
    }

    fn warn(&mut self, title: &str, warnings: impl IntoIterator<Item = InjectWarning>) {
        let lines = warnings.into_iter().map(|warning| format!("warning: {title}: {warning}"));
        self.warnings.extend(lines);
    }

    fn nothing(&self) -> String {
        let passed: Vec<&str> = self.passed.iter().map(String::as_str).collect();
        let found = if passed.is_empty() { "nothing".to_owned() } else { passed.join(", ") };
        format!("no object that can run an agent: give a {}; found {found}", Workload::kinds())
    }
}

/// For `map_err`: which object cannot run the agent, or be freed of it.
fn cannot_run(object: &str) -> impl FnOnce(InjectError) -> Error {
    move |source| Error::Inject { object: object.to_owned(), source }
}
