//! Faults of one site: its clients are well, something goes wrong, and they are well again.

use std::time::Duration;

use tokio::time::sleep;

use super::Course;
use super::evidence::{Client, Evidence};
use super::faults::Fault;
use super::report::{Report, Row};
use super::site::{Serving, Site};
use super::target::Target;
use super::workload::Kind;
use crate::app::Outage;
use crate::app::outage::second_trouble;
use crate::bench::Error;
use crate::bench::client::{Habit, Visit};
use crate::bench::rounds::Bench;

/// Pause before each fault: kube-proxy programs the first change after a second of quiet at once.
pub const QUIET: Duration = Duration::from_millis(1_500);
/// How long clients go on after the switch: kube-proxy programs the last change within its minimum sync period of 1 s.
pub const PROXY_WITHIN: Duration = Duration::from_secs(2);

/// After such a time without trouble, more of it is said to have come later. No takeover pauses for so long.
const APART: Duration = Duration::from_millis(200);

/// What a client of a pair with the timing profile `Fast` should see at most when a node loses power, the second that kube-proxy may
/// take included.
const FAST_NODE_LOST: Target = Target::Both(0.75, 1.9);

/// What is broken, and what its rows are called and compared with.
pub struct Trial<'a> {
    /// What is broken.
    pub site: &'a Site,
    /// First word of the names of its rows.
    pub title: &'static str,
}

/// What the two clients saw.
struct Seen {
    fresh: Outage,
    kept: Outage,
}

impl Trial<'_> {
    /// Name of the row of a fault.
    pub fn row(&self, fault: Fault) -> String {
        format!("{}: {}", self.title, fault.title())
    }

    /// Measures one fault, if it is wanted: two rows.
    pub async fn measure(&self, course: &Course<'_>, (fault, rounds): (Fault, u16), report: &mut Report) {
        let what = self.row(fault);
        if !course.options.wants(&what) {
            return;
        }
        let has_target = self.site.kind().has_agents();
        let is_fast = self.site.kind() == Kind::FastPairs;
        let default = format!("pair: {}", fault.title());
        let beside = match (is_fast, has_target) {
            // What the profile makes of the same fault.
            (true, _) => &*default,
            (false, true) => fault.beside(),
            (false, false) => "",
        };
        let kept = |name: &str| if name.is_empty() { String::new() } else { format!("{name}, kept") };
        let mut fresh = Row { what: what.clone(), beside: beside.to_owned(), ..Row::default() };
        let mut lasting = Row { what: kept(&what), beside: kept(beside), ..Row::default() };
        if has_target {
            fresh.target = fault.target();
            lasting.target = fault.target_kept();
            fresh.elsewhere = fault.elsewhere();
        }
        if is_fast && fault == Fault::NodeLost {
            (fresh.target, lasting.target) = (FAST_NODE_LOST, FAST_NODE_LOST);
        }
        course
            .repeat((&what, rounds), &mut report.failures, async |number| {
                let seen = self.round(course, (fault, &format!("{what}, {number}"))).await;
                let stale = course.watch.seen().1;
                if stale > 0 {
                    eprintln!("\n  {stale} stale answers after round {number} of `{what}`");
                }
                let Seen { fresh: one, kept: other } = seen?;
                fresh.saw(&one);
                lasting.saw_kept(&other);
                Ok(())
            })
            .await;
        course.keep(report, [fresh, lasting]);
    }

    async fn round(&self, course: &Course<'_>, (fault, name): (Fault, &str)) -> Result<Seen, Error> {
        let (bench, site) = (course.bench, self.site);
        let come = async |active: &Serving| {
            let evidence = Evidence::of(course)?;
            let (fresh, kept) = tokio::try_join!(
                site.visit_with(bench, active, Habit::Fresh),
                site.visit_with(bench, active, Habit::Kept)
            )?;
            Ok((evidence, fresh, kept))
        };
        let go = async |(evidence, fresh, kept): (Option<Evidence<'_>>, Visit, Visit)| {
            let told = tokio::try_join!(fresh.end(), kept.end())?;
            if let Some(evidence) = evidence {
                let ((fresh, of_fresh), (kept, of_kept)) = &told;
                evidence.end(name, &[Client::fresh(fresh, of_fresh), Client::kept(kept, of_kept)])?;
            }
            Ok(told)
        };
        let ((fresh, samples), (kept, _)) = befall((bench, site), fault, (come, go)).await?;
        if let Some(told) = second_trouble(&samples, APART) {
            eprintln!("\n  well again, and then at {told}");
        }
        Ok(Seen { fresh, kept })
    }
}

/// Lets clients come to a settled site, lets a fault befall it, and lets them go when it is over; returns what they tell.
/// Whatever was broken is put right in any case.
///
/// # Errors
/// Why one of these could not be done.
pub async fn befall<V, T>(
    (bench, site): (&Bench, &Site),
    fault: Fault,
    (come, go): (impl AsyncFnOnce(&Serving) -> Result<V, Error>, impl AsyncFnOnce(V) -> Result<T, Error>),
) -> Result<T, Error> {
    let active = site.settled().await?;
    if site.kind().is_replicated() {
        site.in_sync().await?;
    }
    sleep(QUIET).await;
    let prepared = fault.prepare(bench, site, &active).await?;
    site.forget_visits(bench, &active).await?;
    let visits = come(&active).await?;
    let done = fault.strike(bench, site, (&active, &prepared)).await;
    let over = match &done {
        Ok(()) => fault.over(site, &active).await,
        Err(_) => Ok(()),
    };
    sleep(PROXY_WITHIN).await;
    let told = go(visits).await;
    fault.undo(bench, site, (&active, &prepared)).await?;
    done?;
    over?;
    told
}
