//! What an outage was like for a client: computed from the samples of one run.
//!
//! Reads no clock and no file.

use super::sample::Sample;
use std::fmt;
use std::time::Duration;

/// Latency from which an answer counts as trouble although it came.
///
/// Unit: milliseconds. A request that waits in a backlog or for the retransmission of a lost SYN (1 s, RFC 6298)
/// is an outage for its user; answers of the stand-in application take less than 1 ms otherwise, and 100 ms
/// leaves room for a starved machine.
pub const SLOW_AFTER: Duration = Duration::from_millis(100);
/// How many troubles are told one by one.
const TROUBLES_TOLD_MAX: usize = 8;
/// How many spells of failures are told.
const SPELLS_TOLD_MAX: usize = 12;
/// Failures that begin no later after one another than this are one spell: ten requests of the usual client.
const SPELL_PAUSE_MAX: Duration = Duration::from_millis(100);

/// What a client saw of an outage.
///
/// "Trouble" is a request that failed or that took [`SLOW_AFTER`] or longer. Requests are ordered by their
/// start, answers by their end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outage {
    /// Requests sent.
    pub requests: usize,
    /// Requests without a right answer.
    pub failed: usize,
    /// Requests answered, but not within [`SLOW_AFTER`].
    pub slow: usize,
    /// From the last prompt answer before the first trouble until the first answer to a request sent at or
    /// after the start of that trouble. Zero without trouble, `None` if no answer came any more.
    pub out: Option<Duration>,
    /// From the same beginning until the first prompt answer to a request sent after the last trouble, which
    /// is when all that serve do so again. Zero without trouble, `None` if the run ended in trouble.
    pub whole_again: Option<Duration>,
    /// Whether a request that was sent after the last failure was answered, however long that took: what a verdict may be made
    /// of, because the last answers of a run may be slow for many reasons.
    pub is_answered: bool,
    /// Longest time between one answer and the next with trouble between them. Zero without trouble, `None` if
    /// no trouble had an answer on both sides.
    pub longest_gap: Option<Duration>,
}

impl Outage {
    /// Computes the outage of one run; the order of the samples does not matter.
    pub fn from_samples(samples: &[Sample]) -> Outage {
        let troubles: Vec<&Sample> = samples.iter().filter(|sample| is_trouble(sample)).collect();
        let last_failure =
            samples.iter().filter(|sample| !sample.is_ok()).map(|sample| sample.start_ns).max();
        let is_after = |sample: &Sample| last_failure.is_none_or(|failure| sample.start_ns > failure);
        let counted = Outage {
            requests: samples.len(),
            is_answered: samples.iter().any(|sample| sample.is_ok() && is_after(sample)),
            failed: samples.iter().filter(|sample| !sample.is_ok()).count(),
            slow: troubles.iter().filter(|sample| sample.is_ok()).count(),
            ..Outage::default()
        };
        let starts = || troubles.iter().map(|sample| sample.start_ns);
        let (Some(first), Some(last)) = (starts().min(), starts().max()) else {
            let none = Some(Duration::ZERO);
            return Outage { out: none, whole_again: none, longest_gap: none, ..counted };
        };
        let prompt = || samples.iter().filter(|sample| sample.is_ok() && !is_trouble(sample));
        let began = prompt().filter(|s| s.start_ns < first).map(|s| s.end_ns).max().unwrap_or(first);
        let answer = samples.iter().filter(|s| s.is_ok() && s.start_ns >= first).map(|s| s.end_ns).min();
        let whole = prompt().filter(|s| s.start_ns > last).map(|s| s.end_ns).min();
        let since = |end: u64| Duration::from_nanos(end.saturating_sub(began));
        Outage {
            out: answer.map(since),
            whole_again: whole.map(since),
            longest_gap: longest_gap(samples, &troubles),
            ..counted
        }
    }
}

/// What a client met again after it had been well for a while, if it did; a line of text, times since the first trouble.
///
/// One outage is one row of troubles. What comes `apart` from it has another cause, and the figures do not tell which.
pub fn second_trouble(samples: &[Sample], apart: Duration) -> Option<String> {
    let mut troubles: Vec<&Sample> = samples.iter().filter(|sample| is_trouble(sample)).collect();
    troubles.sort_by_key(|sample| sample.start_ns);
    let since = |sample: &Sample| Duration::from_nanos(sample.start_ns.saturating_sub(troubles[0].start_ns));
    let pauses = troubles.windows(2);
    let second = 1 + pauses.take_while(|pair| since(pair[1]) < since(pair[0]) + apart).count();
    let told = troubles.get(second..)?.iter().take(TROUBLES_TOLD_MAX).map(|sample| {
        let (since, elapsed) = (since(sample).as_secs_f64(), sample.elapsed().as_secs_f64());
        format!("{since:.3} s: {} after {elapsed:.3} s", sample.outcome)
    });
    Some(told.collect::<Vec<_>>().join(", ")).filter(|told| !told.is_empty())
}

