//! Two more Pods are asked for at the moment at which the active's application is killed.

use rustix::process::Signal;
use tokio::time::sleep;

use super::Course;
use super::report::{Report, Row};
use super::site::Site;
use super::trial::{PROXY_WITHIN, QUIET};
use super::workload::Kind;
use crate::app::Outage;
use crate::bench::{Error, NAMESPACE};

/// Name of the row.
const WHAT: &str = "pair: application killed, scale-out by 2 at once";
/// Pods of the pair, and two more.
const REPLICAS: [usize; 2] = [2, 4];

/// Measures, if it is wanted.
///
/// # Errors
/// `Request` or `Find` if the pair does not come up or stays.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    if !course.options.wants(WHAT) {
        return Ok(());
    }
    let blueprint = course.blueprint(Kind::Pairs, "growth", REPLICAS[0]);
    let site = Site::build(&course.bench.client, NAMESPACE, blueprint).await?;
    let mut row = Row {
        what: WHAT.to_owned(),
        target: "as without",
        beside: "pair: application killed".to_owned(),
        ..Row::default()
    };
    course
        .repeat((WHAT, course.options.rounds), &mut report.failures, async |_| {
            row.saw(&round(course, &site).await?);
            Ok(())
        })
        .await;
    course.keep(report, [row]);
    site.remove().await
}

async fn round(course: &Course<'_>, site: &Site) -> Result<Outage, Error> {
    let active = site.settled().await?;
    sleep(QUIET).await;
    let aim = course.bench.cluster.aim_below_init(&site.aim(&active.pod))?;
    let visit = site.visit(course.bench, &active).await?;
    let grown = site.scale(REPLICAS[1]).await;
    let struck = aim.fire(Signal::KILL).map_err(Error::from);
    let over = site.recovered(&active).await;
    sleep(PROXY_WITHIN).await;
    let seen = visit.end().await;
    site.scale(REPLICAS[0]).await?;
    grown?;
    struck?;
    over?;
    Ok(seen?.0)
}
