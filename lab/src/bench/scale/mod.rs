//! Many sets on hollow nodes, with a control plane and an operator process of their own.
//!
//! The control plane is a real one; Pods run nowhere, so that only the operator and the API server work.
//!
//! | module | what it does |
//! |---|---|
//! | [`place`] | the control plane, and what to start |
//! | [`process`] | the operator as a process of this machine, and what the kernel says about it |
//! | `sets` | makes many sets, breaks some of them, and waits for their successors |
//! | [`foresight`] | asks what would become of a large set, as a person does |
//! | `quiet` | counts the writes that reach the API server while nothing happens |

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::{Error, hardware, summary};
use crate::hollow::{self, Binding, HollowNodes};

pub mod foresight;
pub mod place;
pub mod process;
mod quiet;
mod sets;

use foresight::Foresight;
use place::Place;
use process::Operator;
use sets::Sets;

/// Pods of a set: 2 of each.
const PODS_PER_SET: u32 = 6;
/// Pods of a hollow node, room for conversions included.
const PODS_PER_NODE: u32 = 400;
/// Fewest hollow nodes.
const NODES_MIN: u32 = 3;
/// Most primaries that fail at once.
const FAILURES_MAX: u16 = 100;
/// How long the operator must have nothing to do before it counts as idle.
const SETTLED: Duration = Duration::from_secs(5);

/// How much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Number of sets, each of 2 primaries, 2 hot backups and 2 cold backups.
    pub sets: u16,
    /// How long idling is watched. Unit: seconds.
    pub idle_seconds: u16,
    /// Where the figures go as JSON.
    pub out: Option<PathBuf>,
}

/// What was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// From the creation of the first set until all Pods were in place. Unit: seconds.
    pub created_seconds: f64,
    /// From the start of the process until every set had been looked at and nothing waited. Unit: seconds.
    pub start_seconds: f64,
    /// Looks at sets that took steps after the start; none is planned.
    pub steps_after_start: usize,
    /// Memory then. Unit: MiB.
    pub resident_mebibytes: f64,
    /// Most memory until the end of everything. Unit: MiB.
    pub peak_mebibytes: f64,
    /// Primaries that failed at once.
    pub failures: usize,
    /// From the first failure until the last successor was primary and ready. Unit: seconds.
    pub promoted_seconds: f64,
    /// Writes in a minute while nothing happens, without leases. Unit: per minute.
    pub idle_writes_per_minute: f64,
    /// CPU time in that time. Unit: percent of one core.
    pub idle_cpu_percent: f64,
    /// `kubectl bps whatif` of a set of 100 Pods beside all others, its lists included. Unit: milliseconds.
    pub whatif: summary::Figures,
    /// `kubectl get pods` of all namespaces, in turn with it. Unit: milliseconds.
    pub plain_list: summary::Figures,
}

/// Measures and prints.
///
/// # Errors
/// See [`enum@Error`]; the control plane ends in any case.
pub async fn run(options: &Options) -> Result<(), Error> {
    let place = Place::start().await?;
    let description = hardware::describe(&place.client).await;
    println!("{description}\n");
    let figures = measure(&place, options).await?;
    println!("{}", table(&figures, options));
    if let Some(path) = &options.out {
        let text = json!({"hardware": description, "sets": options.sets, "figures": figures}).to_string();
        std::fs::write(path, text).map_err(|source| Error::Write { path: path.clone(), source })?;
    }
    Ok(())
}

