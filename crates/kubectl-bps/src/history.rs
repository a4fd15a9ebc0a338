//! What happened to a group or a set, as its status remembers it.

use bps_api::{
    BackupPodSetStatus, Conversion, ConversionOutcome, FailoverReport, HAGroupStatus, Takeover, Tier,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt as _;
use serde::Serialize;

use super::arguments::NamedArguments;
use super::cluster::{Cluster, Subject};
use super::table::Table;
use super::{Error, document};

/// The takeovers of a group; the conversions and the last failover of a set.
///
/// # Errors
/// `Usage` or `Refused` if the name means two objects or none.
pub async fn run(cluster: &Cluster, wanted: &NamedArguments) -> Result<String, Error> {
    match cluster.subject(&wanted.name).await? {
        Subject::Group(group) => {
            let status = group.status.clone().unwrap_or_default();
            let history = GroupHistory { takeovers: &status.takeovers };
            document::formed(wanted.output, &history, || of_group(&group.name_any(), &status))
        }
        Subject::Set(set) => {
            let status = set.status.clone().unwrap_or_default();
            let BackupPodSetStatus { conversions, last_failover, .. } = &status;
            let history = SetHistory { conversions, last_failover: last_failover.as_ref() };
            document::formed(wanted.output, &history, || of_set(&set.name_any(), &status))
        }
    }
}

/// What happened to a group, the latest last.
#[derive(Serialize)]
struct GroupHistory<'a> {
    takeovers: &'a [Takeover],
}

/// What happened to a set, the latest last.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SetHistory<'a> {
    conversions: &'a [Conversion],
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failover: Option<&'a FailoverReport>,
}

/// The takeovers of a group, the latest last.
pub fn of_group(name: &str, status: &HAGroupStatus) -> String {
    if status.takeovers.is_empty() {
        return format!("HAGroup {name}: the operator has seen no takeover.\n");
    }
    [takeovers(&status.takeovers).text(), phases(&status.takeovers).text()].join("\n")
}

pub(super) fn takeovers(takeovers: &[Takeover]) -> Table {
    let mut table = Table::new(&["TIME", "PAIR", "FROM", "TO", "EPOCH", "BY", "REASON"]);
    for Takeover { pair, from, to, epoch, by, time, reason, phases: _ } in takeovers {
        let reason = if reason.is_empty() { "-" } else { reason };
        table.add(0, &[&moment(time), pair, from, to, &epoch_text(epoch), by, reason]);
    }
    table
}

/// The same takeovers by their phases, each as the time since the takeover began.
fn phases(takeovers: &[Takeover]) -> Table {
    let heads = ["TIME", "TO", "DETECTED", "FENCED", "LEASE", "PROMOTED", "PUBLISHED", "REPAIRED"];
    let mut table = Table::new(&heads);
    for Takeover { to, time, phases, .. } in takeovers {
        let moment = moment(time);
        let times = phases.each().map(|(_, time)| milliseconds(time.as_ref()));
        let mut cells = vec![moment.as_str(), to];
        cells.extend(times.iter().map(String::as_str));
        table.add(0, &cells);
    }
    table
}

fn milliseconds(time: Option<&i32>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{time} ms"))
}

/// An epoch as logs have it: the term, and how often it was handed over.
pub(super) fn epoch_text(wire: &str) -> String {
    wire.parse::<u64>().map_or_else(|_| wire.to_owned(), |epoch| bps_protocol::Epoch::from(epoch).to_string())
}

/// Conversions of a set, the latest last, and its last failover.
pub fn of_set(name: &str, status: &BackupPodSetStatus) -> String {
    let mut text = if status.conversions.is_empty() {
        format!("BackupPodSet {name}: no Pod was converted.\n")
    } else {
        conversions(&status.conversions).text()
    };
    if let Some(failover) = &status.last_failover {
        text.push('\n');
        text.push_str(&failover_table(failover).text());
    }
    text
}

pub(super) fn conversions(conversions: &[Conversion]) -> Table {
    let mut table = Table::new(&["STARTED", "POD", "FROM", "TO", "REASON", "OUTCOME", "TOOK"]);
    for Conversion { pod, from, to, reason, started, finished, outcome } in conversions {
        let took = finished.as_ref().map(|finished| {
            let milliseconds = finished.0.duration_since(started.0).as_millis();
            format!("{milliseconds} ms")
        });
        let outcome = match outcome {
            ConversionOutcome::InProgress => "InProgress",
            ConversionOutcome::Succeeded => "Succeeded",
            ConversionOutcome::Failed => "Failed",
            ConversionOutcome::Superseded => "Superseded",
        };
        let (from, to) = (tier(*from), tier(*to));
        table.add(0, &[&moment(started), pod, from, to, reason, outcome, took.as_deref().unwrap_or("-")]);
    }
    table
}

fn failover_table(failover: &FailoverReport) -> Table {
    let FailoverReport {
        time,
        lost_pod,
        successor,
        reason,
        detected_after_milliseconds,
        exposed_after_milliseconds,
        ready_after_milliseconds,
    } = failover;
    let mut table = Table::new(&[
        "LAST FAILOVER",
        "LOST",
        "SUCCESSOR",
        "REASON",
        "DETECTED AFTER",
        "EXPOSED AFTER",
        "READY AFTER",
    ]);
    let [detected, exposed, ready] =
        [detected_after_milliseconds, exposed_after_milliseconds, ready_after_milliseconds]
            .map(|time| milliseconds(time.as_ref()));
    let lost = if lost_pod.is_empty() { "-" } else { lost_pod };
    let successor = successor.as_deref().unwrap_or("-");
    table.add(0, &[&moment(time), lost, successor, reason, &detected, &exposed, &ready]);
    table
}

fn moment(time: &MicroTime) -> String {
    format!("{:.3}", time.0)
}

fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Primary => "primary",
        Tier::HotBackup => "hotbackup",
        Tier::ColdBackup => "coldbackup",
    }
}
