//! A group as it was seen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use bps_protocol::{
    AgentId, BootTime, EndEvidence, Epoch, Lease, Moment, Timing, nobody_acts, nobody_acts_after,
};
use jiff::Timestamp;

use super::apart::StandbyPlace;
use super::cover::Uncovered;
use super::silence::Silence;
use super::withheld::Forsaken;
use crate::model::{NodeName, Role};

/// Member of a pair that has only one Pod: nobody, so that the pair can act while it waits for its standby.
pub const VACANT: AgentId = AgentId::NOBODY;

/// All that a plan is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Pods with the group's label, those that go away included.
    pub pods: Vec<Pod>,
    /// Pairs whose Lease exists.
    pub pairs: Vec<Pair>,
    /// Pairs whose Lease somebody else deleted.
    pub lost: Vec<Lost>,
    /// Pairs whose Lease is there and cannot be read: whoever acts goes on, so that all of theirs stays as it is.
    pub unreadable: Vec<Lost>,
    /// Those of the lost ones whose wait is over and whose Pods are both there or whose Lease said which copies of the state are level,
    /// until it is made anew.
    pub remembered: Vec<Lost>,
    /// How many pairs there shall be; `None` for as many as there are Pods for.
    pub pairs_wanted: Option<usize>,
    /// In how many pairs a Pod may stand by beside its first one: each place has a state directory of its own.
    pub further_places: usize,
    /// Whether a standby may be in the failure domain of its active.
    pub standby_place: StandbyPlace,
    /// Pairs stay as they are.
    pub is_paused: bool,
    /// Highest term of an epoch that was ever seen.
    pub highest_term: u32,
    /// Since when plans have been held by [`super::PairReason::Surplus`].
    pub surplus_since: Option<BootTime>,
    /// Since when plans have been held by [`super::PairReason::PodAlone`].
    pub alone_since: Option<BootTime>,
    /// Nodes that somebody is about to take away.
    pub leaving_nodes: BTreeSet<NodeName>,
    /// Pods that did not answer their actives for some seconds, a moment ago: whatever their objects say, they take no place of another
    /// one that is silent, and any other one last.
    pub silent: BTreeSet<AgentId>,
    /// Pairs whose application ends soon after each start.
    pub crash_looping: BTreeSet<u32>,
}

/// One Pod of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its uid.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// Where its agent listens; `None` until the containers run.
    pub address: Option<SocketAddr>,
    /// When it was made.
    pub created: Timestamp,
    /// Where it runs.
    pub node: Option<NodeName>,
    /// What its node fails together with, by the label that the group names; `None` if it has no node, or that no such label.
    pub domain: Option<String>,
    /// Its role in a set, if it belongs to one: primaries act first.
    pub role: Option<Role>,
    /// It was deleted, or its containers have ended for good.
    pub is_leaving: bool,
    /// It passes its readiness probes.
    pub is_ready: bool,
    /// What its labels say.
    pub shown: Shown,
}

impl Pod {
    /// Whether it is a primary of a set.
    pub fn is_primary(&self) -> bool {
        self.role == Some(Role::Primary)
    }
}

/// What the labels and annotations of a Pod say about its part.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shown {
    /// The label `HAState`.
    pub state: Option<HaState>,
    /// The label `peer`.
    pub peer: Option<String>,
    /// Actives that it stands by for, by the numbers of their pairs, in a group whose standbys may have several places.
    pub actives: BTreeMap<u32, String>,
    /// The labels with our prefix do not say the same as these two.
    pub is_contradictory: bool,
    /// The annotation that names its last tenure: it outlives the group and its Leases.
    pub epoch: Option<Epoch>,
    /// The annotation by which controllers of workloads do not delete it.
    pub is_kept: bool,
}

impl Shown {
    /// Whether another one differs at most in whether the Pod is kept.
    pub(super) fn names_same_part(&self, other: &Self) -> bool {
        Self { is_kept: other.is_kept, ..self.clone() } == *other
    }
}

/// Part of a Pod in its pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HaState {
    /// It acts.
    Active,
    /// It takes over when the active fails.
    Standby,
}

impl HaState {
    /// The value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Standby => "standby",
        }
    }

    /// The part that a label names.
    pub fn parse(label: &str) -> Option<Self> {
        [Self::Active, Self::Standby].into_iter().find(|state| state.as_str() == label)
    }
}

/// One of the two places of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Uid of the Pod, or [`VACANT`].
    pub id: AgentId,
    /// Name of the Pod; of a vacant place, the name of the Pod that was there last, or nothing.
    pub pod: String,
    /// Where its agent listens.
    pub address: SocketAddr,
}

impl Seat {
    /// A place without a member, which a Pod of this name had last; an empty name if none had.
    pub fn vacant(last: String) -> Self {
        Self { id: VACANT, pod: last, address: ([0, 0, 0, 0], 0).into() }
    }
}

