//! What was measured, and how it is printed: a row for each figure, beside what it is compared with.
//!
//! Pure.

use std::time::Duration;

use serde::Serialize;

use super::target::Target;
use crate::app::outage::Outage;
use crate::bench::summary::{Figures, aligned};

/// What the figures of a row are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Unit {
    /// Seconds, printed as milliseconds.
    #[default]
    Milliseconds,
    /// Seconds, printed as milliseconds with three decimals.
    Microseconds,
    /// Seconds.
    Seconds,
    /// Percent, more or less than something else.
    Percent,
}

impl Unit {
    /// A figure in it.
    pub fn text(self, value: f64) -> String {
        match self {
            _ if value.is_infinite() => "never".to_owned(),
            Self::Milliseconds => format!("{:.0} ms", value * 1e3),
            Self::Microseconds => format!("{:.3} ms", value * 1e3),
            Self::Seconds => format!("{value:.2} s"),
            Self::Percent => format!("{value:+.1} %"),
        }
    }
}

/// One figure, measured often.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub what: String,
    /// What it should be at most.
    pub target: Target,
    /// What was measured elsewhere, and by whom; empty if it was not.
    pub elsewhere: &'static str,
    /// The row that it is compared with; empty if there is none.
    pub beside: String,
    /// What the samples are.
    pub unit: Unit,
    /// The samples.
    pub samples: Vec<f64>,
    /// Requests that failed, by round; empty if none were sent.
    pub failed: Vec<usize>,
}

impl Row {
    /// Adds what a client saw of a fault.
    pub fn saw(&mut self, outage: &Outage) {
        self.samples.push(outage.whole_again.map_or(f64::INFINITY, |out| out.as_secs_f64()));
        self.failed.push(outage.failed);
    }

    /// Adds what a client saw that asks one question after the other over a connection that it keeps.
    pub fn saw_kept(&mut self, outage: &Outage) {
        self.samples.push(outage.longest_gap.map_or(f64::INFINITY, |gap| gap.as_secs_f64()));
        self.failed.push(outage.failed);
    }

    /// Adds a time.
    pub fn took(&mut self, time: Duration) {
        self.samples.push(time.as_secs_f64());
    }
}

/// Everything that was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Figures, in the order of the table.
    pub rows: Vec<Row>,
    /// What is no figure of a row.
    pub lines: Vec<String>,
    /// Why rounds failed.
    pub failures: Vec<String>,
    /// Answers that the sinks received.
    pub answers: u64,
    /// Answers of somebody who was not the only active.
    pub stale: u64,
}

impl Report {
    /// The table, and what is no figure of a row.
    pub fn text(&self) -> String {
        let header = [
            "",
            "n",
            "median",
            "p90",
            "worst",
            "target",
            "failed, most",
            "beside it: median / worst",
            "elsewhere",
        ];
        let mut lines = vec![header.map(str::to_owned)];
        lines.extend(self.rows.iter().filter_map(|row| self.line(row)));
        let actives = format!("two actives: {} of {} answers (target 0)", self.stale, self.answers);
        let actives = (self.answers > 0).then_some(&actives);
        let rest: Vec<&str> = self.lines.iter().chain(actives).map(String::as_str).collect();
        aligned(&lines) + NOTE + &rest.join("\n")
    }

    /// The cells of a row; `None` without samples.
    pub fn line(&self, row: &Row) -> Option<[String; 9]> {
        let figures = Figures::of(&row.samples)?;
        let target = row.target.text(row, &figures);
        let Figures { count, median, p90, worst } = figures;
        let [median, p90, worst] = [median, p90, worst].map(|value| row.unit.text(value));
        let most = row.failed.iter().max().map_or_else(|| "-".to_owned(), usize::to_string);
        let elsewhere = if row.elsewhere.is_empty() { "-" } else { row.elsewhere }.to_owned();
        Some([
            row.what.clone(),
            count.to_string(),
            median,
            p90,
            worst,
            target,
            most,
            self.beside(row),
            elsewhere,
        ])
    }

