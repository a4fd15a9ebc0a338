//! Who put out something when, and whether two of a pair did at the same time: computed from what a sink has received.
//!
//! Reads no clock and no socket.

use std::collections::BTreeMap;
use std::fmt;

/// The outputs of one Pod in one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenure {
    /// When the first came. Unit: nanoseconds of the receiver's clock.
    pub first_ns: u64,
    /// When the last came. Unit: nanoseconds of the receiver's clock.
    pub last_ns: u64,
    /// How many came.
    pub outputs: u64,
}

/// Outputs of an epoch that came after the first of a later one, or of another Pod in the same epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The earlier epoch and its Pod.
    pub older: (u64, String),
    /// The later epoch and its Pod.
    pub newer: (u64, String),
    /// First output of the later one. Unit: nanoseconds of the receiver's clock.
    pub from_ns: u64,
    /// Last output of the earlier one. Unit: nanoseconds of the receiver's clock.
    pub until_ns: u64,
}

/// What a sink has received from one pair, by epoch and Pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct History {
    of: BTreeMap<(u64, String), Tenure>,
    /// The highest epoch so far, and the Pod that was the first to put out something in it.
    newest: Option<(u64, String)>,
    stale: u64,
}

impl History {
    fn observe(&mut self, now_ns: u64, epoch: u64, pod: &str) {
        let new = Tenure { first_ns: now_ns, last_ns: now_ns, outputs: 0 };
        let tenure = self.of.entry((epoch, pod.to_owned())).or_insert(new);
        tenure.last_ns = now_ns;
        tenure.outputs += 1;
        match &self.newest {
            Some((newest, by)) if epoch < *newest || (epoch == *newest && pod != by) => self.stale += 1,
            Some((newest, _)) if epoch == *newest => {}
            Some(_) | None => self.newest = Some((epoch, pod.to_owned())),
        }
    }

    fn overlaps(&self) -> Vec<Overlap> {
        let mut ordered: Vec<_> = self.of.iter().collect();
        ordered.sort_by_key(|((epoch, _), tenure)| (*epoch, tenure.first_ns));
        let pairs = ordered.iter().enumerate().flat_map(|(at, older)| {
            let later = ordered[at + 1..].iter();
            later.map(move |newer| (older, newer))
        });
        let mixed = pairs.filter(|((_, older), (_, newer))| older.last_ns > newer.first_ns);
        mixed
            .map(|((older, until), (newer, from))| Overlap {
                older: (*older).clone(),
                newer: (*newer).clone(),
                from_ns: from.first_ns,
                until_ns: until.last_ns,
            })
            .collect()
    }
}

/// Everything that a sink has received, by pair: epochs of two pairs have nothing to do with each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tenures {
    of: BTreeMap<String, History>,
}

impl Tenures {
    /// Notes one output; the clock never goes back.
    pub fn observe(&mut self, now_ns: u64, (pair, epoch, pod): (&str, u64, &str)) {
        if !self.of.contains_key(pair) {
            self.of.insert(pair.to_owned(), History::default());
        }
        if let Some(history) = self.of.get_mut(pair) {
            history.observe(now_ns, epoch, pod);
        }
    }

    /// Outputs of all Pods.
    pub fn outputs(&self) -> u64 {
        let tenures = self.of.values().flat_map(|history| history.of.values());
        tenures.map(|tenure| tenure.outputs).sum()
    }

    /// Outputs that came from somebody who was not, or no longer, the only active of its pair: in an epoch below one that
    /// had been seen, or in the epoch of another Pod.
    pub fn stale(&self) -> u64 {
        self.of.values().map(|history| history.stale).sum()
    }

    /// Each two tenures of a pair that were not one after the other: two actives.
    pub fn overlaps(&self) -> Vec<Overlap> {
        self.of.values().flat_map(History::overlaps).collect()
    }
}

