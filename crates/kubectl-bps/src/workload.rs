//! What can run an agent: a workload of a manifest, by its kind and name.

use std::fmt;
use std::str::FromStr;

use super::document::Document;

/// A kind with a Pod template, or the Pod itself.
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

/// A workload by its kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    kind: &'static str,
    name: String,
}

impl Workload {
    /// What an object is; `None` if it can run no agent.
    pub(super) fn of(object: &Document) -> Option<Self> {
        let (group, kind) = group_and_kind(object);
        let known = KINDS.iter().find(|known| known.group == group && known.name == kind)?;
        Some(Self { kind: known.name, name: name(object).to_owned() })
    }

    /// Those of a document, which may be a List, in their order.
    pub(super) fn all(object: &Document) -> Vec<Self> {
        match (group_and_kind(object), object.get("items")) {
            (("", "List"), Some(Document::List(items))) => items.iter().flat_map(Self::all).collect(),
            _ => Self::of(object).into_iter().collect(),
        }
    }

    /// Whether it is a Pod, which has no template but is one.
    pub(super) fn is_pod(&self) -> bool {
        self.kind == "Pod"
    }

    /// As `--workload` takes it.
    pub(super) fn argument(&self) -> String {
        format!("{}/{}", self.kind.to_ascii_lowercase(), self.name)
    }

    /// All kinds, in words.
    pub(super) fn kinds() -> String {
        let [first, second, third, fourth, last] = KINDS.map(|kind| kind.name);
        format!("{first}, {second}, {third}, {fourth} or {last}")
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.name)
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let advice = || format!("write KIND/NAME, such as sts/web; KIND is {}", Self::kinds());
        let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(advice)?;
        let kind = kind.to_ascii_lowercase();
        let is_called =
            |known: &&Kind| known.name.eq_ignore_ascii_case(&kind) || known.others.contains(&kind.as_str());
        let known = KINDS.iter().find(is_called).ok_or_else(advice)?;
        Ok(Self { kind: known.name, name: name.to_owned() })
    }
}

/// The API group of an object without its version, and its kind.
pub(super) fn group_and_kind(object: &Document) -> (&str, &str) {
    let field = |key| object.get(key).and_then(Document::as_str).unwrap_or_default();
    let group = field("apiVersion").split_once('/').map_or("", |(group, _)| group);
    (group, field("kind"))
}

/// The name of an object, or that it has none.
pub(super) fn name(object: &Document) -> &str {
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Document::as_str);
    name.unwrap_or("without a name")
}
