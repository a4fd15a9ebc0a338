//! Measures pairs of active and standby: how long a client is without an answer, fault by fault, beside a Deployment and
//! beside a label that is moved; what pairs cost; and how they come and go.
//!
//! | module | what it does |
//! |---|---|
//! | [`report`] | rows, their figures, and the table; pure |
//! | [`target`] | what a figure should be at most; pure |
//! | [`workload`] | the objects that are measured, as documents; pure |
//! | [`site`] | Pods behind a Service: when they are settled, who serves |
//! | [`switcher`] | moves a label by readiness, as other operators do |
//! | [`watch`] | a sink that is told of every answer of every pair |
//! | [`faults`] | what goes wrong, and how each fault is done and undone |
//! | [`trial`] | one round of a fault, with its clients |
//! | [`evidence`] | what explains a round that took long |
//! | [`baselines`] | faults of what pairs are compared with |
//! | [`single`] | one pair: what follows with a `*` is measured with it |
//! | [`idle`]* | what a pair costs while nothing happens |
//! | [`latency`]* | what the agent adds to a request |
//! | [`hogs`]* | no takeover while the machine has too much to do |
//! | [`away`]* | an API server that is away for ten minutes |
//! | [`crash_loop`] | what an application that ends soon after each start asks of the API server |
//! | [`growth`] | two more Pods while the active fails |
//! | [`state`] | what replicated state costs, and whether any of it is lost |
//! | [`crowd`] | five actives that fail at once |
//! | [`scaling`] | many Pods more, and as many less |
//! | [`assignment`] | who is what in a group of 128 |

use std::io::IsTerminal;
use std::time::Duration;

use bps_runtime::error::chain;
use serde_json::json;

use super::rounds::Bench;
use super::{Error, hardware};

pub mod assignment;
pub mod away;
pub mod baselines;
pub mod crash_loop;
pub mod crowd;
pub mod evidence;
pub mod faults;
pub mod growth;
pub mod hogs;
pub mod idle;
pub mod latency;
pub mod report;
pub mod scaling;
pub mod single;
pub mod site;
pub mod state;
pub mod switcher;
pub mod target;
pub mod trial;
pub mod watch;
pub mod workload;

use evidence::Keeping;
use report::{Report, Row};
use watch::Watch;
use workload::{Blueprint, Kind};

/// Fewest nodes: one for each Pod of a pair, and one for those who look on.
const NODES_MIN: usize = 3;

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Rounds of what is cheap; of what takes longer, a part of them, but at least one.
    pub rounds: u16,
    /// How long idling is watched; twice that with too much to do.
    pub idle: Duration,
    /// Only rows whose names contain one of these words; all if there is none.
    pub only: Vec<String>,
    /// Where the raw samples go as JSON.
    pub out: Option<std::path::PathBuf>,
    /// Which rounds leave more than figures.
    pub keeping: Option<Keeping>,
    /// Instead of the shipped manifest of the operator.
    pub manifest: Option<String>,
}

impl Options {
    /// Whether a row of this name is to be measured.
    pub fn wants(&self, what: &str) -> bool {
        let what = what.to_lowercase();
        self.only.is_empty() || self.only.iter().any(|word| what.contains(&word.to_lowercase()))
    }

    /// One of so many rounds, but at least one.
    pub fn one_of(&self, parts: u16) -> u16 {
        (self.rounds / parts).max(1)
    }
}

/// The means to measure, and what to.
pub struct Course<'a> {
    /// The cluster.
    pub bench: &'a Bench,
    /// What to measure.
    pub options: &'a Options,
    /// The node without Pods, for those who look on.
    pub lookout: &'a String,
    /// Is told there of every answer of every pair.
    pub watch: &'a Watch,
}

/// The node without Pods.
fn lookout(bench: &Bench) -> Result<String, Error> {
    let nodes = bench.cluster.nodes().map_err(|error| Error::FindCluster(Box::new(error)))?;
    let last = nodes.get(NODES_MIN - 1..).and_then(|rest| rest.last());
    let missing = || Error::Find { what: format!("{NODES_MIN} nodes") };
    last.map(|node| node.name.clone()).ok_or_else(missing)
}

