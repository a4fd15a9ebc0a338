//! Decides what is shown of parts that ended: their last words, the counts of their tests, and the table of seconds.

use std::collections::BTreeMap;
use std::fmt;

use crate::part::Outcome;

/// A part took longer than in the last run if it took so much more. Unit: part of the last run.
const GROWN_BY: f64 = 0.2;
/// And so much more. Unit: seconds. Below that it is noise.
const GROWN_BY_SECONDS: f64 = 5.0;
/// A part that took less is not worth a line. Unit: seconds.
const SHOWN_FROM_SECONDS: f64 = 1.0;
/// Beginnings of lines in which a part sums up what it did.
const LAST_WORDS: [&str; 3] = ["test result:", "skipped:", "left out:"];

/// How many tests passed, failed and were not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    /// Those that passed.
    pub(crate) passed: usize,
    /// Those that failed.
    pub(crate) failed: usize,
    /// Those that are ignored or left out.
    pub(crate) skipped: usize,
}

/// A part that has ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ended {
    /// Its name.
    pub(crate) name: String,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Its tests.
    pub(crate) tally: Tally,
    /// What it says of those that failed, a line each.
    pub(crate) failures: Vec<String>,
}

impl Tally {
    /// The counts in what a part said. A part that failed has at least one failure, one that was left out was skipped.
    pub(crate) fn of(said: &str, outcome: &Outcome) -> Self {
        let sum = said.lines().filter_map(counts).fold(Self::default(), Self::plus);
        match outcome {
            Outcome::Passed => sum,
            Outcome::Failed(_) => Self { failed: sum.failed.max(1), ..sum },
            Outcome::LeftOut(_) => Self { skipped: sum.skipped.max(1), ..sum },
        }
    }

    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped } = self;
        write!(formatter, "{passed} passed, {failed} failed")?;
        if *skipped > 0 { write!(formatter, ", {skipped} skipped") } else { Ok(()) }
    }
}

/// The counts in a line, if it has some: one of libtest, or the last one of the claims.
fn counts(line: &str) -> Option<Tally> {
    let line = line.trim();
    if let Some(counts) = line.strip_prefix("test result: ") {
        let (_, counts) = counts.split_once(". ")?;
        let count = |word: &str| {
            let count = counts.split("; ").find_map(|count| count.strip_suffix(word))?;
            count.trim().parse::<usize>().ok()
        };
        return Some(Tally {
            passed: count("passed")?,
            failed: count("failed")?,
            skipped: count("ignored")?,
        });
    }
    let (held, all) = line.strip_suffix(" claims hold")?.split_once(" of ")?;
    let (held, all) = (held.parse::<usize>().ok()?, all.parse::<usize>().ok()?);
    Some(Tally { passed: held, failed: all.saturating_sub(held), skipped: 0 })
}

/// The lines in which a part sums up what it did.
pub(crate) fn last_words(said: &str) -> Vec<&str> {
    let sums_up =
        |line: &&str| LAST_WORDS.iter().any(|word| line.starts_with(word)) || counts(line).is_some();
    said.lines().filter(sums_up).collect()
}

/// A line for each test or claim that failed: its name, and what a claim says of it; then what the claim left behind. Whoever sees
/// only the end of a run needs no more to hold it again, or to think of a cause.
pub(crate) fn failures(said: &str) -> Vec<String> {
    let failed = |line: &str| {
        let test = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"));
        let named = test.or_else(|| line.strip_prefix("failed: ")).map(str::to_owned);
        named.or_else(|| Some(format!("  {}", line.strip_prefix("scene: ")?)))
    };
    said.lines().filter_map(failed).collect()
}

/// A part and its seconds, longest first; parts alike by name; what is short or was left out has no line.
pub(crate) fn table(parts: &[Ended], last: &BTreeMap<String, f64>) -> String {
    let mut ran: Vec<&Ended> = parts.iter().filter(|part| part.seconds >= SHOWN_FROM_SECONDS).collect();
    ran.sort_by(|left, right| {
        right.seconds.total_cmp(&left.seconds).then_with(|| left.name.cmp(&right.name))
    });
    let width = ran.iter().map(|part| part.name.len()).max().unwrap_or(0);

    let row = |part: &&Ended| {
        let before = last.get(&part.name);
        let mark = if before.is_some_and(|before| has_grown(*before, part.seconds)) { "  grew" } else { "" };
        let before = before.map_or_else(|| "-".to_owned(), |before| format!("{before:.1}"));
        format!("{:<width$}  {:>9.1}  {before:>9}{mark}\n", part.name, part.seconds)
    };
    let head = format!("{:<width$}  {:>9}  {:>9}\n", "part", "seconds", "last run");
    head + &ran.iter().map(row).collect::<String>()
}

/// Whether a part takes noticeably longer than in the last run.
fn has_grown(before: f64, now: f64) -> bool {
    now - before > GROWN_BY_SECONDS && now > before * (1.0 + GROWN_BY)
}

