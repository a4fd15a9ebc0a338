//! A counter whose increments are acknowledged once both Pods of its pair have them: what that adds to an increment, and what
//! is lost when the active fails.

use rustix::process::Signal;
use tokio::time::sleep;

use super::Course;
use super::report::{Report, Row, Unit, median_latency};
use super::site::Site;
use super::trial::{PROXY_WITHIN, QUIET};
use super::workload::{Blueprint, Kind};
use crate::app::{Outage, Sample};
use crate::bench::client::{Habit, unreported};
use crate::bench::{Error, NAMESPACE};

/// First words of the rows.
const WHAT: &str = "state:";
/// One of how many rounds is made of what no fault is needed for.
const ONE_OF: u16 = 2;

/// What a client knows of its increments.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    /// Those of new connections.
    increments: Vec<Sample>,
    acknowledged: usize,
    /// Acknowledged, and not in the counter at the end.
    lost: usize,
}

/// Measures, if it is wanted: four rows, and a line about what was lost.
///
/// # Errors
/// `Request` or `Find` if a counter does not come up or stays.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    if !course.options.wants(WHAT) {
        return Ok(());
    }
    let build = async |kind, name, replicas| -> Result<Site, Error> {
        let blueprint = Blueprint { kind, name, replicas, sink: None, lookout: Some(course.lookout()?) };
        Site::build(&course.bench.client, NAMESPACE, blueprint).await
    };
    let alone = build(Kind::Counter, "counter-alone", 1).await?;
    let pair = build(Kind::CountingPairs, "counter", 2).await?;
    overhead(course, (&alone, &pair), report).await;
    takeovers(course, &pair, report).await;
    alone.remove().await?;
    pair.remove().await
}

async fn overhead(course: &Course<'_>, (alone, pair): (&Site, &Site), report: &mut Report) {
    let row = |what: &str| Row { what: format!("{WHAT} {what}"), unit: Unit::Microseconds, ..Row::default() };
    let (mut plain, mut replicated) = (row("an increment of a counter alone"), row("an increment of a pair"));
    let mut added = row("added to an increment");
    replicated.beside.clone_from(&plain.what);
    course
        .repeat((WHAT, course.options.one_of(ONE_OF)), &mut report.failures, async |number| {
            let mut order = [(0, alone), (1, pair)];
            if number.is_multiple_of(2) {
                order.reverse();
            }
            let mut medians = [0.0; 2];
            for (index, site) in order {
                let counted = count(course, site, async |_| Ok(())).await?;
                medians[index] = median_latency(&counted.increments).ok_or_else(unreported)?;
            }
            let [one, other] = medians;
            plain.samples.push(one);
            replicated.samples.push(other);
            added.samples.push(other - one);
            Ok(())
        })
        .await;
    course.keep(report, [plain, replicated, added]);
}

async fn takeovers(course: &Course<'_>, pair: &Site, report: &mut Report) {
    let mut row = Row { what: format!("{WHAT} application killed"), target: "40 / 100 ms", ..Row::default() };
    let (mut acknowledged, mut lost) = (0, 0);
    course
        .repeat((&row.what.clone(), course.options.rounds), &mut report.failures, async |_| {
            let counted = count(course, pair, async |active| {
                let aim = course.bench.cluster.aim_below_init(&pair.aim(&active.pod))?;
                aim.fire(Signal::KILL)?;
                pair.recovered(active).await?;
                sleep(PROXY_WITHIN).await;
                Ok(())
            })
            .await?;
            row.saw(&Outage::from_samples(&counted.increments));
            acknowledged += counted.acknowledged;
            lost += counted.lost;
            Ok(())
        })
        .await;
    let rounds = row.samples.len();
    course.keep(report, [row]);
    let line = format!(
        "{acknowledged} increments were acknowledged while {rounds} actives were killed, {lost} were lost (target 0)"
    );
    course.note(report, line);
}

/// Adds to a counter while something happens to it.
async fn count(
    course: &Course<'_>,
    site: &Site,
    happens: impl AsyncFnOnce(&super::site::Serving) -> Result<(), Error>,
) -> Result<Counted, Error> {
    let active = site.settled().await?;
    if site.kind().has_agents() {
        site.in_sync().await?;
    }
    sleep(QUIET).await;
    site.forget_visits(course.bench, &active).await?;
    let visit = site.visit_with(course.bench, &active, Habit::Counting).await?;
    let happened = happens(&active).await;
    let told = visit.report().await;
    happened?;
    read(&told?).ok_or_else(unreported)
}

/// Understands what the client of a counter prints; `None` if the counter did not say at the end what it has.
fn read(told: &str) -> Option<Counted> {
    let increments = told.lines().filter_map(|line| line.strip_prefix("fresh,")).map(str::parse);
    let (acknowledged, lost) =
        told.lines().find_map(|line| line.strip_prefix("# acknowledged="))?.split_once(" lost=")?;
    Some(Counted {
        increments: increments.collect::<Result<_, _>>().ok()?,
        acknowledged: acknowledged.parse().ok()?,
        lost: lost.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Outcome;

    #[test]
    fn what_is_not_known_to_be_there_is_not_called_kept() {
        let told =
            "connection,start_ns,end_ns,outcome,pod\nfresh,1,3,ok,web-1\nkept,2,3,ok,web-1\n# fresh \n";
        let sample = Sample { start_ns: 1, end_ns: 3, outcome: Outcome::Ok, pod: "web-1".to_owned() };
        let counted = Counted { increments: vec![sample], acknowledged: 2, lost: 1 };
        assert_eq!(read(&format!("{told}# acknowledged=2 lost=1\n")), Some(counted));
        assert_eq!(read(&format!("{told}# acknowledged=2 lost=unknown\n")), None);
        assert_eq!(read(told), None);
    }
}
