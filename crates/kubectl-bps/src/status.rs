//! Shows what is there, as a tree or as an object.

use bps_api::{
    BackupPodSet, Condition, ConditionStatus, CrashLoop, HAGroup, RedundancyModel, StateLag, keys,
};
use jiff::Timestamp;

use super::arguments::StatusArguments;
use super::cluster::{Cluster, NO_LEASES, Subject};
use super::domains::{Grouping, domains};
use super::history::{conversions, epoch_text, takeovers};
use super::report::{
    GroupReport, PairReport, PodReport, Readiness, Report, SetReport, TierReport, group_report, set_report,
    told_report,
};
use super::table::{Table, indented};
use super::{Error, document};

/// Most takeovers or conversions that are shown; `history` shows all.
const LATEST_MAX: usize = 3;

/// Shows one name, or everything in a namespace or in all.
///
/// # Errors
/// `Usage` or `Refused` if the name means two objects or none.
pub async fn run(cluster: &Cluster, wanted: &StatusArguments) -> Result<String, Error> {
    let namespace = Some(cluster.namespace.as_str()).filter(|_| !wanted.all_namespaces);
    let (groups, sets) = match wanted.name.as_deref().map(|name| cluster.subject(name)) {
        None => (cluster.list(namespace, "").await?, cluster.list(namespace, "").await?),
        Some(subject) => match subject.await? {
            Subject::Group(group) => (vec![*group], vec![]),
            Subject::Set(set) => (vec![], vec![*set]),
        },
    };
    let grouping = wanted.by.as_deref().map(Grouping::parse);
    let report = read(cluster, namespace, (groups, sets), grouping.as_ref()).await?;
    document::formed(wanted.output, &report, || {
        if report.groups.is_empty() && report.sets.is_empty() {
            let place = namespace
                .map_or_else(|| "in any namespace".to_owned(), |name| format!("in namespace {name}"));
            return format!("No HAGroup and no BackupPodSet {place}.\n");
        }
        text(&report, Timestamp::now())
    })
}

async fn read(
    cluster: &Cluster,
    namespace: Option<&str>,
    (groups, sets): (Vec<HAGroup>, Vec<BackupPodSet>),
    grouping: Option<&Grouping>,
) -> Result<Report, Error> {
    let mut report = Report::default();
    for group in &groups {
        report.groups.push(match cluster.group_objects(group).await {
            Ok(objects) => group_report(group, &objects),
            Err(Error::Refused(note)) if note == NO_LEASES => told_report(group, note),
            Err(error) => return Err(error),
        });
    }
    if !sets.is_empty() {
        let pods = cluster.list(namespace, keys::LABEL_SET).await?;
        // Who may not read them is not warned.
        let budgets = cluster.list(namespace, "").await.unwrap_or_default();
        report.sets = sets.iter().map(|set| set_report(set, &pods, &budgets)).collect();
        if let Some(grouping) = grouping {
            let nodes = if grouping.needs_nodes() { cluster.nodes().await? } else { Vec::new() };
            for set in &mut report.sets {
                set.domains = domains(set, &pods, &nodes, grouping);
            }
        }
    }
    Ok(report)
}

/// The report as trees, one for each group and set.
pub fn text(report: &Report, now: Timestamp) -> String {
    let groups = report.groups.iter().map(|group| group_text(group, now));
    let sets = report.sets.iter().map(|set| set_text(set, now));
    groups.chain(sets).collect::<Vec<_>>().join("\n")
}

fn group_text(group: &GroupReport, now: Timestamp) -> String {
    let GroupReport {
        namespace,
        name,
        state,
        note,
        pairs,
        spares,
        unreadable_leases,
        conditions,
        takeovers: all,
    } = group;
    let mut table = Table::new(&["NAME", "STATE", "NODE", "READY", "EPOCH"]);
    table.add(0, &[&format!("HAGroup {namespace}/{name}"), said(state)]);
    for PairReport { number: _, name, state, sync, lag, crash_loop, epoch, pods } in pairs {
        let ends = crash_loop.as_ref().map(crash_text).unwrap_or_default();
        let state = &format!("{state}{ends}");
        let lag = lag.as_ref().map(|lag| lag_text(lag, now)).unwrap_or_default();
        let state = if sync.is_empty() { state.clone() } else { format!("{state}, {sync}{lag}") };
        table.add(1, &[&format!("pair {name}"), &state, "", "", &epoch_text(epoch)]);
        for pod in pods {
            add_pod(&mut table, pod);
        }
    }
    for lease in unreadable_leases {
        table.add(1, &[&format!("pair {lease}"), "Unreadable"]);
    }
    if !spares.is_empty() {
        table.add(1, &["spares", &spares.len().to_string()]);
        for pod in spares {
            add_pod(&mut table, pod);
        }
    }
    let latest = &all[all.len().saturating_sub(LATEST_MAX)..];
    let note =
        note.as_ref().map(|note| format!("\n  As the operator told it: {note}.\n")).unwrap_or_default();
    [table.text(), note, conditions_text(conditions), latest_text(&takeovers(latest))].concat()
}