/// A pair as its Lease shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Its number in the group.
    pub number: u32,
    /// What the Lease says.
    pub lease: Lease,
    /// Names of the Pods that it names.
    pub names: BTreeMap<AgentId, String>,
    /// Where it says that their agents listen.
    pub addresses: BTreeMap<AgentId, SocketAddr>,
    /// Which pairs get a standby first if there are not enough: the lowest.
    pub rank: i32,
    /// Pods that shall not act.
    pub fenced: Vec<AgentId>,
    /// The last tenure that was ordered to end by a handover.
    pub switch_over: Option<Epoch>,
    /// How many state directories have every acknowledged write; `None` if no state is replicated.
    pub level: Option<usize>,
    /// Pods that had those directories when they were written down; nobody if that is not known.
    pub level_pods: BTreeSet<AgentId>,
    /// Whoever has them is not to be seen, and whoever is lacks acknowledged writes.
    pub forsaken: Option<Forsaken>,
    /// Its active lives on writes although its standby answers: its node wakes its agent late.
    pub is_late: bool,
    /// It was decided that the pair ends.
    pub is_ending: bool,
    /// Times that its agents go by.
    pub timing: Timing,
    /// When the operator first read the Lease as the actives last wrote it.
    pub unwritten_since: BootTime,
    /// All its members have certainly ended, and none of them comes back.
    pub have_ended: bool,
    /// When that may be known, if they go on as they are.
    pub ends_known_at: Option<BootTime>,
    /// Its standby that does not answer, if there is one.
    pub silence: Option<Silence>,
    /// Since when nobody could follow its active.
    pub uncovered: Option<Uncovered>,
}

impl Pair {
    /// Names of the Pods that its Lease names, members first.
    pub fn pods(&self) -> Vec<String> {
        let names = self.lease.named().filter_map(|id| self.names.get(&id));
        names.filter(|name| !name.is_empty()).cloned().collect()
    }

    /// Whether a member has every acknowledged write, as far as its Lease tells; also if no state is replicated.
    pub fn has_whole_state(&self, id: AgentId) -> bool {
        self.level.is_none() || self.level_pods.is_empty() || self.level_pods.contains(&id)
    }

    /// Whether nobody acts in it, and nobody will before it is changed.
    pub fn is_over(&self, now: BootTime) -> bool {
        nobody_acts(&self.at(now), &self.lease, self.evidence())
    }

    /// When that may be so if nobody writes its Lease, and nothing else is heard.
    pub fn over_at(&self) -> BootTime {
        let at_last = nobody_acts_after(&self.timing, &self.lease, self.evidence());
        self.ends_known_at.map_or(at_last, |known| known.min(at_last))
    }

    /// What is known of those who may act in it.
    pub(super) fn evidence(&self) -> EndEvidence {
        EndEvidence { unwritten_since: self.unwritten_since, have_ended: self.have_ended }
    }

    /// That moment by the times of the pair.
    pub(super) fn at(&self, now: BootTime) -> Moment<'_> {
        Moment { now, timing: &self.timing }
    }
}

/// A pair whose Lease is gone although nobody wished that: somebody else deleted it, and whoever acted may do so until its
/// hold ends; or all its Pods went, and may come back with their state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its number in the group.
    pub number: u32,
    /// Names of the Pods that it had, members first; nobody pairs them anew before that time is over.
    pub pods: Vec<String>,
    /// What its Lease said of the copies of its state; `None` if none is replicated.
    pub level: Option<LevelText>,
    /// Until when whoever acted may do so.
    pub until: BootTime,
    /// How its Lease ended was seen, and that there was no other one since: it is made again as it was.
    pub may_return: bool,
    /// It is one of a group of this name that is gone.
    pub is_former: bool,
}

impl Lost {
    /// One whose end was not seen, of a group that is there.
    pub const fn new(number: u32, pods: Vec<String>, level: Option<LevelText>, until: BootTime) -> Self {
        Self { number, pods, level, until, may_return: false, is_former: false }
    }
}

/// How long the members of a pair may act whose times are not known. 63 min: at least W of the longest absence of the API server that
/// a group may choose to outlive (3,721 s), see [`Timing::outliving`].
pub const FORMER_WAIT: Duration = Duration::from_secs(63 * 60);

/// Whether a Pod that is gone may come back under its name: those of `StatefulSet`s end with their number.
pub fn is_lasting(pod: &str) -> bool {
    pod.rsplit_once('-').is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// What the Lease of a pair says of the copies of its state that have every acknowledged write, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelText {
    /// The directories; nobody may act if none is named.
    pub directories: String,
    /// The Pods that have them.
    pub pods: String,
}

impl Group {
    /// Pairs of which nothing is known but that somebody may act in them.
    pub fn left_alone(&self) -> impl Iterator<Item = &Lost> {
        self.lost.iter().chain(&self.unreadable)
    }

    /// Words of a Lease that are kept when its pair ends. If fewer pairs are wanted, none are: the pair ends for good, and not
    /// because all its Pods went.
    pub fn state_left(&self, said: Option<LevelText>) -> Option<LevelText> {
        said.filter(|_| self.pairs_wanted.is_none())
    }

    /// Pairs, the lowest rank first.
    pub(super) fn ranked(&self) -> Vec<&Pair> {
        let mut pairs: Vec<&Pair> = self.pairs.iter().collect();
        pairs.sort_by_key(|pair| (pair.rank, pair.number));
        pairs
    }

    /// Pods that stay, primaries first, then the oldest.
    pub fn staying(&self) -> Vec<&Pod> {
        let mut pods: Vec<&Pod> = self.pods.iter().filter(|pod| !pod.is_leaving).collect();
        pods.sort_by_key(|pod| (!pod.is_primary(), pod.created, pod.name.clone()));
        pods
    }
}