/// What the next run compares with: the seconds of the parts that passed, and of others what was known of them.
pub(crate) fn remembered(parts: &[Ended], last: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let passed = parts.iter().filter(|part| part.outcome == Outcome::Passed);
    let mut seconds = last.clone();
    seconds.extend(passed.map(|part| (part.name.clone(), part.seconds)));
    seconds
}

/// Below this much room on the disk a part may have failed for that reason alone. 2 GiB: the programs of the tests, and the logs
/// and images of a local cluster, are some hundreds of MiB each. Unit: MiB.
const ROOM_MIN_MIB: u64 = 2_048;

/// What to say of the disk after a part failed, if so much of it is free. Unit: MiB.
pub(crate) fn disk_hint(free_mib: Option<u64>) -> Option<String> {
    free_mib.filter(|free| *free < ROOM_MIN_MIB).map(|free| {
        format!(
            "only {free} MiB of the disk are free, which may be why: free some, such as the folders \"incremental\" in target, or \
             set CARGO_TARGET_DIR to a folder with 8 GiB"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 1 filtered out; finished in 0.01s";
    const BAD: &str =
        "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";

    fn failed() -> Outcome {
        Outcome::Failed("it ended with exit status: 101".to_owned())
    }

    fn ended(name: &str, seconds: f64, outcome: Outcome) -> Ended {
        Ended { name: name.to_owned(), outcome, seconds, tally: Tally::default(), failures: vec![] }
    }

    #[test]
    fn the_end_names_the_tests_and_claims_that_failed() {
        let said = "test a::b ... ok\ntest c::d ... FAILED\n\nfailures:\n    c::d\nclaim e ... FAILED (Own, 1.2 s)\nfailed: e: too late\nscene: Pod a\n";
        assert_eq!(failures(said), ["c::d", "e: too late", "  Pod a"]);
    }

    #[test]
    fn tests_are_counted_over_all_results_of_a_part() {
        let said = format!("running 15 tests\n{GOOD}\n\nrunning 3 tests\n{BAD}\n");
        assert_eq!(Tally::of(&said, &failed()), Tally { passed: 13, failed: 2, skipped: 3 });
        let claims = "claim a_pair_swaps_roles ... ok (1.2 s)\n\n69 of 71 claims hold\nfailed: a: b\n";
        assert_eq!(Tally::of(claims, &failed()), Tally { passed: 69, failed: 2, skipped: 0 });
    }

    #[test]
    fn a_part_without_counts_counts_by_how_it_ended() {
        let of = |outcome| Tally::of("error: could not compile", &outcome).to_string();
        assert_eq!(of(Outcome::Passed), "0 passed, 0 failed");
        assert_eq!(of(failed()), "0 passed, 1 failed");
        assert_eq!(of(Outcome::LeftOut(String::new())), "0 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn the_last_words_of_a_part_are_those_in_which_it_sums_up() {
        let said =
            format!("running 15 tests\ntest a ... ok\n\n{GOOD}\nskipped: needs root\n2 of 2 claims hold\n");
        assert_eq!(last_words(&said), [GOOD, "skipped: needs root", "2 of 2 claims hold"]);
    }

    #[test]
    fn the_table_has_the_longest_first_and_marks_what_grew() {
        let parts = [
            ended("lab/api", 250.0, Outcome::Passed),
            ended("lab/cluster", 600.0, failed()),
            ended("lint", 11.0, Outcome::Passed),
            ended("lint-docker", 0.1, Outcome::Passed),
            ended("lab/lab_lifecycle", 0.0, Outcome::LeftOut("needs root".to_owned())),
        ];
        let last = [("lab/api", 200.0), ("lab/cluster", 550.0), ("lint", 7.0)];
        let last = last.map(|(name, seconds)| (name.to_owned(), seconds)).into();
        let expected = "\
            part           seconds   last run\n\
            lab/cluster      600.0      550.0\n\
            lab/api          250.0      200.0  grew\n\
            lint              11.0        7.0\n";
        assert_eq!(table(&parts, &last), expected);
        assert!(table(&parts, &BTreeMap::new()).contains("lint              11.0          -\n"));
    }

    #[test]
    fn the_next_run_compares_with_the_last_time_that_a_part_passed() {
        let last = [("lab/api".to_owned(), 200.0), ("gone".to_owned(), 1.0)].into();
        let parts = [ended("lab/api", 3.0, failed()), ended("lint", 11.0, Outcome::Passed)];
        let expected = [("lab/api", 200.0), ("gone", 1.0), ("lint", 11.0)];
        assert_eq!(remembered(&parts, &last), expected.map(|(name, it)| (name.to_owned(), it)).into());
    }

    #[test]
    fn a_full_disk_is_told() {
        assert_eq!(disk_hint(None), None);
        assert_eq!(disk_hint(Some(ROOM_MIN_MIB)), None);
        let hint = disk_hint(Some(12)).expect("it is full");
        assert!(hint.contains("only 12 MiB") && hint.contains("CARGO_TARGET_DIR"), "{hint}");
    }
}