fn crash_text(CrashLoop { pod, ends, exit_code, last_lines }: &CrashLoop) -> String {
    let saying = last_lines.last().map(|line| format!(", \"{line}\"")).unwrap_or_default();
    format!(" ({pod}: {ends} times, exit code {exit_code}{saying})")
}

fn lag_text(StateLag { entries, bytes: _, since, reason, path }: &StateLag, now: Timestamp) -> String {
    let seconds = now.duration_since(since.0).as_secs().max(0);
    let reason = reason.as_ref().map(|reason| format!(", {reason}")).unwrap_or_default();
    let path = path.as_ref().map(|path| format!(" {path}")).unwrap_or_default();
    format!(" ({} entries, {} s{reason}{path})", grouped(*entries), grouped(seconds))
}

/// The number with commas.
fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let comma = |(index, digit): (usize, char)| {
        let is_first_of_three = index > 0 && (digits.len() - index).is_multiple_of(3);
        is_first_of_three.then_some(',').into_iter().chain([digit])
    };
    digits.char_indices().flat_map(comma).collect()
}

fn set_text(set: &SetReport, now: Timestamp) -> String {
    let SetReport {
        namespace,
        name,
        state,
        redundancy,
        redundancy_model,
        tiers,
        domains,
        warnings,
        conditions,
        last_failover: _,
        last_drill,
        conversions: all,
    } = set;
    let mut table = Table::new(&["NAME", "STATE", "NODE", "READY"]);
    table.add(0, &[&format!("BackupPodSet {namespace}/{name}"), said(state)]);
    for domain in domains {
        table.add(1, &[&domain.name, &domain.counts()]);
        for pod in &domain.pods {
            add_pod(&mut table, pod);
        }
    }
    for TierReport { role, wanted, pods } in tiers.iter().filter(|_| domains.is_empty()) {
        if *wanted > 0 || !pods.is_empty() {
            table.add(1, &[role, &format!("{} of {wanted}", pods.len())]);
            for pod in pods {
                add_pod(&mut table, pod);
            }
        }
    }
    let latest = &all[all.len().saturating_sub(LATEST_MAX)..];
    let redundancy = redundancy_text(redundancy, *redundancy_model);
    let warnings =
        warnings.iter().map(|warning| format!("\n  Warning: {warning}\n")).collect::<Vec<_>>().concat();
    let drill = last_drill.as_ref().map(|drill| format!("\n  Last drill: {}\n", drill.words(now)));
    let drill = drill.unwrap_or_default();
    let conversions = latest_text(&conversions(latest));
    [table.text(), redundancy, warnings, conditions_text(conditions), conversions, drill].concat()
}

/// What the counts amount to, and what is promised.
fn redundancy_text(redundancy: &str, promised: Option<RedundancyModel>) -> String {
    if redundancy.is_empty() {
        return String::new();
    }
    let promised = match promised {
        None => "",
        Some(RedundancyModel::None) => " (promised: None)",
        Some(RedundancyModel::NWayActive) => " (promised: NWayActive)",
        Some(RedundancyModel::NPlusM) => " (promised: NPlusM)",
        Some(RedundancyModel::TwoN) => " (promised: TwoN)",
        Some(RedundancyModel::NWay) => " (promised: NWay, which is refused)",
    };
    format!("\n  Redundancy: {redundancy}{promised}\n")
}

fn said(state: &str) -> &str {
    if state.is_empty() { "not seen by the operator yet" } else { state }
}

fn add_pod(table: &mut Table, pod: &PodReport) {
    let PodReport { name, part, node, readiness, is_fenced, is_terminating } = pod;
    let is_gone = *readiness == Readiness::Gone;
    let marks = [(*is_fenced, "fenced"), (*is_terminating, "terminating"), (is_gone, "gone")];
    let marks = marks.into_iter().filter(|(holds, _)| *holds).map(|(_, mark)| mark);
    let state: Vec<&str> = std::iter::once(part.as_str()).chain(marks).collect();
    let ready = match readiness {
        Readiness::Ready => "yes",
        Readiness::AtGate => "at gate",
        Readiness::Silent => "no answer",
        Readiness::Unknown => "?",
        Readiness::NotReady | Readiness::Gone => "no",
    };
    table.add(2, &[name, &state.join(", "), node.as_deref().unwrap_or("-"), ready]);
}

fn conditions_text(conditions: &[Condition]) -> String {
    let mut table = Table::new(&["CONDITION", "STATUS", "REASON", "MESSAGE"]);
    for Condition { r#type, status, reason, message, last_transition_time: _, observed_generation: _ } in
        conditions
    {
        let status = match status {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        };
        table.add(0, &[r#type, status, reason, message]);
    }
    latest_text(&table)
}

fn latest_text(table: &Table) -> String {
    if table.is_empty() { String::new() } else { format!("\n{}", indented(&table.text())) }
}
