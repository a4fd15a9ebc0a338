//! A counter whose increments are acknowledged once both Pods of its pair have them: what that adds to an increment, and
//! what is lost when the active fails or another one is to act.

use tokio::time::sleep;

use super::Course;
use super::evidence::{Client, Evidence};
use super::faults::Fault;
use super::report::{Report, Row, Unit, median_latency};
use super::site::{Serving, Site};
use super::trial::{QUIET, befall};
use super::workload::Kind;
use crate::app::{Outage, Sample};
use crate::bench::client::{Habit, Visit, unreported};
use crate::bench::{Error, NAMESPACE};

/// First words of the rows.
const WHAT: &str = "state:";
/// Name of the row that all about time is measured for.
const OVERHEAD: &str = "added to an increment";
/// What happens to the active.
const FAULTS: [Fault; 4] =
    [Fault::ApplicationKilled, Fault::ContainerKilled, Fault::SwitchedOver, Fault::PodDeleted];

/// What a client knows of its increments.
#[derive(Debug, PartialEq, Eq)]
pub struct Counted {
    /// Those of new connections.
    pub increments: Vec<Sample>,
    /// Those of a connection that is kept.
    pub kept: Vec<Sample>,
    /// How many were acknowledged, of all connections.
    pub acknowledged: usize,
    /// Acknowledged, and not in the counter at the end.
    pub lost: usize,
}

/// Measures what is wanted: three rows about time, one for each fault, and a line about what was lost.
///
/// # Errors
/// `Request` or `Find` if a counter does not come up or stays.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    let is_overhead_wanted = course.options.wants(&format!("{WHAT} {OVERHEAD}"));
    let faults = FAULTS.map(|fault| (fault, format!("{WHAT} {}", fault.title())));
    let faults: Vec<_> = faults.into_iter().filter(|(_, what)| course.options.wants(what)).collect();
    if faults.is_empty() && !is_overhead_wanted {
        return Ok(());
    }
    let build = async |kind, name, replicas| -> Result<Site, Error> {
        Site::build(&course.bench.client, NAMESPACE, course.blueprint(kind, name, replicas)).await
    };
    let pair = build(Kind::CountingPairs, "counter", 2).await?;
    if is_overhead_wanted {
        let alone = build(Kind::Counter, "counter-alone", 1).await?;
        overhead(course, (&alone, &pair), report).await;
        alone.remove().await?;
    }
    for fault in faults {
        takeovers(course, (&pair, fault), report).await;
    }
    pair.remove().await
}

async fn overhead(course: &Course<'_>, (alone, pair): (&Site, &Site), report: &mut Report) {
    let row = |what: &str| Row { what: format!("{WHAT} {what}"), unit: Unit::Microseconds, ..Row::default() };
    let (mut plain, mut replicated) = (row("an increment of a counter alone"), row("an increment of a pair"));
    let mut added = row(OVERHEAD);
    replicated.beside.clone_from(&plain.what);
    course
        .repeat((WHAT, course.options.rounds), &mut report.failures, async |number| {
            let mut order = [(0, alone), (1, pair)];
            if number.is_multiple_of(2) {
                order.reverse();
            }
            let mut medians = [0.0; 2];
            for (index, site) in order {
                let counted = count(course, site).await?;
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

async fn takeovers(
    course: &Course<'_>,
    (pair, (fault, what)): (&Site, (Fault, String)),
    report: &mut Report,
) {
    let mut row = Row { what: what.clone(), target: fault.target(), ..Row::default() };
    let mut kept = Row { what: format!("{what}, kept"), target: fault.target_kept(), ..Row::default() };
    let (mut acknowledged, mut lost) = (0, 0);
    course
        .repeat((&what, course.options.rounds), &mut report.failures, async |number| {
            let ([fresh, lasting], counted) =
                takeover(course, (pair, fault), &format!("{what}, {number}")).await?;
            row.saw(&fresh);
            kept.saw_kept(&lasting);
            acknowledged += counted.acknowledged;
            lost += counted.lost;
            Ok(())
        })
        .await;
    let rounds = row.samples.len();
    course.keep(report, [row, kept]);
    let line = format!(
        "{what}: {acknowledged} increments were acknowledged in {rounds} rounds, {lost} were lost (target 0)"
    );
    course.note(report, line);
}

/// Adds to a counter whose active fails or is to act no more.
async fn takeover(
    course: &Course<'_>,
    (pair, fault): (&Site, Fault),
    name: &str,
) -> Result<([Outage; 2], Counted), Error> {
    let come = async |active: &Serving| {
        let evidence = Evidence::of(course)?;
        Ok((evidence, pair.visit_with(course.bench, active, Habit::Counting).await?))
    };
    let go = async |(evidence, visit): (Option<Evidence<'_>>, Visit)| {
        let counted = read(&visit.report().await?).ok_or_else(unreported)?;
        let outages = [&counted.increments, &counted.kept].map(|samples| Outage::from_samples(samples));
        if let Some(evidence) = evidence {
            let [fresh, kept] = &outages;
            let clients = [Client::fresh(fresh, &counted.increments), Client::kept(kept, &counted.kept)];
            evidence.end(name, &clients)?;
        }
        Ok((outages, counted))
    };
    befall((course.bench, pair), fault, (come, go)).await
}

/// Adds to a counter while nothing happens to it.
async fn count(course: &Course<'_>, site: &Site) -> Result<Counted, Error> {
    let active = site.settled().await?;
    if site.kind().is_replicated() {
        site.in_sync().await?;
    }
    sleep(QUIET).await;
    site.forget_visits(course.bench, &active).await?;
    let visit = site.visit_with(course.bench, &active, Habit::Counting).await?;
    read(&visit.report().await?).ok_or_else(unreported)
}

/// Understands what the client of a counter prints; `None` if the counter did not say at the end what it has.
pub fn read(told: &str) -> Option<Counted> {
    let of = |client: &str| -> Option<Vec<Sample>> {
        told.lines()
            .filter_map(|line| line.strip_prefix(client))
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()
    };
    let (acknowledged, lost) =
        told.lines().find_map(|line| line.strip_prefix("# acknowledged="))?.split_once(" lost=")?;
    Some(Counted {
        increments: of("fresh,")?,
        kept: of("kept,")?,
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
        let sample = |start_ns| Sample { start_ns, end_ns: 3, outcome: Outcome::Ok, pod: "web-1".to_owned() };
        let counted =
            Counted { increments: vec![sample(1)], kept: vec![sample(2)], acknowledged: 2, lost: 1 };
        assert_eq!(read(&format!("{told}# acknowledged=2 lost=1\n")), Some(counted));
        assert_eq!(read(&format!("{told}# acknowledged=2 lost=unknown\n")), None);
        assert_eq!(read(told), None);
    }
}
