//! Decides which part starts next, beside those that run.
//!
//! Pure: the time that parts take is an argument.

use std::cmp::Reverse;
use std::time::Duration;

use crate::needs::Share;

/// Parts that keep processors busy at the same time. Two, because most of them end with one test that is longer than the
/// others, and leave all processors but one idle meanwhile.
pub(crate) const BUSY_MAX: usize = 2;

/// A part that may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Orders parts that are alike.
    pub(crate) name: String,
    /// What it takes of the machine.
    pub(crate) share: Share,
    /// How long it is likely to take.
    pub(crate) expected: Duration,
}

/// The order of parts; the smallest starts first.
///
/// Parts that want the machine for themselves come last: what fails early should be seen early. Then the longest, so that
/// no long one is left over when all others have ended.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct StartOrder<'a> {
    is_alone: bool,
    expected: Reverse<Duration>,
    name: &'a str,
}

/// The index of the part that starts now, if any may.
pub(crate) fn next(waiting: &[Candidate], running: &[Share]) -> Option<usize> {
    let fitting = waiting.iter().enumerate().filter(|(_, candidate)| fits(candidate.share, running));
    let first = fitting.min_by_key(|(_, candidate)| StartOrder {
        is_alone: candidate.share == Share::Machine,
        expected: Reverse(candidate.expected),
        name: &candidate.name,
    });
    first.map(|(index, _)| index)
}

/// Whether a part with this share may run beside those with the others.
fn fits(share: Share, running: &[Share]) -> bool {
    let is_machine_taken = running.contains(&Share::Machine);
    match share {
        Share::Machine => running.is_empty(),
        Share::Processor => {
            let busy = running.iter().filter(|other| **other == Share::Processor).count();
            !is_machine_taken && busy < BUSY_MAX
        }
        Share::Waiting => !is_machine_taken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part whose name is its share and its length.
    fn part(share: Share, seconds: u64) -> Candidate {
        let expected = Duration::from_secs(seconds);
        Candidate { name: format!("{share:?}-{seconds}"), share, expected }
    }

    /// A part that runs until a second.
    struct Running {
        part: Candidate,
        until: Duration,
    }

    /// Runs all parts, each exactly as long as expected; returns their names with the second in which each started.
    fn run(mut waiting: Vec<Candidate>) -> Vec<(String, u64)> {
        let (mut running, mut started, mut now) = (Vec::<Running>::new(), Vec::new(), Duration::ZERO);
        loop {
            while let Some(index) = next(&waiting, &shares(&running)) {
                let part = waiting.remove(index);
                started.push((part.name.clone(), now.as_secs()));
                running.push(Running { until: now + part.expected, part });
                assert_no_exclusion_is_broken(&shares(&running));
            }

            let Some(end) = running.iter().map(|one| one.until).min() else { break };
            now = end;
            running.retain(|one| one.until > now);
        }
        assert_eq!(waiting, [], "nothing runs, and these do not start");
        started
    }

    fn shares(running: &[Running]) -> Vec<Share> {
        running.iter().map(|one| one.part.share).collect()
    }

    fn assert_no_exclusion_is_broken(running: &[Share]) {
        let count = |share| running.iter().filter(|other| **other == share).count();
        assert!(count(Share::Machine) == 0 || running.len() == 1, "{running:?}");
        assert!(count(Share::Processor) <= BUSY_MAX, "{running:?}");
    }

    #[test]
    fn what_waits_runs_beside_what_is_busy_and_who_wants_the_machine_comes_last() {
        let parts = vec![
            part(Share::Machine, 60),
            part(Share::Processor, 10),
            part(Share::Processor, 30),
            part(Share::Processor, 20),
            part(Share::Waiting, 45),
            part(Share::Machine, 600),
        ];
        let expected = [
            ("Waiting-45", 0),
            ("Processor-30", 0),
            ("Processor-20", 0),
            ("Processor-10", 20),
            ("Machine-600", 45),
            ("Machine-60", 645),
        ];
        assert_eq!(run(parts), expected.map(|(name, second)| (name.to_owned(), second)));
    }

    #[test]
    fn every_mixture_of_parts_ends_and_each_starts_once() {
        let shares = [Share::Machine, Share::Processor, Share::Waiting];
        // Each digit of the number, to the base of four, is one part or none.
        for mixture in 0..4_usize.pow(6) {
            let digits = (0..6_u32).map(|place| mixture / 4_usize.pow(place) % 4);
            let chosen = digits.zip([1, 1, 2, 3, 5, 8]);
            let parts: Vec<_> =
                chosen.filter_map(|(digit, seconds)| Some(part(*shares.get(digit)?, seconds))).collect();
            assert_eq!(run(parts.clone()).len(), parts.len());
        }
    }

    #[test]
    fn parts_that_are_alike_start_by_name() {
        let named = |name: &str| Candidate { name: name.to_owned(), ..part(Share::Processor, 1) };
        assert_eq!(next(&[named("b"), named("a")], &[]), Some(1));
    }

    #[test]
    fn nothing_starts_beside_a_part_that_has_the_machine() {
        let waiting = [part(Share::Processor, 1), part(Share::Waiting, 1), part(Share::Machine, 1)];
        assert_eq!(next(&waiting, &[Share::Machine]), None);
    }
}