async fn measure(
    Place { client, program, clients, .. }: &Place,
    options: &Options,
) -> Result<Figures, Error> {
    let hollow_failed = |error| Error::Hollow(Box::new(error));
    let pods = u32::from(options.sets) * PODS_PER_SET;
    let count = u16::try_from(pods.div_ceil(PODS_PER_NODE).max(NODES_MIN)).expect("at most 983 nodes");
    let settings = hollow::Options { binding: Binding::FewestPods, ..hollow::Options::default() };
    let nodes = HollowNodes::start(client.clone(), count, settings).await.map_err(hollow_failed)?;
    let sets = Sets { client: client.clone(), count: options.sets };
    eprintln!("{count} hollow nodes, {} sets, {pods} pods", options.sets);

    let first = Operator::start(program, client).await?;
    let created_seconds = sets.create().await?.as_secs_f64();
    eprintln!("created in {created_seconds:.1} s");
    first.settle(SETTLED).await?;
    first.stop().await?;

    let operator = Operator::start(program, client).await?;
    let start_seconds = operator.await_looked_at(u32::from(options.sets)).await?.as_secs_f64();
    let resident_mebibytes = operator.memory("VmRSS")?;
    operator.settle(SETTLED).await?;
    let steps_after_start = operator.handled();
    eprintln!("started in {start_seconds:.2} s");

    let (promoted, victims) = sets.fail(&nodes, options.sets.min(FAILURES_MAX)).await?;
    eprintln!("{} successors in {:.2} s", victims.len(), promoted.as_secs_f64());
    nodes.recover_pods(&victims).await.map_err(hollow_failed)?;
    operator.settle(SETTLED).await?;

    eprintln!("idle for {} s", options.idle_seconds);
    let idle = quiet::watch(client, &operator, Duration::from_secs(options.idle_seconds.into())).await?;
    let peak_mebibytes = operator.memory("VmHWM")?;
    let Foresight { whatif, list: plain_list } = foresight::ask(client, clients).await?;
    operator.stop().await?;
    Ok(Figures {
        created_seconds,
        start_seconds,
        steps_after_start,
        resident_mebibytes,
        peak_mebibytes,
        failures: victims.len(),
        promoted_seconds: promoted.as_secs_f64(),
        idle_writes_per_minute: idle.writes_per_minute,
        idle_cpu_percent: idle.cpu_percent,
        whatif,
        plain_list,
    })
}

fn table(figures: &Figures, options: &Options) -> String {
    let row = |what: &str, value: String, target: &str| [what.to_owned(), value, target.to_owned()];
    let Figures {
        created_seconds,
        start_seconds,
        steps_after_start,
        resident_mebibytes,
        peak_mebibytes,
        failures,
        promoted_seconds,
        idle_writes_per_minute,
        idle_cpu_percent,
        whatif,
        plain_list,
    } = figures;
    let three = |figures: &summary::Figures| {
        let summary::Figures { count: _, median, p90, worst } = figures;
        format!("{median:.0} / {p90:.0} / {worst:.0} ms")
    };
    summary::aligned(&[
        row("", format!("{} sets", options.sets), "target for 1000"),
        row("creation until all pods are in place", format!("{created_seconds:.1} s"), "-"),
        row("operator start -> all observed, nothing waits", format!("{start_seconds:.2} s"), "3 s"),
        row("looks that took steps after the start", steps_after_start.to_string(), "0"),
        row("memory then (VmRSS)", format!("{resident_mebibytes:.0} MiB"), "150 MiB"),
        row("most memory (VmHWM)", format!("{peak_mebibytes:.0} MiB"), "-"),
        row(
            &format!("{failures} primaries fail at once -> all successors promoted"),
            format!("{promoted_seconds:.2} s"),
            "2 s",
        ),
        row("idle: writes besides leases", format!("{idle_writes_per_minute:.1} /min"), "0"),
        row("idle: CPU", format!("{idle_cpu_percent:.2} % of a core"), "< 1 %"),
        row(
            &format!("kubectl-bps whatif, 100 pods, median / p90 / worst of {}", whatif.count),
            three(whatif),
            "200 ms",
        ),
        row(&format!("kubectl get pods -A, the same {} times", plain_list.count), three(plain_list), "-"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_question_stands_beside_a_plain_list() {
        let of = |median: f64| summary::Figures { count: 20, median, p90: 2.0 * median, worst: 3.0 * median };
        let figures = Figures { whatif: of(50.4), plain_list: of(31.0), ..Figures::default() };
        let table = table(&figures, &Options { sets: 1_000, idle_seconds: 60, out: None });
        let cells = |line: &str| -> Vec<String> {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
        };
        let rows: Vec<Vec<String>> = table.lines().map(cells).collect();
        let [.., whatif, list] = &rows[..] else { panic!("there are rows") };
        assert_eq!(
            whatif[..],
            ["kubectl-bps whatif, 100 pods, median / p90 / worst of 20", "50 / 101 / 151 ms", "200 ms"]
        );
        assert_eq!(list[..], ["kubectl get pods -A, the same 20 times", "31 / 62 / 93 ms", "-"]);
    }
}
