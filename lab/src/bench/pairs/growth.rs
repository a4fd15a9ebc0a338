//! Two more Pods are asked for at the moment at which the active's application is killed.

use rustix::process::Signal;
use tokio::time::sleep;

use super::Course;
use super::report::{Report, Row};
use super::site::Site;
use super::target::Target;
use super::trial::{PROXY_WITHIN, QUIET};
use super::workload::Kind;
use crate::app::Outage;
use crate::bench::client::Habit;
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
    let row = |kept: &str| Row {
        what: format!("{WHAT}{kept}"),
        target: Target::AsBeside,
        beside: format!("pair: application killed{kept}"),
        ..Row::default()
    };
    let (mut fresh, mut kept) = (Row { elsewhere: "thesis 1.635-1.701 s", ..row("") }, row(", kept"));
    course
        .repeat((WHAT, course.options.rounds), &mut report.failures, async |_| {
            let [one, other] = round(course, &site).await?;
            fresh.saw(&one);
            kept.saw_kept(&other);
            Ok(())
        })
        .await;
    course.keep(report, [fresh, kept]);
    site.remove().await
}

/// What a client with new connections saw, and one that keeps its own.
async fn round(course: &Course<'_>, site: &Site) -> Result<[Outage; 2], Error> {
    let active = site.settled().await?;
    sleep(QUIET).await;
    let aim = course.bench.cluster.aim_below_init(&site.aim(&active.pod))?;
    site.forget_visits(course.bench, &active).await?;
    let (fresh, kept) = tokio::try_join!(
        site.visit_with(course.bench, &active, Habit::Fresh),
        site.visit_with(course.bench, &active, Habit::Kept)
    )?;
    let grown = site.scale(REPLICAS[1]).await;
    let struck = aim.fire(Signal::KILL).map_err(Error::from);
    let over = site.recovered(&active).await;
    sleep(PROXY_WITHIN).await;
    let seen = tokio::try_join!(fresh.end(), kept.end());
    site.scale(REPLICAS[0]).await?;
    grown?;
    struck?;
    over?;
    let ((fresh, _), (kept, _)) = seen?;
    Ok([fresh, kept])
}