    /// The row that a row is compared with, if it was measured in the same run.
    fn beside(&self, row: &Row) -> String {
        let other = self.rows.iter().find(|other| other.what == row.beside);
        let figures = other.and_then(|other| Some((other, Figures::of(&other.samples)?)));
        figures.map_or_else(
            || "-".to_owned(),
            |(other, figures)| {
                let [median, worst] = [figures.median, figures.worst].map(|value| other.unit.text(value));
                format!("{}: {median} / {worst}", other.what)
            },
        )
    }
}

/// What the rows of clients mean.
const NOTE: &str = "\
Faults: until a client is well again that makes a new connection each 5 ms, from another node, through the Service: from the
last prompt answer before the first trouble to the first one after the last. Kept: one connection with a request each 5 ms,
made anew at once when it is cut and after 250 ms without an answer; the longest time between an answer and the next.
Target: median / worst, or one of both. Elsewhere: the State Controller's thesis (Kubernetes 1.12) and what it says of OpenSAF;
\"here\": an earlier run on such a cluster (2026-11-20, n = 7, nodes n = 1), mitou being an active/standby operator.

";

/// The sample in the middle of the latencies of all answers; `None` without one. Unit: seconds.
pub fn median_latency(samples: &[crate::app::Sample]) -> Option<f64> {
    let answered = samples.iter().filter(|sample| sample.is_ok());
    let latencies: Vec<f64> = answered.map(|sample| sample.elapsed().as_secs_f64()).collect();
    Figures::of(&latencies).map(|figures| figures.median)
}

/// How much more one time is than another. Unit: percent.
pub fn percent_more(time: Duration, than: Duration) -> f64 {
    (time.as_secs_f64() / than.as_secs_f64() - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::{Outcome, Sample};

    fn row(what: &str, beside: &str, samples: &[f64]) -> Row {
        Row { what: what.to_owned(), beside: beside.to_owned(), samples: samples.to_vec(), ..Row::default() }
    }

    #[test]
    fn a_row_stands_beside_the_one_that_it_is_compared_with() {
        let report = Report {
            rows: vec![
                row("plain", "", &[0.5, 0.7]),
                Row {
                    target: Target::Both(0.04, 0.1),
                    elsewhere: "thesis 1.2 s",
                    failed: vec![0, 3],
                    ..row("pair", "plain", &[0.02, 0.01, f64::INFINITY])
                },
                row("nobody measured this", "plain", &[]),
            ],
            lines: vec!["a line".to_owned()],
            answers: 9,
            ..Report::default()
        };
        let text = report.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>().join(" "),
            "plain 2 600 ms 700 ms 700 ms - - - -"
        );
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>().join(" "),
            "pair 3 20 ms never never 40 ms / 100 ms, missed 3 plain: 600 ms / 700 ms thesis 1.2 s"
        );
        assert!(!text.contains("nobody measured this"));
        assert!(text.ends_with("a line\ntwo actives: 0 of 9 answers (target 0)"), "{text}");
    }

    #[test]
    fn only_answers_have_a_latency() {
        let sample = |start_ns, end_ns, outcome| Sample { start_ns, end_ns, outcome, pod: String::new() };
        let samples = [
            sample(0, 1_000, Outcome::Ok),
            sample(0, 3_000, Outcome::Ok),
            sample(0, 9_000, Outcome::Refused),
        ];
        assert_eq!(median_latency(&samples), Some(2e-6));
        assert_eq!(median_latency(&samples[2..]), None);
    }

    #[test]
    fn units_are_printed_with_the_digits_that_mean_something() {
        let more = percent_more(Duration::from_secs(9), Duration::from_secs(10));
        assert_eq!(Unit::Percent.text(more), "-10.0 %");
        assert_eq!(Unit::Percent.text(2.04), "+2.0 %");
        assert_eq!(Unit::Microseconds.text(0.000_123_4), "0.123 ms");
        assert_eq!(Unit::Seconds.text(12.345), "12.35 s");
    }
}
