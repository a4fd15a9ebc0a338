//! Which Pods count for their role, which of them are available, and what the others wait for.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bps_api::status::NAMES_MAX;

use crate::model::{Gate, Lifecycle, PodName, PodView, Role, Snapshot};

/// Most Pods that one condition message describes, so that the message of a large set stays readable.
pub(super) const DESCRIBED_PODS_MAX: usize = 5;

/// The Pods of one role.
pub(super) struct Tier<'a> {
    pub(super) role: Role,
    /// How many the specification wants.
    pub(super) wanted: usize,
    /// The Pods that count, sorted by name.
    pub(super) pods: Vec<&'a PodView>,
}

/// The Pods of all roles.
pub(super) struct Tally<'a> {
    tiers: [Tier<'a>; 3],
}

impl<'a> Tally<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        Self {
            tiers: Role::ALL.map(|role| Tier {
                role,
                wanted: snapshot.desired.count(role),
                pods: members(snapshot, role),
            }),
        }
    }

    pub(super) fn tier(&self, role: Role) -> &Tier<'a> {
        self.tiers.iter().find(|tier| tier.role == role).expect("there is a tier for every role")
    }

    pub(super) const fn tiers(&self) -> &[Tier<'a>; 3] {
        &self.tiers
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &'a PodView> {
        self.tiers.iter().flat_map(|tier| tier.pods.iter().copied())
    }

    /// Hot backups by name: the standby of an active is the one that its part names.
    pub(super) fn standbys(&self) -> BTreeMap<&'a PodName, &'a PodView> {
        self.tier(Role::Hot).pods.iter().map(|view| (&view.pod.name, *view)).collect()
    }

    /// Pods of the current revision.
    pub(super) fn updated(&self, snapshot: &Snapshot) -> usize {
        self.pods().filter(|view| snapshot.desired.is_current(view)).count()
    }

    /// `2 of 2 primaries, 1 of 2 hot backups and 0 of 1 cold backups ready`; roles that are not used are left out.
    pub(super) fn counts(&self) -> String {
        let used = self.tiers.iter().filter(|tier| tier.wanted + tier.pods.len() > 0);
        let parts: Vec<String> = used.map(Tier::count).collect();
        match parts.split_last() {
            None => "no Pods wanted".to_owned(),
            Some((only, [])) => format!("{only} ready"),
            Some((last, others)) => format!("{} and {last} ready", others.join(", ")),
        }
    }

    /// What each Pod that is not available waits for, and what is missing or too much, most important first.
    pub(super) fn waits(&self) -> Vec<String> {
        let waiting: Vec<String> =
            self.tiers.iter().flat_map(|tier| tier.pods.iter()).filter_map(|view| wait(view)).collect();
        let omitted = waiting.len().saturating_sub(DESCRIBED_PODS_MAX);
        let mut texts: Vec<String> = waiting.into_iter().take(DESCRIBED_PODS_MAX).collect();
        if omitted > 0 {
            texts.push(format!("{omitted} more Pods are not available"));
        }
        texts.extend(self.tiers.iter().filter_map(Tier::imbalance));
        texts
    }
}

impl Tier<'_> {
    pub(super) fn available(&self) -> usize {
        self.pods.iter().filter(|view| view.is_available()).count()
    }

    pub(super) fn is_satisfied(&self) -> bool {
        self.available() >= self.wanted
    }

    /// Names of the Pods, sorted, as many as a status lists.
    pub(super) fn names(&self) -> Vec<String> {
        self.pods.iter().take(NAMES_MAX).map(|view| view.pod.name.0.clone()).collect()
    }

    pub(super) fn omitted(&self) -> usize {
        self.pods.len().saturating_sub(NAMES_MAX)
    }

    /// `1 of 2 primaries`: how many are available, and how many are wanted.
    pub(super) fn count(&self) -> String {
        format!("{} of {} {}", self.available(), self.wanted, noun(self.role, self.wanted))
    }

    fn imbalance(&self) -> Option<String> {
        let difference = self.pods.len().abs_diff(self.wanted);
        let (noun, is_one) = (noun(self.role, difference), difference == 1);
        match self.pods.len().cmp(&self.wanted) {
            Ordering::Equal => None,
            Ordering::Less => {
                Some(format!("{difference} {noun} {} not exist yet", if is_one { "does" } else { "do" }))
            }
            Ordering::Greater => {
                Some(format!("{difference} {noun} {} surplus", if is_one { "is" } else { "are" }))
            }
        }
    }
}

/// Whether a Pod counts for its role: it is not going away, not finished and not on a lost node.
pub(super) fn is_counted(view: &PodView) -> bool {
    let is_present = match view.lifecycle {
        Lifecycle::Unscheduled
        | Lifecycle::Starting
        | Lifecycle::Ready { .. }
        | Lifecycle::Unready { .. } => true,
        Lifecycle::Finished | Lifecycle::Terminating => false,
    };
    is_present && !view.is_on_lost_node()
}

fn members(snapshot: &Snapshot, role: Role) -> Vec<&PodView> {
    let members = snapshot.pods.iter().filter(|view| view.role == role);
    let mut pods: Vec<&PodView> =
        members.filter(|view| is_counted(view) && !snapshot.is_reserved(view)).collect();
    pods.sort_by(|a, b| a.pod.name.cmp(&b.pod.name));
    pods
}

/// A role in the words of the specification.
pub(super) const fn noun(role: Role, count: usize) -> &'static str {
    match (role, count) {
        (Role::Primary, 1) => "primary",
        (Role::Primary, _) => "primaries",
        (Role::Hot, 1) => "hot backup",
        (Role::Hot, _) => "hot backups",
        (Role::Cold, 1) => "cold backup",
        (Role::Cold, _) => "cold backups",
    }
}

/// A number of Pods as the wire has it.
pub(super) fn wire(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn wait(view: &PodView) -> Option<String> {
    if view.is_available() {
        return None;
    }
    let text = match (view.lifecycle, view.gate) {
        (Lifecycle::Unscheduled, _) => "waits for a node".to_owned(),
        (Lifecycle::Unready { since }, _) => format!("is not ready since {since:.0}"),
        (Lifecycle::Starting | Lifecycle::Ready { .. }, Gate::Passed { .. }) if view.role == Role::Cold => {
            "runs although nobody woke it".to_owned()
        }
        (Lifecycle::Starting, Gate::Listening { .. }) if !view.has_known_key => {
            "waits at a gate that no key opens any more".to_owned()
        }
        (Lifecycle::Starting, Gate::Listening { .. }) => "waits at its gate to be woken".to_owned(),
        (Lifecycle::Starting, Gate::Ahead) if view.role == Role::Cold => {
            "has not reached its gate yet".to_owned()
        }
        (Lifecycle::Starting | Lifecycle::Ready { .. }, _) if view.role == Role::Cold => {
            "has no gate to wait at".to_owned()
        }
        (Lifecycle::Starting, _) => "is starting".to_owned(),
        (Lifecycle::Ready { .. } | Lifecycle::Finished | Lifecycle::Terminating, _) => return None,
    };
    Some(format!("{} {} {text}", noun(view.role, 1), view.pod.name))
}
