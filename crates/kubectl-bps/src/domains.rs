//! Groups the Pods of a set by what fails together, or by subset.

use std::collections::BTreeMap;

use bps_api::{ZONE_LABEL, keys};
use bps_core::model::Role;
use bps_observe::slim::{SlimNode, SlimPod};
use kube::ResourceExt as _;
use serde::Serialize;

use super::report::{PodReport, SetReport};

/// What the Pods of sets are grouped by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// The node.
    Node,
    /// The subset of `spec.topology` that the Pod was made for.
    Subset,
    /// The value of this label of its node.
    Label(String),
}

impl Grouping {
    /// Reads the word of the command line.
    pub fn parse(word: &str) -> Self {
        match word {
            "node" => Self::Node,
            "subset" => Self::Subset,
            "zone" => Self::Label(ZONE_LABEL.to_owned()),
            label => Self::Label(label.to_owned()),
        }
    }

    /// Whether it takes the objects of nodes to tell.
    pub(super) const fn needs_nodes(&self) -> bool {
        matches!(self, Self::Label(_))
    }

    /// What a domain is called.
    fn noun(&self) -> &str {
        match self {
            Self::Node => "node",
            Self::Subset => "subset",
            Self::Label(label) if label == ZONE_LABEL => "zone",
            Self::Label(label) => label,
        }
    }

    fn domain_of(&self, pod: &SlimPod, nodes: &BTreeMap<&str, &SlimNode>) -> Option<String> {
        let node = pod.spec.node_name.as_deref();
        match self {
            Self::Node => node.map(str::to_owned),
            Self::Subset => pod.labels().get(keys::LABEL_SUBSET).cloned(),
            Self::Label(label) => nodes.get(node?)?.metadata.labels.as_ref()?.get(label).cloned(),
        }
    }
}

/// The Pods of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainReport {
    /// Its name in words, such as `zone east`; `no zone` for Pods that are in none.
    pub name: String,
    /// Primaries in it, ready or not.
    pub primaries: usize,
    /// Hot backups in it.
    pub hot_backups: usize,
    /// Cold backups in it.
    pub cold_backups: usize,
    /// Its Pods: primaries, then hot backups, then cold ones, each by name.
    pub pods: Vec<PodReport>,
}

impl DomainReport {
    /// `2 primaries, 1 hot backup, 0 cold backups`.
    pub(super) fn counts(&self) -> String {
        let count = |number: usize, one: &str, many: &str| {
            format!("{number} {}", if number == 1 { one } else { many })
        };
        [
            count(self.primaries, "primary", "primaries"),
            count(self.hot_backups, "hot backup", "hot backups"),
            count(self.cold_backups, "cold backup", "cold backups"),
        ]
        .join(", ")
    }
}

/// The Pods of a set by domain, sorted by name; Pods in no domain come last. `pods` and `nodes` may hold others.
pub fn domains(
    set: &SetReport,
    pods: &[SlimPod],
    nodes: &[SlimNode],
    grouping: &Grouping,
) -> Vec<DomainReport> {
    let nodes: BTreeMap<&str, &SlimNode> =
        nodes.iter().filter_map(|node| Some((node.metadata.name.as_deref()?, node))).collect();
    let of_namespace = pods.iter().filter(|pod| pod.metadata.namespace.as_ref() == Some(&set.namespace));
    let pods: BTreeMap<&str, &SlimPod> =
        of_namespace.filter_map(|pod| Some((pod.metadata.name.as_deref()?, pod))).collect();
    let found = |report: &PodReport| grouping.domain_of(pods.get(report.name.as_str())?, &nodes);
    let mut by_name: BTreeMap<String, Vec<PodReport>> = BTreeMap::new();
    let mut outside = Vec::new();
    for report in set.tiers.iter().flat_map(|tier| &tier.pods) {
        match found(report) {
            Some(name) => by_name.entry(name).or_default().push(report.clone()),
            None => outside.push(report.clone()),
        }
    }

    let noun = grouping.noun();
    let domain = |name: String, pods: Vec<PodReport>| {
        let count = |role: Role| pods.iter().filter(|pod| pod.part == role.as_str()).count();
        let [primaries, hot_backups, cold_backups] = Role::ALL.map(count);
        DomainReport { name, primaries, hot_backups, cold_backups, pods }
    };
    let mut domains: Vec<DomainReport> =
        by_name.into_iter().map(|(name, pods)| domain(format!("{noun} {name}"), pods)).collect();
    if !outside.is_empty() {
        domains.push(domain(format!("no {noun}"), outside));
    }
    domains
}
