//! One pair: what it costs, and then every fault.

use bps_runtime::error::chain;

use super::faults::Fault;
use super::report::Report;
use super::site::{NAME, Site};
use super::trial::Trial;
use super::workload::Kind;
use super::{Course, hogs, idle, latency};
use crate::bench::{Error, NAMESPACE};

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
    let site = Site::build(&course.bench.client, NAMESPACE, course.blueprint(Kind::Pairs, NAME, 2)).await?;
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
    let trial = Trial { site: &site, title: TITLE };
    for fault in Fault::ALL {
        trial.measure(course, (fault, course.options.rounds), report).await;
    }
    site.remove().await
}
