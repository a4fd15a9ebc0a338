//! Measures pairs of active and standby: how long a client is without an answer, fault by fault, beside a Deployment.
//!
//! | module | what it does |
//! |---|---|
//! | [`site`] | the group, its workload, and the workload that they are compared with |
//! | [`faults`] | what goes wrong, and how each fault is done and undone |
//! | [`idle`] | what a pair costs while nothing happens |

use std::io::IsTerminal;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::rounds::Bench;
use super::summary::{Figures, aligned};
use super::{Error, chain, hardware};
use crate::app::outage::Outage;

pub mod faults;
pub mod idle;
pub mod site;

use faults::Fault;
use site::Site;

/// Pause before each fault: kube-proxy programs the first change after a second of quiet at once.
const QUIET: Duration = Duration::from_millis(1_500);

/// How long the client goes on after the switch.
const PROXY_WITHIN: Duration = Duration::from_secs(2);

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Rounds of each fault; a tenth of it, but at least one, of faults that take a minute.
    pub rounds: u16,
    /// How long idling is watched.
    pub idle: Duration,
    /// Where the raw samples go as JSON.
    pub out: Option<std::path::PathBuf>,
    /// Instead of the shipped manifest of the operator.
    pub manifest: Option<String>,
}

/// What clients saw of one fault.
#[derive(Debug, Clone, Default)]
struct Row {
    what: String,
    target: &'static str,
    /// Without an answer. Unit: seconds.
    out: Vec<f64>,
    /// Requests that failed.
    failed: Vec<f64>,
}

/// Measures and prints.
///
/// # Errors
/// `Incomplete` after all other rounds if some failed; see [`enum@Error`].
pub async fn run(options: &Options) -> Result<(), Error> {
    let bench = super::bench(options.manifest.as_deref()).await?;
    let description = hardware::describe(&bench.client).await;
    println!("{description}\n");
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    let plain = Site::deployment(&bench.client, super::NAMESPACE).await?;
    for fault in [Fault::ApplicationKilled, Fault::PodDeleted] {
        rows.push(measure((&bench, &plain), (fault, options.rounds), &mut failures).await);
    }
    plain.remove().await?;
    let pair = Site::pair(&bench.client, super::NAMESPACE).await?;
    // Before anything was broken: a Pod whose node comes back has another address, which takes its time to be known.
    let idle = idle::watch(&bench, &pair, options.idle).await?;
    for fault in Fault::ALL {
        let rounds = if fault.takes_a_minute() { (options.rounds / 10).max(1) } else { options.rounds };
        rows.push(measure((&bench, &pair), (fault, rounds), &mut failures).await);
    }
    pair.remove().await?;
    println!("{}", table(&rows));
    println!("{idle}");
    if let Some(path) = &options.out {
        let samples: Vec<_> =
            rows.iter().map(|row| json!({"what": row.what, "out": row.out, "failed": row.failed})).collect();
        let text = json!({"hardware": description, "rows": samples, "failures": failures}).to_string();
        std::fs::write(path, text).map_err(|source| Error::Write { path: path.clone(), source })?;
    }
    if failures.is_empty() { Ok(()) } else { Err(Error::Incomplete { failed: failures.len() }) }
}

async fn measure(
    (bench, site): (&Bench, &Site),
    (fault, rounds): (Fault, u16),
    failures: &mut Vec<String>,
) -> Row {
    let what = format!("{}: {}", site.title(), fault.title());
    let mut row = Row { what: what.clone(), target: site.target(fault), ..Row::default() };
    for number in 1..=rounds {
        if std::io::stderr().is_terminal() {
            eprint!("\r{what:<60} {number:>3} of {rounds}");
        } else if number == 1 {
            eprint!("{what:<60} {rounds} rounds");
        }
        match round(bench, site, fault).await {
            Ok(outage) => {
                row.out.push(outage.whole_again.map_or(f64::INFINITY, |out| out.as_secs_f64()));
                row.failed.push(f64::from(u32::try_from(outage.failed).unwrap_or(u32::MAX)));
            }
            Err(error) => {
                let text = chain(&error);
                eprintln!("\n  round {number} of `{what}` failed: {text}");
                failures.push(text);
            }
        }
    }
    eprintln!();
    row
}

async fn round(bench: &Bench, site: &Site, fault: Fault) -> Result<Outage, Error> {
    let active = site.settled().await?;
    sleep(QUIET).await;
    let prepared = fault.prepare(bench, site, &active).await?;
    let visit = site.visit(bench, &active).await?;
    let done = fault.strike(bench, site, (&active, &prepared)).await;
    let recovered = match &done {
        Ok(()) => site.recovered(&active).await,
        Err(_) => Ok(()),
    };
    // The last change is programmed within kube-proxy's minimum sync period of 1 s.
    sleep(PROXY_WITHIN).await;
    let seen = visit.end().await;
    // Whatever was broken is put right in any case.
    fault.undo(bench, site, (&active, &prepared)).await?;
    done?;
    recovered?;
    Ok(seen?.0)
}

fn table(rows: &[Row]) -> String {
    let header = ["until a client is well again", "n", "median", "p90", "worst", "target", "failed, most"]
        .map(str::to_owned);
    let mut lines = vec![header];
    for row in rows {
        let Some(Figures { count, median, p90, worst }) = Figures::of(&row.out) else { continue };
        let text = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
        let most = row.failed.iter().copied().fold(0.0, f64::max);
        lines.push([
            row.what.clone(),
            count.to_string(),
            text(median),
            text(p90),
            text(worst),
            row.target.to_owned(),
            format!("{most:.0}"),
        ]);
    }
    aligned(&lines)
        + "A new connection each 5 ms, from a node, through the Service; from the last prompt answer before the first \
           trouble to the first one after the last. Target: median / worst.\n"
}
