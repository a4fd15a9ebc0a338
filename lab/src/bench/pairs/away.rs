//! A pair whose API server is away for ten minutes, and whose application is killed in the ninth: nobody notices the first, and
//! the second costs what it costs while the API server answers.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until};

use super::Course;
use super::faults::{API_SERVER, Fault};
use super::report::{Report, Row};
use super::site::Site;
use super::trial::{PROXY_WITHIN, QUIET};
use crate::app::Outage;
use crate::bench::Error;
use crate::bench::client::{Habit, visit};
use crate::bench::rounds::Bench;
use crate::faults::Aim;
use crate::ready;

/// What is measured, behind the name of the site.
pub const WHAT: &str = "API server away 10 min, application killed in the ninth";

/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(600);
/// When the application is killed: in the middle of the ninth minute.
const KILLED_AFTER: Duration = Duration::from_secs(510);
/// How long one client runs: less than the longest visit.
const VISIT: Duration = Duration::from_secs(120);
/// How long the client of the kill goes on after it. No takeover takes so long.
const AFTER: Duration = Duration::from_secs(10);
/// How long the API server may take to come back.
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// What the clients saw.
struct Seen {
    /// Until the kill, and after it.
    undisturbed: Vec<Outage>,
    /// Of the kill.
    killed: Outage,
}

/// Measures, if it is wanted: a row about the kill, a line about the rest.
///
/// # Errors
/// `Request`, `Find`, `Machine`.
pub async fn run(course: &Course<'_>, site: &Site, title: &str, report: &mut Report) -> Result<(), Error> {
    let what = format!("{title}: {WHAT}");
    if !course.options.wants(&what) {
        return Ok(());
    }
    eprintln!("{what:<60} {} s", AWAY.as_secs());
    let bench = course.bench;
    let active = site.settled().await?;
    sleep(QUIET).await;
    site.forget_visits(bench, &active).await?;
    let (node, target) = site.visited(bench, &active).await?;
    let aim = bench.cluster.aim_below_init(&site.aim(&active.pod))?;

    bench.cluster.stop(API_SERVER, true)?;
    let seen = watch(bench, &node, target, &aim).await;
    bench.cluster.start(API_SERVER)?;
    let is_back = ready::api_server(&bench.client, BACK_WITHIN).await;
    is_back.map_err(|_| Error::Find { what: "the API server again".to_owned() })?;
    site.settled().await?;

    let Seen { undisturbed, killed } = seen?;
    course.note(report, format!("{title}: {}", line(&undisturbed)));
    let mut row = Row { what, target: Fault::ApplicationKilled.target(), ..Row::default() };
    row.beside = format!("{title}: {}", Fault::ApplicationKilled.title());
    row.saw(&killed);
    course.keep(report, [row]);
    Ok(())
}

async fn watch(bench: &Bench, node: &str, target: SocketAddr, aim: &Aim) -> Result<Seen, Error> {
    let client = async || visit(bench, node, (Habit::Fresh, target)).await;
    let began = Instant::now();
    let mut undisturbed = Vec::new();
    let mut stay_until = async |until: Instant| -> Result<(), Error> {
        while Instant::now() < until {
            let client = client().await?;
            sleep_until(until.min(Instant::now() + VISIT)).await;
            undisturbed.push(client.end().await?.0);
        }
        Ok(())
    };
    stay_until(began + KILLED_AFTER).await?;
    let struck = client().await?;
    sleep(QUIET).await;
    aim.fire(Signal::KILL)?;
    sleep(PROXY_WITHIN + AFTER).await;
    let killed = struck.end().await?.0;
    stay_until(began + AWAY).await?;
    Ok(Seen { undisturbed, killed })
}

fn line(undisturbed: &[Outage]) -> String {
    let sum = |count: fn(&Outage) -> usize| undisturbed.iter().map(count).sum::<usize>();
    let (failed, requests) = (sum(|outage| outage.failed), sum(|outage| outage.requests));
    let minutes = AWAY.as_secs() / 60;
    format!(
        "API server away {minutes} min: {failed} of {requests} requests failed (target 0) beside those of the kill"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_what_all_clients_saw() {
        let seen = |requests, failed| Outage { requests, failed, ..Outage::default() };
        assert_eq!(
            line(&[seen(10, 1), seen(20, 2)]),
            "API server away 10 min: 3 of 30 requests failed (target 0) beside those of the kill"
        );
    }
}