impl Course<'_> {
    /// What to make, with a sink and a place for those who look on.
    pub fn blueprint(&self, kind: Kind, name: &'static str, replicas: usize) -> Blueprint {
        // It judges by epochs, and Pods that serve beside each other without agents have none.
        let sink = (kind.has_agents() || kind.counts()).then_some(self.watch.address);
        Blueprint { kind, name, replicas, sink, lookout: Some(self.lookout.clone()) }
    }

    /// Makes rounds; the reasons of those that do not come to their end are kept.
    pub async fn repeat(
        &self,
        (what, rounds): (&str, u16),
        failures: &mut Vec<String>,
        mut round: impl AsyncFnMut(u16) -> Result<(), Error>,
    ) {
        let began = tokio::time::Instant::now();
        for number in 1..=rounds {
            // On a terminal the line counts; in a file there is one line for the row.
            if std::io::stderr().is_terminal() {
                eprint!("\r{what:<60} {number:>3} of {rounds}");
            } else if number == 1 {
                eprint!("{what:<60} {rounds} rounds");
            }
            if let Err(error) = round(number).await {
                let text = format!("round {number} of `{what}`: {}", chain(&error));
                eprintln!("\n  {text}");
                failures.push(text);
            }
        }
        eprintln!("  {:.0} s", began.elapsed().as_secs_f64());
    }

    /// Adds rows, and prints them at once: they are what is left of a run that does not come to its end.
    pub fn keep(&self, report: &mut Report, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            if let Some(cells) = report.line(&row) {
                eprintln!("  {}", cells.join("  "));
            }
            report.rows.push(row);
        }
    }

    /// Adds what the sink was told; two actives are a failure.
    fn judge(&self, report: &mut Report) {
        (report.answers, report.stale) = self.watch.seen();
        let Report { answers, stale, .. } = *report;
        if stale > 0 {
            self.note(report, self.watch.describe());
            let text =
                format!("two actives: {stale} of {answers} answers were of one that had been followed");
            report.failures.push(text);
        }
    }

    /// Adds what is no figure of a row, and prints it at once.
    pub fn note(&self, report: &mut Report, text: String) {
        eprintln!("  {text}");
        report.lines.push(text);
    }
}

/// Measures and prints.
///
/// # Errors
/// `FindCluster`, or `Find` if there are not enough nodes.
/// `Incomplete` after everything else if some rounds failed; see [`enum@Error`].
pub async fn run(options: &Options) -> Result<(), Error> {
    let bench = super::bench(options.manifest.as_deref()).await?;
    let description = hardware::describe(&bench.client).await;
    println!("{description}\n");
    let began = tokio::time::Instant::now();
    let lookout = lookout(&bench)?;
    let watch = Watch::start(&bench.cluster, &lookout).await?;
    let course = Course { bench: &bench, options, lookout: &lookout, watch: &watch };
    let mut report = Report::default();
    for (family, measured) in [
        ("baselines", baselines::run(&course, &mut report).await),
        ("a pair", single::run(&course, &mut report).await),
        ("a crash loop", crash_loop::run(&course, &mut report).await),
        ("a second pair", growth::run(&course, &mut report).await),
        ("a counter", state::run(&course, &mut report).await),
        ("five pairs", crowd::run(&course, &mut report).await),
        ("scaling", scaling::run(&course, &mut report).await),
        ("assignment", assignment::run(&course, &mut report).await),
    ] {
        if let Err(error) = measured {
            report.failures.push(format!("{family}: {}", chain(&error)));
        }
    }
    course.judge(&mut report);
    println!("{}", report.text());
    println!("Measured in {:.1} min.", began.elapsed().as_secs_f64() / 60.0);
    for failure in &report.failures {
        println!("failed: {failure}");
    }
    if let Some(path) = &options.out {
        let text = json!({"hardware": description, "report": report}).to_string();
        std::fs::write(path, text).map_err(|source| Error::Write { path: path.clone(), source })?;
    }
    match report.failures.len() {
        0 => Ok(()),
        failed => Err(Error::Incomplete { failed }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(rounds: u16, only: &[&str]) -> Options {
        let only = only.iter().map(|word| (*word).to_owned()).collect();
        Options { rounds, idle: Duration::from_secs(60), only, out: None, keeping: None, manifest: None }
    }

    #[test]
    fn words_choose_rows_and_no_word_chooses_all() {
        assert!(options(1, &[]).wants("pair: Pod deleted"));
        assert!(options(1, &["pod deleted", "idle"]).wants("pair: Pod deleted"));
        assert!(!options(1, &["idle"]).wants("pair: Pod deleted"));
    }

    #[test]
    fn a_part_of_the_rounds_is_at_least_one() {
        assert_eq!([1, 4, 10].map(|parts| options(20, &[]).one_of(parts)), [20, 5, 2]);
        assert_eq!(options(3, &[]).one_of(10), 1);
    }
}
