//! Workloads of a manifest that can run an agent, by kind and name, and which of them a user chose.

use std::fmt;
use std::str::FromStr;

use bps_api::keys;

use super::document::Document;

/// A kind of Kubernetes with a Pod template, or the Pod itself.
struct Kind {
    /// API group.
    group: &'static str,
    /// As manifests write it.
    name: &'static str,
    /// What kubectl calls it besides.
    others: [&'static str; 2],
}

const KINDS: [Kind; 5] = [
    Kind { group: "apps", name: "StatefulSet", others: ["statefulsets", "sts"] },
    Kind { group: "apps", name: "Deployment", others: ["deployments", "deploy"] },
    Kind { group: "apps", name: "DaemonSet", others: ["daemonsets", "ds"] },
    Kind { group: "apps", name: "ReplicaSet", others: ["replicasets", "rs"] },
    Kind { group: "", name: "Pod", others: ["pods", "po"] },
];

/// A kind that takes no agent by `inject`, although it has Pods.
struct UnfitKind {
    /// API group.
    group: &'static str,
    /// As manifests write it.
    name: &'static str,
    /// Why, and what to do instead.
    reason: &'static str,
}

const ENDS: &str = "its Pods run to their end, and a pair needs Pods that stay; choose another workload";
const KNATIVE: &str =
    "Knative scales its Pods by requests, down to none, and a pair needs Pods that stay; write a Deployment";

const UNFIT_KINDS: [UnfitKind; 7] = [
    UnfitKind {
        group: keys::GROUP,
        name: keys::KIND,
        reason: "write spec.activeStandby into it, and the operator puts the agent into its Pods",
    },
    UnfitKind { group: "batch", name: "Job", reason: ENDS },
    UnfitKind { group: "batch", name: "CronJob", reason: ENDS },
    UnfitKind { group: "apps.kruise.io", name: "BroadcastJob", reason: ENDS },
    UnfitKind { group: "apps.kruise.io", name: "AdvancedCronJob", reason: ENDS },
    UnfitKind { group: "serving.knative.dev", name: "Service", reason: KNATIVE },
    UnfitKind { group: "serving.knative.dev", name: "Configuration", reason: KNATIVE },
];

/// An object of a manifest, by its kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Workload {
    /// API group without a version.
    group: String,
    kind: String,
    name: String,
}

/// Workloads that a user chose by `--workload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadChoice {
    /// As the user wrote it.
    text: String,
    /// Kind or resource, in lower case.
    resource: String,
    /// API group; `None`: any.
    group: Option<String>,
    name: String,
}

/// The objects of a document, which may be a List, in their order.
pub(super) fn objects(document: &Document) -> Vec<&Document> {
    match (group_and_kind(document), document.get("items")) {
        (("", "List"), Some(Document::List(items))) => items.iter().flat_map(objects).collect(),
        _ => vec![document],
    }
}

impl Workload {
    /// The workload that an object is; `None` if it can run no agent.
    pub(super) fn of(object: &Document) -> Option<Self> {
        let workload = Self::named(object);
        let can_run = workload.known().is_some() || has_template(object);
        Some(workload).filter(|workload| can_run && workload.unfit().is_none())
    }

    /// Any object, whether or not it can run an agent.
    pub(super) fn named(object: &Document) -> Self {
        let (group, kind) = group_and_kind(object);
        Self { group: group.to_owned(), kind: kind.to_owned(), name: name(object).to_owned() }
    }

