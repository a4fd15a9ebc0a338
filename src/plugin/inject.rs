//! Puts the agent into manifests, and takes it out again. Everything else in them stays as it is.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use clap::ValueEnum as _;

use super::Error;
use super::arguments::{AgentDelivery, Format, InjectArguments};
use super::document::{self, Document};
use crate::api::keys;
use crate::manifests::{AgentSource, InjectError, Injection, inject, uninject};

/// Kinds of the API group `apps` whose `spec.template` is a Pod template.
const WORKLOADS: [&str; 4] = ["StatefulSet", "Deployment", "DaemonSet", "ReplicaSet"];

/// Reads, changes and returns the manifests.
///
/// # Errors
/// `ReadFile` and `Parse` if they cannot be read, `Inject` if one of them cannot run the agent, `Refused` if none can or
/// the arguments contradict each other.
pub fn run(wanted: &InjectArguments) -> Result<String, Error> {
    let InjectArguments { file, group, container, uninject, output, .. } = wanted;
    let source = agent_source(wanted)?;
    refuse_overlap_in_both_roles(wanted)?;
    let injection = group.as_ref().filter(|_| !uninject).map(|group| Injection {
        group: group.clone(),
        source,
        container: container.clone(),
        arguments: agent_arguments(wanted),
    });
    changed(&text(file)?, injection.as_ref(), *output)
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

/// What the typed flags and the others come to.
fn agent_arguments(wanted: &InjectArguments) -> Vec<String> {
    let replicate = wanted.replicate.as_ref().map(|folder| format!("--replicate={}", folder.display()));
    let when = wanted.promote_when.and_then(|when| when.to_possible_value());
    let when = when.map(|when| format!("--promote-when={}", when.get_name()));
    let handover = wanted.handover.and_then(|order| order.to_possible_value());
    let handover = handover.map(|order| format!("--handover={}", order.get_name()));
    replicate.into_iter().chain(when).chain(handover).chain(wanted.agent_arguments.iter().cloned()).collect()
}

/// The manifests with the agent in them; without an injection, with the agent taken out.
///
/// # Errors
/// As [`run`], which reads the text.
pub fn changed(text: &str, injection: Option<&Injection>, format: Format) -> Result<String, Error> {
    let mut documents: Vec<Document> = document::read(text)?;
    documents.retain(|document| *document != Document::Scalar(serde_json::Value::Null));
    let mut change = Change { injection, changed: 0, passed: BTreeSet::new() };
    for document in &mut documents {
        change.object(document)?;
    }
    if change.changed == 0 {
        return Err(Error::Refused(change.nothing()));
    }
    document::write(&documents, format)
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
    /// Workloads that were met.
    changed: usize,
    /// Kinds that were passed on.
    passed: BTreeSet<String>,
}

impl Change<'_> {
    fn object(&mut self, object: &mut Document) -> Result<(), Error> {
        let field = |key| object.get(key).and_then(Document::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (field("apiVersion"), field("kind"));
        let group = version.split_once('/').map_or("", |(group, _)| group);
        match (group, kind.as_str()) {
            ("", "List") => {
                let Some(Document::List(items)) = object.get_mut("items") else { return Ok(()) };
                items.iter_mut().try_for_each(|item| self.object(item))
            }
            ("", "Pod") => self.template(&format!("Pod {}", name(object)), object),
            ("apps", kind) if WORKLOADS.contains(&kind) => {
                let title = format!("{kind} {}", name(object));
                self.selector(&title, object)?;
                match object.get_mut("spec").and_then(|spec| spec.get_mut("template")) {
                    Some(template) => self.template(&title, template),
                    None => Err(Error::Refused(format!("{title} has no spec.template: write one"))),
                }
            }
            (keys::GROUP, keys::KIND) if self.injection.is_some() => Err(Error::Refused(format!(
                "BackupPodSet {} takes no agent this way: write spec.activeStandby into it, and the operator puts \
                 the agent into its Pods",
                name(object)
            ))),
            _ => {
                self.passed.insert(if kind.is_empty() { "an object without kind".to_owned() } else { kind });
                Ok(())
            }
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
            Some(injection) => inject(&before, injection).map_err(cannot_run(title))?,
        };
        // An unchanged template keeps its form, and the order of its lists too.
        if after != before {
            *template = Document::ordered(after, Some(template));
        }
        self.changed += 1;
        Ok(())
    }

    fn nothing(&self) -> String {
        let passed: Vec<&str> = self.passed.iter().map(String::as_str).collect();
        let found = if passed.is_empty() { "nothing".to_owned() } else { passed.join(", ") };
        let kinds = WORKLOADS.join(", ");
        format!("no object that can run an agent: give a {kinds} or Pod; found {found}")
    }
}

/// For `map_err`: which object cannot run the agent.
fn cannot_run(object: &str) -> impl FnOnce(InjectError) -> Error {
    move |source| Error::Inject { object: object.to_owned(), source }
}

fn name(object: &Document) -> &str {
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Document::as_str);
    name.unwrap_or("without a name")
}
