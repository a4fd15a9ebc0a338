//! What the user wants of one set, checked and in units.

use jiff::SignedDuration;

use super::{PodView, Revision, Role, Topology, Uid};

/// Which of several equally willing Pods a transition takes. Readiness always comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Healthy node, current revision, least crowded failure domain and node, longest ready, name.
    #[default]
    Best,
    /// Any, by the Pods' random identity; the same choice is made again after a restart.
    Random,
    /// The one created first.
    Oldest,
    /// The one created last.
    Newest,
    /// The one in the failure domain, then on the node, with the fewest Pods of the wanted role.
    Spread,
}

/// One strategy for each transition; the BPS paper's seven keys, `init` already folded in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strategies {
    /// hot -> primary.
    pub hot_to_primary: Strategy,
    /// cold -> primary.
    pub cold_to_primary: Strategy,
    /// cold -> hot.
    pub cold_to_hot: Strategy,
}

/// What happens to Pods that a tier no longer needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaleIn {
    /// They are deleted.
    #[default]
    Delete,
    /// A surplus primary fills a free hot slot before anything is deleted.
    Demote,
}

/// How a changed template reaches the Pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateKind {
    /// Cold, then hot, then primaries by promoting an updated hot backup.
    #[default]
    BackupFirst,
    /// Only Pods that somebody deletes are made from the new template.
    OnDelete,
}

/// Settings of a template rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdatePolicy {
    /// Who starts the replacement.
    pub kind: UpdateKind,
    /// Backups of one tier that may be away at once because of the rollout.
    pub max_unavailable: PodShare,
    /// Primaries that may exist beyond the wanted number because of the rollout.
    pub max_surge: PodShare,
    /// Primaries of the whole set that keep the old template; those of its subsets have partitions of their own.
    pub partition: usize,
}

/// A number of Pods, or a share of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodShare {
    /// So many; at least 1.
    Pods(usize),
    /// So many percent, 1 to 100.
    Percent(usize),
}

impl PodShare {
    /// Pods of so many; at least 1, because a rollout would never end otherwise.
    pub fn of(self, count: usize) -> usize {
        match self {
            Self::Pods(pods) => pods,
            Self::Percent(percent) => count * percent / 100,
        }
        .max(1)
    }
}

/// Model of redundancy that a user promises for a set; `status/redundancy` says whether it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedundancyPromise {
    /// No backup runs. In the spec: `None`.
    NoRedundancy,
    /// Several primaries serve, and the others serve on.
    NWayActive,
    /// Hot backups run, any of them for any primary.
    NPlusM,
    /// Each primary has a standby of its own.
    TwoN,
}

/// The wish for one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Name of the set.
    pub name: String,
    /// Identity of the set.
    pub uid: Uid,
    /// Primaries wanted.
    pub replicas: usize,
    /// Hot backups wanted.
    pub hot_backups: usize,
    /// Cold backups wanted.
    pub cold_backups: usize,
    /// For how many primaries one hot backup stands by in a set of pairs, 1 or more.
    pub standby_for: usize,
    /// What the set promises, if it does.
    pub promise: Option<RedundancyPromise>,
    /// Choice of candidates.
    pub strategies: Strategies,
    /// Time for one wake-up until the Pod runs.
    pub wakeup_timeout: SignedDuration,
    /// Time a Pod must have been ready before it counts in a rollout.
    pub min_ready: SignedDuration,
    /// Time for the next step towards the wish until the set is reported as stalled.
    pub progress_deadline: SignedDuration,
    /// Time a primary may be not ready before it is replaced by a hot backup.
    pub failover_delay: SignedDuration,
    /// Time after which a Pod that is not ready is deleted.
    pub unready_deadline: SignedDuration,
    /// Which part of the Pods each subset of the nodes is to have.
    pub topology: Topology,
    /// What happens to surplus Pods.
    pub scale_in: ScaleIn,
    /// Rollout settings.
    pub update: UpdatePolicy,
    /// Whether the operator only watches.
    pub paused: bool,
    /// Whether Pods can be made from the template: not while the spec is wrong and no former one is known that was right.
    pub can_create: bool,
    /// Revision of the template as it stands now.
    pub revision: Revision,
    /// How often a Pod name was found taken by somebody else; part of every new name.
    pub collisions: u32,
    /// Whether the spec changed since the status was last written.
    pub is_new_generation: bool,
}

impl Desired {
    /// Pods wanted in a role.
    pub const fn count(&self, role: Role) -> usize {
        match role {
            Role::Primary => self.replicas,
            Role::Hot => self.hot_backups,
            Role::Cold => self.cold_backups,
        }
    }

    /// Whether a Pod is as it would be made now: from the template as it stands, and in one of the subsets if there are some.
    pub fn is_current(&self, view: &PodView) -> bool {
        view.revision == self.revision && (self.topology.subsets.is_empty() || view.subset.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::PodShare;

    #[test]
    fn a_share_is_rounded_down_and_is_one_pod_at_least() {
        let quarter = [0, 1, 3, 4, 7, 8, 100].map(|count| PodShare::Percent(25).of(count));
        assert_eq!(quarter, [1, 1, 1, 1, 1, 2, 25]);
        assert_eq!([PodShare::Percent(100).of(7), PodShare::Pods(3).of(1)], [7, 3]);
    }
}