    /// Why an object with Pods takes no agent; `None` if its kind is no reason.
    pub(super) fn unfit(&self) -> Option<&'static str> {
        let is_it = |unfit: &&UnfitKind| unfit.group == self.group && unfit.name == self.kind;
        UNFIT_KINDS.iter().find(is_it).map(|unfit| unfit.reason)
    }

    /// Whether it is a BackupPodSet.
    pub(super) fn is_set(&self) -> bool {
        self.group == keys::GROUP && self.kind == keys::KIND
    }

    /// Its kind, and why that takes no agent if it has Pods.
    pub(super) fn kind_in_words(&self) -> String {
        match (&*self.kind, self.unfit()) {
            ("", _) => "an object without kind".to_owned(),
            (kind, None) => kind.to_owned(),
            (kind, Some(reason)) => format!("{kind} ({reason})"),
        }
    }

    /// Whether it is a Pod, which has no template but is one.
    pub(super) fn is_pod(&self) -> bool {
        self.known().is_some_and(|kind| kind.name == "Pod")
    }

    /// As `--workload` takes it.
    pub(super) fn argument(&self) -> String {
        let Self { group, kind, name } = self;
        if self.known().is_some() || group.is_empty() {
            format!("{}/{name}", kind.to_ascii_lowercase())
        } else {
            format!("{}.{group}/{name}", plural(kind))
        }
    }

    /// All kinds, in words.
    pub(super) fn kinds() -> String {
        let [first, second, third, fourth, last] = KINDS.map(|kind| kind.name);
        format!(
            "{first}, {second}, {third}, {fourth}, {last} or another kind with spec.template.spec.containers"
        )
    }

    /// Its kind, if it is one of Kubernetes' own.
    pub(super) fn known_kind(&self) -> Option<&'static str> {
        self.known().map(|kind| kind.name)
    }

    fn known(&self) -> Option<&'static Kind> {
        KINDS.iter().find(|known| known.group == self.group && known.name == self.kind)
    }

    /// Whether it is called so, in lower case: by its kind, its resource, or what kubectl calls it besides.
    fn is_called(&self, word: &str) -> bool {
        self.kind.eq_ignore_ascii_case(word)
            || plural(&self.kind) == word
            || self.known().is_some_and(|kind| kind.others.contains(&word))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.name)
    }
}

impl WorkloadChoice {
    /// Whether the user means this one.
    pub(super) fn names(&self, workload: &Workload) -> bool {
        let is_of_group = self.group.as_ref().is_none_or(|group| *group == workload.group);
        is_of_group && self.name == workload.name && workload.is_called(&self.resource)
    }
}

impl fmt::Display for WorkloadChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for WorkloadChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let advice =
            "write KIND/NAME such as sts/web, or RESOURCE.GROUP/NAME such as rollouts.argoproj.io/web";
        let parts = text.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty());
        let (kind, name) = parts.ok_or(advice)?;

        let kind = kind.to_ascii_lowercase();
        let (resource, group) = match kind.split_once('.') {
            Some((resource, group)) => (resource.to_owned(), Some(group.to_owned())),
            // A word of Kubernetes' own means its own kind, as for kubectl.
            None => (kind.clone(), own_group(&kind).map(str::to_owned)),
        };
        Ok(Self { text: text.to_owned(), resource, group, name: name.to_owned() })
    }
}

/// The API group of a kind of Kubernetes that is called so.
fn own_group(word: &str) -> Option<&'static str> {
    let is_called = |known: &&Kind| known.name.eq_ignore_ascii_case(word) || known.others.contains(&word);
    KINDS.iter().find(is_called).map(|known| known.group)
}

/// The resource of a kind. Source: `UnsafeGuessKindToResource` of k8s.io/apimachinery, which kubectl asks where it asks
/// no API server.
fn plural(kind: &str) -> String {
    let word = kind.to_ascii_lowercase();
    match word.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if word.ends_with('s') => format!("{word}es"),
        None => format!("{word}s"),
    }
}

/// Whether an object has a Pod template with containers, as workloads of other API groups have.
fn has_template(object: &Document) -> bool {
    let path = ["spec", "template", "spec", "containers"];
    let containers = path.into_iter().try_fold(object, |object, key| object.get(key));
    matches!(containers, Some(Document::List(items)) if !items.is_empty())
}

/// The API group of an object without its version, and its kind.
pub(super) fn group_and_kind(object: &Document) -> (&str, &str) {
    let field = |key| object.get(key).and_then(Document::as_str).unwrap_or_default();
    let group = field("apiVersion").split_once('/').map_or("", |(group, _)| group);
    (group, field("kind"))
}

/// The name of an object, or that it has none.
fn name(object: &Document) -> &str {
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Document::as_str);
    name.unwrap_or("without a name")
}