/// When requests failed, and how, if one did; a line of text, times since the first request.
///
/// The figures tell how long an outage was. Whether it fell together with another event, only its time of day can tell.
pub fn spells(samples: &[Sample]) -> Option<String> {
    let first = samples.iter().map(|sample| sample.start_ns).min()?;
    let mut failures: Vec<&Sample> = samples.iter().filter(|sample| !sample.is_ok()).collect();
    failures.sort_by_key(|sample| sample.start_ns);
    let since = |sample: &Sample| Duration::from_nanos(sample.start_ns - first);
    let spells = failures
        .chunk_by(|one, next| one.outcome == next.outcome && since(next) <= since(one) + SPELL_PAUSE_MAX);
    let told = spells.take(SPELLS_TOLD_MAX).map(|spell| {
        let [from, to] = [spell[0], spell[spell.len() - 1]].map(|sample| since(sample).as_secs_f64());
        format!("{from:.3} to {to:.3} s: {} {}", spell.len(), spell[0].outcome)
    });
    Some(told.collect::<Vec<_>>().join(", ")).filter(|told| !told.is_empty())
}

fn is_trouble(sample: &Sample) -> bool {
    !sample.is_ok() || sample.elapsed() >= SLOW_AFTER
}

fn longest_gap(samples: &[Sample], troubles: &[&Sample]) -> Option<Duration> {
    let mut answers: Vec<u64> = samples.iter().filter(|sample| sample.is_ok()).map(|s| s.end_ns).collect();
    answers.sort_unstable();
    let gap_around = |trouble: &&Sample| {
        let next = answers.partition_point(|end| *end <= trouble.start_ns);
        let before = answers.get(next.checked_sub(1)?)?;
        Some(Duration::from_nanos(answers.get(next)? - before))
    };
    troubles.iter().filter_map(gap_around).max()
}

/// Milliseconds with three decimals, or `never`.
fn milliseconds(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "never".to_owned(), |duration| format!("{:.3}", duration.as_secs_f64() * 1e3))
}

