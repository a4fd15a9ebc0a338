//! What clients were told, and what that proves: pure, so that `tests/checkers.rs` can show that it would see a loss.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What a writer was told of its writes, each of which has a number of its own.
#[derive(Debug, Default)]
pub struct Log {
    /// When a primary answered, be it that it wants a second copy first.
    answers: Vec<Instant>,
    /// Writes that were acknowledged by the standby, too, and when.
    acknowledged: Vec<(u32, Instant)>,
}

/// One write that a primary answered.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Its number: each is written once.
    pub number: u32,
    /// When it was answered.
    pub answered: Instant,
    /// When it was acknowledged, if it was.
    pub acknowledged: Option<Instant>,
}

impl Log {
    /// Adds what a writer was told.
    pub fn note(&mut self, attempt: Attempt) {
        let Attempt { number, answered, acknowledged } = attempt;
        self.answers.push(answered);
        self.acknowledged.extend(acknowledged.map(|moment| (number, moment)));
    }

    /// Numbers of the writes that were acknowledged.
    pub fn acknowledged(&self) -> impl Iterator<Item = u32> {
        self.acknowledged.iter().map(|(number, _)| *number)
    }

    /// Writes that were acknowledged and are not among these.
    ///
    /// Each number is written once, so that nothing which comes later takes the place of what was lost.
    pub fn lost(&self, kept: &BTreeSet<u32>) -> Vec<u32> {
        self.acknowledged().filter(|number| !kept.contains(number)).collect()
    }

    /// Whether a write was acknowledged later than this.
    pub fn is_acknowledged_after(&self, moment: Instant) -> bool {
        self.acknowledged.last().is_some_and(|(_, last)| *last > moment)
    }

    /// The longest time since this moment in which no primary answered, and in which nothing was acknowledged.
    pub fn outages(&self, since: Instant) -> [Duration; 2] {
        let acknowledged = self.acknowledged.iter().map(|(_, moment)| *moment).collect();
        [self.answers.clone(), acknowledged].map(|moments: Vec<Instant>| {
            let first = moments.partition_point(|moment| *moment < since).saturating_sub(1);
            moments[first..].windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default()
        })
    }
}

/// Who acted, one after the other. Whoever was started again is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// In the order in which they began to.
    pub order: Vec<String>,
    /// Those that acted after another one had: both acted at the same time.
    pub returned: BTreeSet<String>,
}

impl Turns {
    /// This one acts now.
    pub fn note(&mut self, who: &str) {
        if self.order.last().is_some_and(|last| last == who) {
            return;
        }
        if self.order.iter().any(|former| former == who) {
            self.returned.insert(who.to_owned());
        }
        self.order.push(who.to_owned());
    }
}