/// One line for each tenure, one for each overlap, and one with the numbers of all.
impl fmt::Display for Tenures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "pair,epoch,pod,first_ns,last_ns,outputs")?;
        for (pair, history) in &self.of {
            for ((epoch, pod), Tenure { first_ns, last_ns, outputs }) in &history.of {
                writeln!(formatter, "{pair},{epoch},{pod},{first_ns},{last_ns},{outputs}")?;
            }
        }
        let overlaps = self.overlaps();
        for Overlap { older, newer, from_ns, until_ns } in &overlaps {
            let microseconds = until_ns.saturating_sub(*from_ns) / 1_000;
            let ((older, by), (newer, beside)) = (older, newer);
            writeln!(formatter, "# overlap older={older},{by} newer={newer},{beside} us={microseconds}")?;
        }
        let count: usize = self.of.values().map(|history| history.of.len()).sum();
        let (outputs, stale) = (self.outputs(), self.stale());
        write!(formatter, "# outputs={outputs} tenures={count} overlaps={} stale={stale}", overlaps.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(outputs: &[(u64, u64, &str)]) -> Tenures {
        let mut tenures = Tenures::default();
        for (now, epoch, pod) in outputs {
            tenures.observe(*now, ("web", *epoch, pod));
        }
        tenures
    }

    #[test]
    fn tenures_one_after_the_other_do_not_overlap() {
        let tenures = received(&[(10, 1, "a"), (20, 1, "a"), (30, 2, "b"), (40, 3, "a")]);
        assert_eq!(tenures.overlaps(), []);
        assert_eq!(
            tenures.to_string(),
            "pair,epoch,pod,first_ns,last_ns,outputs\nweb,1,a,10,20,2\nweb,2,b,30,30,1\nweb,3,a,40,40,1\n\
             # outputs=4 tenures=3 overlaps=0 stale=0"
        );
    }

    #[test]
    fn an_older_epoch_after_a_newer_one_is_two_actives() {
        let tenures = received(&[(10, 1, "a"), (20, 2, "b"), (5_020, 1, "a"), (6_000, 2, "b")]);
        let (older, newer) = ((1, "a".to_owned()), (2, "b".to_owned()));
        assert_eq!(tenures.overlaps(), [Overlap { older, newer, from_ns: 20, until_ns: 5_020 }]);
        assert!(tenures.to_string().contains("\n# overlap older=1,a newer=2,b us=5\n"), "{tenures}");
    }

    #[test]
    fn outputs_of_whoever_is_not_the_only_active_are_counted_one_by_one() {
        let older = received(&[(10, 1, "a"), (20, 2, "b"), (30, 1, "a"), (40, 1, "a"), (50, 2, "b")]);
        assert_eq!((older.outputs(), older.stale()), (5, 2));
        let same = received(&[(10, 1, "a"), (20, 1, "b"), (30, 1, "a"), (40, 2, "b"), (50, 3, "b")]);
        assert_eq!((same.outputs(), same.stale()), (5, 1));
    }

    #[test]
    fn epochs_of_two_pairs_say_nothing_about_each_other() {
        let mut tenures = Tenures::default();
        for (now, output) in [(10, ("web", 5, "a")), (20, ("db", 1, "c")), (30, ("web", 5, "a"))] {
            tenures.observe(now, output);
        }
        assert_eq!((tenures.outputs(), tenures.stale(), tenures.overlaps()), (3, 0, Vec::new()));
        tenures.observe(40, ("db", 1, "a"));
        assert_eq!((tenures.outputs(), tenures.stale()), (4, 1), "of one pair");
    }

    #[test]
    fn an_epoch_of_two_pods_at_once_is_two_actives() {
        let tenures = received(&[(10, 1, "b"), (20, 1, "a"), (30, 1, "b")]);
        let (older, newer) = ((1, "b".to_owned()), (1, "a".to_owned()));
        assert_eq!(tenures.overlaps(), [Overlap { older, newer, from_ns: 20, until_ns: 30 }]);
    }
}
