//! What a pair asks of the API server whose application ends soon after each start.

use std::time::Duration;

use bps_api::PAIR_CRASH_LOOPING;
use tokio::time::sleep;

use super::Course;
use super::report::Report;
use super::site::{NAME, Site};
use super::workload::Kind;
use crate::bench::requests;
use crate::bench::{Error, NAMESPACE};

/// Name of the line.
pub const WHAT: &str = "pair: crash loop";
/// How long it is watched once the group tells of it. Unit: minutes. Both sides start the application every 60 s in the last ones.
const MINUTES: usize = 5;
/// Writes in a minute that the last minutes should have at most.
const WRITES_MAX: f64 = 12.0;

/// Measures, if it is wanted.
///
/// # Errors
/// `Request`, or `Find` if the pair does not come so far or stays.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    if !course.options.wants(WHAT) {
        return Ok(());
    }
    eprintln!("{WHAT:<60} {MINUTES} min");
    let client = &course.bench.client;
    let site = Site::build(client, NAMESPACE, course.blueprint(Kind::EndingPairs, NAME, 2)).await?;
    site.until("a pair that is told to end again and again", async || {
        let is_told = site.pairs().await?.iter().any(|pair| pair.state == PAIR_CRASH_LOOPING);
        Ok(is_told.then_some(()))
    })
    .await?;
    let mut each = Vec::new();
    let mut before = requests::writes(client).await?;
    for _ in 0..MINUTES {
        sleep(Duration::from_secs(60)).await;
        let now = requests::writes(client).await?;
        each.push(now - before);
        before = now;
    }
    site.remove().await?;
    course.note(report, line(&each));
    Ok(())
}

fn line(each: &[f64]) -> String {
    let texts: Vec<String> = each.iter().map(|count| format!("{count:.0}")).collect();
    let is_missed = each.last().is_some_and(|last| *last > WRITES_MAX);
    let missed = if is_missed { ", missed" } else { "" };
    format!(
        "{WHAT}: API write requests in each minute after it was told: {} (in the last one at most {WRITES_MAX}{missed})",
        texts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_minute_is_judged() {
        let words = "pair: crash loop: API write requests in each minute after it was told:";
        assert_eq!(line(&[40.0, 12.0]), format!("{words} 40, 12 (in the last one at most 12)"));
        assert_eq!(line(&[40.0, 13.0]), format!("{words} 40, 13 (in the last one at most 12, missed)"));
    }
}
