//! Whether a set outlives the loss of any one failure domain: a node, or a zone.
//!
//! What is lost at once is replaced by Pods that are there already: ready hot backups, woken cold ones, and in pairs the
//! standby. New Pods do not count: on what is left there may be no room for them.
//!
//! One pass over the Pods and one over the domains that carry some: a cluster may have 10,000 nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::tally::Tally;
use super::words::{self, Word};
use crate::model::{Part, PodName, PodView, Role, Snapshot};

/// What fails together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    /// A node.
    Node,
    /// A zone: all nodes with one value of the label `topology.kubernetes.io/zone`.
    Zone,
}

/// What may be lost, and the type of the condition about it.
pub const SURVIVAL_CONDITIONS: [(&str, &str); 2] =
    [("node", words::SURVIVES_NODE_LOSS), ("zone", words::SURVIVES_ZONE_LOSS)];

impl Domain {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Node, Self::Zone];

    pub(super) const fn as_str(self) -> &'static str {
        self.words().0
    }

    /// Type of the condition about it.
    pub(super) const fn condition(self) -> &'static str {
        self.words().1
    }

    const fn words(self) -> (&'static str, &'static str) {
        let [node, zone] = SURVIVAL_CONDITIONS;
        match self {
            Self::Node => node,
            Self::Zone => zone,
        }
    }

    /// The domain that a Pod is in. Pods on nodes without a zone are together in one that has no name.
    fn of(self, view: &PodView) -> Option<&str> {
        let node = view.node.as_ref()?;
        Some(match self {
            Self::Node => node.name.0.as_str(),
            Self::Zone => node.zone.as_deref().unwrap_or_default(),
        })
    }

    /// That domain in words.
    fn named(self, name: &str) -> String {
        if name.is_empty() {
            "the nodes without a zone".to_owned()
        } else {
            format!("{} {name}", self.as_str())
        }
    }
}

/// Whether a set outlives the loss of any one domain of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Survival {
    /// Whether it does.
    pub(super) holds: bool,
    /// Why.
    pub(super) reason: Word,
    /// The worst domain, and what its loss would do.
    pub(super) message: String,
}

impl Survival {
    /// What the Pods of a set that count say.
    pub(super) fn of(snapshot: &Snapshot, tally: &Tally<'_>, kind: Domain) -> Self {
        let wanted = snapshot.desired.replicas;
        let because = |holds, reason: Word| Self { holds, reason, message: reason.meaning.to_owned() };
        if wanted == 0 {
            return because(true, words::NO_PRIMARIES_WANTED);
        }
        let Counts { of_domains, all } = Counts::of(snapshot, tally, kind);
        if kind == Domain::Zone && of_domains.keys().all(|name| name.is_empty()) {
            return because(false, words::NO_ZONES);
        }
        // Failovers within pairs go on in a pause, but no Pod is told to hand over.
        let is_paused = snapshot.desired.paused;
        let is_watching = is_paused && !snapshot.is_paired();
        let losses = of_domains.into_iter().map(|(domain, of)| {
            let left = all.without(of);
            let left = if is_watching { Count { hot: 0, cold: 0, ..left } } else { left };
            let lasting = of.beside_standby + of.uncopied + if is_paused { of.sharing } else { 0 };
            Loss::new(domain, of, left, Gap { wanted, lasting })
        });
        let Some(worst) = losses.max_by_key(Loss::weight) else {
            return because(false, words::NO_BACKUP_OUTSIDE);
        };
        let (holds, reason) = match worst {
            Loss { missing: 0, woken: 0, .. } => (true, words::BY_HOT),
            Loss { missing: 0, .. } => (true, words::BY_COLD),
            Loss { .. } if is_watching => (false, words::PAUSED_BY_SPEC),
            Loss { of: Count { beside_standby: 1.., .. }, .. } => (false, words::STANDBY_IN_SAME_DOMAIN),
            Loss { of: Count { sharing: 1.., .. }, .. } => (false, words::STANDBY_SHARED),
            Loss { of: Count { uncopied: 1.., .. }, .. } => (false, words::NOT_IN_SYNC),
            Loss { .. } => (false, words::NO_BACKUP_OUTSIDE),
        };
        Self { holds, reason, message: worst.describe(kind, wanted) }
    }
}

/// Pods of one domain, or of all. All that are counted are ready; cold ones wait at their gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    primaries: usize,
    /// Primaries whose standbys are elsewhere and could follow them.
    followed: usize,
    /// Primaries whose standbys are in the same domain. If both are lost the operator waits until neither can act any more.
    beside_standby: usize,
    /// Primaries whose state no standby has wholly, and that no standby follows without it.
    uncopied: usize,
    /// Primaries that share a standby elsewhere with another one of the same domain, which it follows. Another backup frees it
    /// for them, and has to get the state before that.
    sharing: usize,
    /// Hot backups that stand by for no active.
    hot: usize,
    cold: usize,
}