impl fmt::Display for Outage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outage { requests, failed, slow, out, whole_again, longest_gap, is_answered: _ } = self;
        write!(
            formatter,
            "requests={requests} failed={failed} slow={slow} out_ms={} whole_again_ms={} longest_gap_ms={}",
            milliseconds(*out),
            milliseconds(*whole_again),
            milliseconds(*longest_gap)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Outcome;
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn sample(start: u64, end: u64, outcome: Outcome) -> Sample {
        Sample { start_ns: start * MILLISECOND, end_ns: end * MILLISECOND, outcome, pod: String::new() }
    }

    fn ok(start: u64) -> Sample {
        sample(start, start + 1, Outcome::Ok)
    }

    #[expect(clippy::unnecessary_wraps, reason = "compared with the optional fields")]
    fn ms(milliseconds: u64) -> Option<Duration> {
        Some(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_run_without_failures_has_no_outage() {
        let outage = Outage::from_samples(&[ok(0), ok(5), ok(10)]);
        let none = ms(0);
        assert_eq!(
            outage,
            Outage {
                requests: 3,
                failed: 0,
                slow: 0,
                out: none,
                whole_again: none,
                is_answered: true,
                longest_gap: none
            }
        );
    }

    #[test]
    fn a_single_outage_lasts_from_the_last_answer_before_to_the_first_answer_after() {
        let refused = [10, 15, 20].map(|start| sample(start, start, Outcome::Refused));
        let samples = [vec![ok(0), ok(5)], refused.to_vec(), vec![ok(25), ok(30)]].concat();
        let expected = Outage {
            requests: 7,
            failed: 3,
            slow: 0,
            out: ms(20),
            whole_again: ms(20),
            is_answered: true,
            longest_gap: ms(20),
        };
        assert_eq!(Outage::from_samples(&samples), expected);
    }

    #[test]
    fn requests_that_hang_past_the_repair_do_not_lengthen_the_outage() {
        let samples = [
            ok(0),
            sample(5, 1005, Outcome::Timeout),
            sample(400, 1400, Outcome::Timeout),
            ok(700),
            ok(705),
            ok(1500),
        ];
        let expected = Outage {
            requests: 6,
            failed: 2,
            slow: 0,
            out: ms(700),
            whole_again: ms(700),
            is_answered: true,
            longest_gap: ms(700),
        };
        assert_eq!(Outage::from_samples(&samples), expected);
    }

    #[test]
    fn failures_between_answers_delay_whole_again_but_not_the_first_answer() {
        let samples = [
            ok(0),
            sample(5, 5, Outcome::Refused),
            ok(10),
            sample(15, 15, Outcome::Reset),
            ok(20),
            sample(50, 50, Outcome::Refused),
            ok(60),
        ];
        let expected = Outage {
            requests: 7,
            failed: 3,
            slow: 0,
            out: ms(10),
            whole_again: ms(60),
            is_answered: true,
            longest_gap: ms(40),
        };
        assert_eq!(Outage::from_samples(&samples), expected);
    }

    #[test]
    fn a_slow_answer_is_an_outage_although_nothing_failed() {
        let samples = [ok(0), sample(5, 600, Outcome::Ok), sample(300, 601, Outcome::Ok), ok(605)];
        let expected = Outage {
            requests: 4,
            failed: 0,
            slow: 2,
            out: ms(599),
            whole_again: ms(605),
            is_answered: true,
            longest_gap: ms(599),
        };
        assert_eq!(Outage::from_samples(&samples), expected);
    }

    #[test]
    fn an_outage_that_does_not_end_has_no_duration() {
        let samples = [ok(0), sample(5, 5, Outcome::Refused), sample(10, 10, Outcome::Refused)];
        let expected = Outage {
            requests: 3,
            failed: 2,
            slow: 0,
            out: None,
            whole_again: None,
            is_answered: false,
            longest_gap: None,
        };
        assert_eq!(Outage::from_samples(&samples), expected);
        assert_eq!(
            expected.to_string(),
            "requests=3 failed=2 slow=0 out_ms=never whole_again_ms=never longest_gap_ms=never"
        );
    }

    #[test]
    fn a_run_that_begins_in_an_outage_counts_from_its_first_request() {
        let samples = [sample(5, 5, Outcome::Refused), ok(10)];
        let expected = Outage {
            requests: 2,
            failed: 1,
            slow: 0,
            out: ms(6),
            whole_again: ms(6),
            is_answered: true,
            longest_gap: None,
        };
        assert_eq!(Outage::from_samples(&samples), expected);
    }

    #[test]
    fn the_order_of_the_samples_does_not_matter() {
        let mut samples = vec![ok(0), sample(5, 5, Outcome::Refused), ok(10), ok(15)];
        let forward = Outage::from_samples(&samples);
        samples.reverse();
        assert_eq!(Outage::from_samples(&samples), forward);
    }

    #[test]
    fn a_trouble_that_comes_apart_is_told() {
        let apart = Duration::from_millis(200);
        let good = sample(0, 1, Outcome::Ok);
        let one = [good.clone(), sample(10, 11, Outcome::Refused), sample(150, 151, Outcome::Reset)];
        assert_eq!(second_trouble(&one[..1], apart), None);
        assert_eq!(second_trouble(&one, apart), None);
        let other =
            [&one[..], &[sample(200, 201, Outcome::Ok), sample(400, 1_400, Outcome::Timeout)]].concat();
        let told = second_trouble(&other, apart);
        assert_eq!(told.as_deref(), Some("0.390 s: timeout after 1.000 s"));
    }

    #[test]
    fn failures_are_told_in_spells_of_one_outcome() {
        let failed = |start, outcome| sample(start, start + 1, outcome);
        assert_eq!(spells(&[ok(5)]), None);
        let refused = [20, 10, 110].map(|start| failed(start, Outcome::Refused));
        let others = [failed(120, Outcome::Reset), failed(221, Outcome::Reset), ok(300), ok(0)];
        assert_eq!(
            spells(&[&refused[..], &others].concat()).as_deref(),
            Some("0.010 to 0.110 s: 3 refused, 0.120 to 0.120 s: 1 reset, 0.221 to 0.221 s: 1 reset")
        );
    }

    #[test]
    fn a_run_that_ends_with_slow_answers_is_answered_in_the_end() {
        let answered = |samples: &[Sample]| Outage::from_samples(samples).is_answered;
        let slow = sample(20, 200, Outcome::Ok);
        assert!(answered(&[ok(0), sample(5, 5, Outcome::Refused), slow.clone()]));
        assert!(!answered(&[ok(0), slow.clone(), sample(21, 21, Outcome::Refused)]));
        assert!(!answered(&[]));
        assert_eq!(Outage::from_samples(&[ok(0), slow]).whole_again, None, "a figure, and no verdict");
    }
}
