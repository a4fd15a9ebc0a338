//! Five pairs of one group, whose actives' applications are killed at once.
//!
//! `outages` is pure.

use std::time::Duration;

use bps_api::PairStatus;
use rustix::process::Signal;
use tokio::time::sleep;

use super::Course;
use super::report::{Report, Row};
use super::site::Site;
use super::target::Target;
use super::trial::{PROXY_WITHIN, QUIET};
use super::workload::Kind;
use crate::app::{Outage, Sample};
use crate::bench::client::Visit;
use crate::bench::{Error, NAMESPACE};

/// First words of the rows.
const WHAT: &str = "5 actives killed at once:";
/// Pairs.
const PAIRS: usize = 5;
/// Clients of the one Service; together they reach each pair every 12 ms or so, and leave the machine to the Pods.
const CLIENTS: usize = 2;
/// What the last of them should take. The client of a Service is well again when all pairs are; who waits for an answer of
/// each also waits for the next request that kube-proxy leads there.
const TARGET: Target = Target::Worst(0.15);
/// How long the next active may take to be known.
const RECOVERED_WITHIN: Duration = Duration::from_secs(30);

/// The Pods of a pair before the fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Who acts.
    pub active: String,
    /// Who should follow.
    pub standby: String,
}

impl From<PairStatus> for Pair {
    fn from(PairStatus { active, standby, .. }: PairStatus) -> Self {
        Self { active, standby }
    }
}

/// What one round measured.
struct Seen {
    /// Of each pair, from the last answer of the one to the first of the other.
    outages: Vec<Option<Duration>>,
    /// Of the Service.
    service: Outage,
}

/// Measures, if it is wanted: three rows.
///
/// # Errors
/// `Request` or `Find` if the pairs do not come up or stay.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    if !course.options.wants(WHAT) {
        return Ok(());
    }
    let blueprint = course.blueprint(Kind::Pairs, "crowd", 2 * PAIRS);
    let site = Site::build(&course.bench.client, NAMESPACE, blueprint).await?;
    let beside = "pair: application killed".to_owned();
    let row = |what: &str| Row { what: format!("{WHAT} {what}"), beside: beside.clone(), ..Row::default() };
    let elsewhere = "thesis up to 5.810 s";
    let mut last = Row { target: TARGET, elsewhere, ..row("until the last pair answers") };
    let mut each = row("each pair");
    let mut service = Row { target: TARGET, ..row("until their Service is well again") };
    let rounds = course.options.rounds;
    course
        .repeat((WHAT, rounds), &mut report.failures, async |_| {
            let seen = round(course, &site).await?;
            let times =
                || seen.outages.iter().map(|outage| outage.map_or(f64::INFINITY, |it| it.as_secs_f64()));
            last.samples.push(times().fold(0.0, f64::max));
            each.samples.extend(times());
            service.saw(&seen.service);
            Ok(())
        })
        .await;
    course.keep(report, [last, each, service]);
    site.remove().await
}

async fn round(course: &Course<'_>, site: &Site) -> Result<Seen, Error> {
    let serving = site.settled().await?;
    let pairs: Vec<Pair> = site.pairs().await?.into_iter().map(Pair::from).collect();
    sleep(QUIET).await;
    let cluster = &course.bench.cluster;
    let aims = pairs.iter().map(|pair| cluster.aim_below_init(&site.aim(&pair.active)).map_err(Error::from));
    let aims = aims.collect::<Result<Vec<_>, _>>()?;
    site.forget_visits(course.bench, &serving).await?;
    let visits = (0..CLIENTS).map(|_| site.visit(course.bench, &serving));
    let visits: Vec<Visit> = futures::future::try_join_all(visits).await?;
    let struck_ns = realtime_ns();
    for aim in &aims {
        aim.fire(Signal::KILL)?;
    }
    let over = tokio::time::timeout(RECOVERED_WITHIN, taken_over(site, &pairs)).await;
    sleep(PROXY_WITHIN).await;
    let ended = futures::future::try_join_all(visits.into_iter().map(Visit::end)).await?;
    over.map_err(|_| Error::Find { what: "other actives".to_owned() })??;
    let samples: Vec<Sample> = ended.into_iter().flat_map(|(_, samples)| samples).collect();
    Ok(Seen { outages: outages(&samples, &pairs, struck_ns), service: Outage::from_samples(&samples) })
}

/// Waits until every standby acts.
///
/// # Errors
/// `Request`.
pub async fn taken_over(site: &Site, before: &[Pair]) -> Result<(), Error> {
    loop {
        let now = site.pairs().await?;
        if before.iter().all(|pair| now.iter().any(|it| it.active == pair.standby)) {
            return Ok(());
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Now, as clients note it.
pub fn realtime_ns() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or_default()
}

/// Of each pair, the time from the last answer of its active to the first of its standby; `None` if one of them is
/// missing.
pub fn outages(samples: &[Sample], pairs: &[Pair], struck_ns: u64) -> Vec<Option<Duration>> {
    let answers = |pod: &str| {
        let of_pod = samples.iter().filter(move |sample| sample.is_ok() && sample.pod == pod);
        of_pod.map(|sample| (sample.start_ns, sample.end_ns)).collect::<Vec<_>>()
    };
    let outage = |pair: &Pair| {
        // The old active may serve again much later, if it takes over in its turn.
        let before = answers(&pair.active).into_iter().filter(|(start, _)| *start <= struck_ns);
        let after = answers(&pair.standby).into_iter().filter(|(start, _)| *start >= struck_ns);
        let (last, first) = (before.map(|it| it.1).max()?, after.map(|it| it.1).min()?);
        Some(Duration::from_nanos(first.saturating_sub(last)))
    };
    pairs.iter().map(outage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Outcome;

    fn sample(start_ns: u64, outcome: Outcome, pod: &str) -> Sample {
        Sample { start_ns, end_ns: start_ns + 1, outcome, pod: pod.to_owned() }
    }

    fn ok(start_ns: u64, pod: &str) -> Sample {
        sample(start_ns, Outcome::Ok, pod)
    }

    #[test]
    fn the_outage_of_each_pair_is_from_its_own_last_answer_to_its_own_first() {
        let pair = |active: &str, standby: &str| Pair { active: active.into(), standby: standby.into() };
        let samples = [
            ok(10, "a"),
            ok(20, "c"),
            ok(90, "a"),
            sample(105, Outcome::Refused, ""),
            ok(140, "b"),
            ok(150, "b"),
            ok(300, "d"),
            ok(900, "c"),
            ok(95, "e"),
        ];
        let pairs = [pair("a", "b"), pair("c", "d"), pair("e", "f")];
        let expected = [Some(Duration::from_nanos(50)), Some(Duration::from_nanos(280)), None];
        assert_eq!(outages(&samples, &pairs, 100), expected);
    }
}
