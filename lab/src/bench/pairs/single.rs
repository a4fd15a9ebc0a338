//! One pair: what it costs, and then every fault; and one with the timing profile `Fast` beside it.

use bps_runtime::error::chain;

use super::faults::Fault;
use super::report::Report;
use super::site::{NAME, Site};
use super::trial::Trial;
use super::workload::Kind;
use super::{Course, away, hogs, idle, latency};
use crate::bench::{Error, NAMESPACE};

/// First words of the rows.
const TITLE: &str = "pair";
const FAST_TITLE: &str = "fast pair";

/// Faults for which the profile makes a difference, and one for which it should make none.
const FAST_FAULTS: [Fault; 2] = [Fault::ApplicationKilled, Fault::NodeLost];

/// Measures what is wanted.
///
/// # Errors
/// `Request` or `Find` if a pair does not come up or stays.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    let others = [
        idle::WHAT.to_owned(),
        latency::WHAT.to_owned(),
        title_of(TITLE, hogs::WHAT),
        title_of(TITLE, away::WHAT),
    ];
    if wants(course, TITLE, &Fault::ALL) || others.iter().any(|what| course.options.wants(what)) {
        let site = build(course, Kind::Pairs).await?;
        // Before anything was broken: a Pod whose node comes back has another address, which takes its time to be known.
        for measured in [
            idle::run(course, &site, report).await,
            latency::run(course, &site, report).await,
            hogs::run(course, &site, TITLE, report).await,
        ] {
            note(report, measured);
        }
        break_it(course, &Trial { site: &site, title: TITLE }, &Fault::ALL, report).await;
        // Last, as nodes and Pods may have been given up meanwhile.
        let measured = away::run(course, &site, TITLE, report).await;
        note(report, measured);
        site.remove().await?;
    }

    if wants(course, FAST_TITLE, &FAST_FAULTS) || course.options.wants(&title_of(FAST_TITLE, hogs::WHAT)) {
        let site = build(course, Kind::FastPairs).await?;
        let measured = hogs::run(course, &site, FAST_TITLE, report).await;
        note(report, measured);
        break_it(course, &Trial { site: &site, title: FAST_TITLE }, &FAST_FAULTS, report).await;
        site.remove().await?;
    }
    Ok(())
}

fn title_of(title: &str, what: &str) -> String {
    format!("{title}: {what}")
}

fn wants(course: &Course<'_>, title: &str, faults: &[Fault]) -> bool {
    faults.iter().any(|fault| course.options.wants(&title_of(title, fault.title())))
}

async fn build(course: &Course<'_>, kind: Kind) -> Result<Site, Error> {
    let site = Site::build(&course.bench.client, NAMESPACE, course.blueprint(kind, NAME, 2)).await?;
    site.settled().await?;
    Ok(site)
}

fn note(report: &mut Report, measured: Result<(), Error>) {
    if let Err(error) = measured {
        report.failures.push(chain(&error));
    }
}

async fn break_it(course: &Course<'_>, trial: &Trial<'_>, faults: &[Fault], report: &mut Report) {
    for fault in faults {
        trial.measure(course, (*fault, course.options.rounds), report).await;
    }
}
