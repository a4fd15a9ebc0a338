//! Which claims may be held at the same time: pure, so that `tests/checkers.rs` can show that no claim has company that must
//! not have any.

use std::cmp::Reverse;

/// What a claim needs of the machine, the most demanding first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// All of it: the claim breaks a node, the API server or the operator, takes all processor time (as many Pods that start at
    /// once do), or counts failed requests of actives without a standby, which end when the API server answers no write for a
    /// second.
    Machine,
    /// Some calm: the claim counts failed requests, or judges how soon something happens.
    Quiet,
    /// Nothing that other claims disturb.
    Any,
}

impl Lane {
    /// Every lane, in the order in which their claims are held.
    pub const ALL: [Self; 3] = [Self::Machine, Self::Quiet, Self::Any];

    /// Most claims that are held at a time while one of this lane is held, that one included.
    ///
    /// 4: a claim alone keeps two cores busy for a quarter of its time.
    pub const fn claims_max(self) -> usize {
        match self {
            Self::Machine => 1,
            Self::Quiet => 2,
            Self::Any => 4,
        }
    }

    /// Most Pods that a claim of this lane may start at once.
    ///
    /// 6 beside a claim that counts failed requests: eight that started on two cores left agents beside them without processor
    /// time for longer than a hold lasts, so that those ended their applications.
    pub const fn pods_max(self) -> usize {
        match self {
            Self::Quiet => 6,
            Self::Machine | Self::Any => usize::MAX,
        }
    }
}

/// What is known of a claim before it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Its lane.
    pub lane: Lane,
    /// How long it took when this was written. Only the order depends on it.
    pub seconds: u32,
}

/// Which of the waiting claims starts next beside those that run; `None`: one of those has to end first.
///
/// One lane after the other, so that the machine waits for the end of a claim only where a lane ends. In a lane the longest
/// first, so that it does not end with a long claim alone.
pub fn next(waiting: &[Need], running: &[Lane]) -> Option<usize> {
    let may_start = |need: &Need| {
        let lanes = running.iter().copied().chain([need.lane]);
        lanes.map(Lane::claims_max).min().is_some_and(|most| running.len() < most)
    };
    let order = |index: &usize| (waiting[*index].lane, Reverse(waiting[*index].seconds));

    (0..waiting.len()).filter(|index| may_start(&waiting[*index])).min_by_key(order)
}

/// Names that several claims have: their results could not be told apart.
pub fn repeated<'n>(names: &[&'n str]) -> Vec<&'n str> {
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    let mut repeated: Vec<&str> =
        sorted.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect();
    repeated.dedup();
    repeated
}
