//! One pair, told by a sink of every answer: what it costs, and then every fault.

use super::faults::Fault;
use super::report::Report;
use super::site::{NAME, Site};
use super::trial::Trial;
use super::watch::Watch;
use super::workload::{Blueprint, Kind};
use super::{Course, hogs, idle, latency};
use crate::bench::{Error, NAMESPACE, chain};

/// First word of the rows.
const TITLE: &str = "pair";

/// Measures what is wanted.
///
/// # Errors
/// `Request` or `Find` if the pair does not come up or stays.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    let faults = Fault::ALL.map(|fault| format!("{TITLE}: {}", fault.title()));
    let others = [idle::WHAT, latency::WHAT, hogs::WHAT].map(str::to_owned);
    if !faults.iter().chain(&others).any(|what| course.options.wants(what)) {
        return Ok(());
    }
    let lookout = course.lookout()?;
    let watch = Watch::start(&course.bench.cluster, &lookout).await?;
    let blueprint = Blueprint {
        kind: Kind::Pairs,
        name: NAME,
        replicas: 2,
        sink: Some(watch.address),
        lookout: Some(lookout),
    };
    let site = Site::build(&course.bench.client, NAMESPACE, blueprint).await?;
    site.settled().await?;
    // Before anything was broken: a Pod whose node comes back has another address, which takes its time to be known.
    for measured in [
        idle::run(course, &site, report).await,
        latency::run(course, &site, report).await,
        hogs::run(course, &site, report).await,
    ] {
        if let Err(error) = measured {
            report.failures.push(chain(&error));
        }
    }
    let trial = Trial { site: &site, title: TITLE, watch: Some(&watch) };
    for fault in Fault::ALL {
        trial.measure(course, (fault, course.options.rounds), report).await;
    }
    let removed = site.remove().await;
    let (answers, stale) = watch.seen();
    report.answers += answers;
    report.stale += stale;
    if stale > 0 {
        course.note(report, watch.describe());
        report
            .failures
            .push(format!("two actives: {stale} of {answers} answers were of one that had been followed"));
    }
    removed
}