impl Count {
    const fn without(self, other: Self) -> Self {
        Self {
            primaries: self.primaries - other.primaries,
            followed: self.followed - other.followed,
            beside_standby: self.beside_standby - other.beside_standby,
            uncopied: self.uncopied - other.uncopied,
            sharing: self.sharing - other.sharing,
            hot: self.hot - other.hot,
            cold: self.cold - other.cold,
        }
    }
}

/// Pods of a set by domain.
struct Counts<'a> {
    of_domains: BTreeMap<&'a str, Count>,
    all: Count,
}

impl<'a> Counts<'a> {
    fn of(snapshot: &Snapshot, tally: &Tally<'a>, kind: Domain) -> Self {
        let standbys = tally.standbys();
        let mut counts = Self { of_domains: BTreeMap::new(), all: Count::default() };
        // A standby follows one of those that are lost together.
        let mut followers: BTreeSet<(&str, &PodName)> = BTreeSet::new();
        for view in tally.pods().filter(|view| view.is_available()) {
            let Some(domain) = kind.of(view) else { continue };
            let standby = view.part.peer_of_active().and_then(|peer| standbys.get(peer));
            let is_first = standby.is_some_and(|standby| followers.insert((domain, &standby.pod.name)));
            let of_domain = counts.of_domains.entry(domain).or_default();
            for count in [of_domain, &mut counts.all] {
                match (view.role, &view.part) {
                    (Role::Primary, _) => {
                        count.primaries += 1;
                        let is_beside = standby.is_some_and(|standby| kind.of(standby) == Some(domain));
                        let can_follow = standby.is_some_and(|standby| snapshot.can_follow(view, standby));
                        count.beside_standby += usize::from(is_beside);
                        count.followed += usize::from(!is_beside && can_follow && is_first);
                        count.sharing += usize::from(!is_beside && can_follow && !is_first);
                        count.uncopied += usize::from(!is_beside && !can_follow && snapshot.level.is_some());
                    }
                    (Role::Hot, Part::Standby { .. }) => {}
                    (Role::Hot, Part::None | Part::Active { .. }) => count.hot += 1,
                    (Role::Cold, _) => count.cold += 1,
                }
            }
        }
        counts
    }
}

/// Places of primaries that a loss leaves open.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Wanted primaries.
    wanted: usize,
    /// Lost ones whose places no backup takes.
    lasting: usize,
}

/// What the loss of one domain would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loss<'a> {
    domain: &'a str,
    /// What would be lost.
    of: Count,
    /// Wanted primaries that would not come back.
    missing: usize,
    /// Wanted primaries that cold backups would be woken for.
    woken: usize,
}

impl<'a> Loss<'a> {
    fn new(domain: &'a str, of: Count, left: Count, Gap { wanted, lasting }: Gap) -> Self {
        let gap = wanted.saturating_sub(left.primaries + of.followed);
        let lasting = lasting.min(gap);
        let open = (gap - lasting).saturating_sub(left.hot);
        let woken = open.min(left.cold);
        Self { domain, of, missing: lasting + open - woken, woken }
    }

    /// Greater for what is worse; of equal ones, for the first name.
    const fn weight(&self) -> (usize, usize, usize, Reverse<&'a str>) {
        (self.missing, self.woken, self.of.primaries, Reverse(self.domain))
    }

    fn describe(&self, kind: Domain, wanted: usize) -> String {
        let Self { domain, of, missing, woken } = *self;
        let domain = kind.named(domain);
        if missing == 0 {
            let woken =
                if woken == 0 { String::new() } else { format!(", {woken} by a cold backup that is woken") };
            return format!(
                "the worst loss is that of {domain}: {} of {wanted} primaries, all replaced{woken}",
                of.primaries
            );
        }
        let cause = if of.beside_standby > 0 {
            format!("both Pods of {} are there", pairs(of.beside_standby))
        } else if of.sharing > 0 {
            format!(
                "the standby of {} follows another one from there: spread the primaries, or add hot backups",
                pairs(of.sharing)
            )
        } else if of.uncopied > 0 {
            format!("no standby has the whole state of {}", pairs(of.uncopied))
        } else {
            let plural = if missing == 1 { "" } else { "s" };
            format!("it takes {missing} more ready backup{plural} elsewhere")
        };
        format!("without {domain} {missing} of {wanted} primaries would not come back: {cause}")
    }
}

fn pairs(count: usize) -> String {
    if count == 1 { "1 pair".to_owned() } else { format!("{count} pairs") }
}
