//! Says which Pods shall not act: their uids stand in the Lease of their pair.

use std::collections::BTreeSet;

use bps_api::keys;
use bps_observe::slim::SlimPod;
use bps_protocol::AgentId;
use bps_wire::uid::{format_uid, parse_uid};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;

use super::arguments::{FenceArguments, FenceVerb, Format};
use super::cluster::Cluster;
use super::pair::{PairNow, pair_now};
use super::table::Table;
use super::{Error, document};

/// How often a write is repeated that met another version of the Lease. An idle pair is written rarely, and each attempt
/// takes milliseconds.
const ATTEMPTS_MAX: usize = 8;

/// Fences, unfences or lists.
///
/// # Errors
/// `Refused` if a Pod is in no pair; then nothing was written. `Partly` if a write fails after others.
pub async fn run(cluster: &Cluster, verb: &FenceVerb) -> Result<String, Error> {
    match verb {
        FenceVerb::List { all_namespaces, output } => list(cluster, *all_namespaces, *output).await,
        FenceVerb::On(wanted) => change(cluster, wanted, true).await,
        FenceVerb::Off(wanted) => change(cluster, wanted, false).await,
    }
}

async fn change(cluster: &Cluster, wanted: &FenceArguments, is_on: bool) -> Result<String, Error> {
    for pod in &wanted.pods {
        find(cluster, pod, is_on).await?;
    }
    let mut outcomes = Outcomes::default();
    for pod in &wanted.pods {
        match fence(cluster, pod, is_on, &mut outcomes).await {
            Ok(()) => {}
            Err(error) if outcomes.pods.is_empty() => return Err(error),
            Err(error) => return Err(error.after(outcomes.formed(wanted.output)?)),
        }
    }
    outcomes.formed(wanted.output)
}

/// What became of the Pods that were to be fenced or unfenced, in the order in which they were named; one entry for each pair.
#[derive(Serialize, Default)]
struct Outcomes {
    pods: Vec<Outcome>,
}

/// What became of one of them.
#[derive(Serialize)]
struct Outcome {
    namespace: String,
    pair: String,
    pod: String,
    uid: String,
    fenced: bool,
    /// It was not so before.
    changed: bool,
    #[serde(skip)]
    text: String,
}

impl Outcomes {
    fn formed(&self, format: Option<Format>) -> Result<String, Error> {
        document::formed(format, self, || self.pods.iter().map(|outcome| outcome.text.as_str()).collect())
    }
}

/// All Pods that shall not act.
#[derive(Serialize)]
struct Fences {
    fences: BTreeSet<Fence>,
}

/// A Pod that shall not act.
#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Fence {
    namespace: String,
    pair: String,
    /// Its name, unless it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    part: &'static str,
    uid: String,
}

async fn list(cluster: &Cluster, is_everywhere: bool, output: Option<Format>) -> Result<String, Error> {
    let namespace = Some(cluster.namespace.as_str()).filter(|_| !is_everywhere);
    let leases: Vec<Lease> = cluster.list(namespace, keys::LABEL_GROUP).await?;
    let fences = leases.iter().filter_map(|lease| Some((lease, pair_now(lease, None)?))).flat_map(fences_of);
    let fences = Fences { fences: fences.collect() };
    document::formed(output, &fences, || fences.text())
}

fn fences_of((lease, pair): (&Lease, PairNow)) -> Vec<Fence> {
    let fence = |id: &AgentId| Fence {
        namespace: lease.namespace().unwrap_or_default(),
        pair: pair.name.clone(),
        pod: pair.record.directory.get(id).map(|member| member.pod.clone()),
        part: part(&pair, *id),
        uid: format_uid(id.0),
    };
    pair.record.orders.fenced.iter().map(fence).collect()
}

impl Fences {
    fn text(&self) -> String {
        let mut table = Table::new(&["NAMESPACE", "PAIR", "POD", "PART", "UID"]);
        for Fence { namespace, pair, pod, part, uid } in &self.fences {
            table.add(0, &[namespace, pair, pod.as_deref().unwrap_or("<gone>"), part, uid]);
        }
        if table.is_empty() { "No Pod is fenced.\n".to_owned() } else { table.text() }
    }
}

/// The part of a Pod in its pair, in a word.
pub(super) fn part(pair: &PairNow, id: AgentId) -> &'static str {
    if pair.active == Some(id) {
        "active"
    } else if pair.record.lease.members.contains(&id) {
        "standby"
    } else if pair.joining() == Some(id) {
        "joining"
    } else {
        "none"
    }
}

/// A standby of several actives shall act for none of them.
async fn fence(cluster: &Cluster, pod: &str, is_on: bool, outcomes: &mut Outcomes) -> Result<(), Error> {
    let before = outcomes.pods.len();
    for Seat { pair, .. } in find(cluster, pod, is_on).await? {
        if let Some(outcome) = fence_in(cluster, &pair.name, pod, is_on).await? {
            outcomes.pods.push(outcome);
        }
    }
    if outcomes.pods.len() == before {
        return Err(Error::Refused(format!("{pod} went from one pair to another meanwhile: try it again")));
    }
    Ok(())
}

/// Returns nothing if the Pod has left the pair meanwhile.
async fn fence_in(cluster: &Cluster, pair: &str, pod: &str, is_on: bool) -> Result<Option<Outcome>, Error> {
    for _ in 0..ATTEMPTS_MAX {
        let seats = find(cluster, pod, is_on).await?;
        let seat = seats.into_iter().find(|seat| seat.pair.name == pair);
        let Some(Seat { pair, pod: id }) = seat else { return Ok(None) };
        let outcome = |changed: bool, text: String| Outcome {
            namespace: cluster.namespace.clone(),
            pair: pair.name.clone(),
            pod: pair.name_of(id),
            uid: format_uid(id.0),
            fenced: is_on,
            changed,
            text,
        };
        if pair.is_fenced(id) == is_on {
            let state = if is_on { "already fenced" } else { "not fenced" };
            return Ok(Some(outcome(false, format!("{}: {pod} is {state}\n", pair.name))));
        }
        match write(cluster, &pair, (id, is_on)).await {
            Ok(()) => return Ok(Some(outcome(true, outlook(&pair, id, is_on)))),
            // An agent or the operator wrote the Lease in the meantime.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Error::request(format!("write Lease {}", pair.name))(error)),
        }
    }
    Err(Error::Refused(format!("the Lease of {pod} changed {ATTEMPTS_MAX} times in a row: try it again")))
}

async fn write(cluster: &Cluster, pair: &PairNow, (id, is_on): (AgentId, bool)) -> Result<(), kube::Error> {
    let mut fenced = pair.record.orders.fenced.clone();
    if is_on {
        fenced.insert(id);
    } else {
        fenced.remove(&id);
    }
    let uids: Vec<String> = fenced.into_iter().map(|id| format_uid(id.0)).collect();
    let uids = (!uids.is_empty()).then(|| uids.join(","));
    let patch = json!({"metadata": {
        "resourceVersion": pair.record.version.0.to_string(),
        "annotations": {(keys::ANNOTATION_HA_FENCED): uids},
    }});
    let parameters =
        PatchParams { field_manager: Some(keys::FIELD_MANAGER_PLUGIN.into()), ..PatchParams::default() };
    cluster.api::<Lease>().patch(&pair.name, &parameters, &Patch::Merge(patch)).await.map(drop)
}

/// A Pod in a pair.
struct Seat {
    pair: PairNow,
    pod: AgentId,
}

/// The pairs that a Pod is in, as the server has them now; at least one.
async fn find(cluster: &Cluster, pod: &str, is_on: bool) -> Result<Vec<Seat>, Error> {
    let found = cluster.api::<SlimPod>().get_opt(pod).await;
    let found = found.map_err(Error::request(format!("read Pod {pod}")))?;
    let uid = found.as_ref().and_then(|found| found.metadata.uid.as_deref()).unwrap_or(pod);
    let id = parse_uid(uid).ok().map(AgentId);
    let leases: Vec<Lease> = cluster.list(Some(&cluster.namespace), keys::LABEL_GROUP).await?;
    let pairs: Vec<PairNow> = leases.iter().filter_map(|lease| pair_now(lease, None)).collect();
    if !is_on {
        // A Pod that is gone, or was made anew under its old name, can still be unfenced.
        let fenced = pairs.iter().filter_map(|pair| {
            let mut fenced = pair.record.orders.fenced.iter();
            let fenced = fenced.find(|fenced| Some(**fenced) == id || pair.name_of(**fenced) == pod)?;
            Some(Seat { pair: pair.clone(), pod: *fenced })
        });
        let fenced: Vec<Seat> = fenced.collect();
        if !fenced.is_empty() {
            return Ok(fenced);
        }
    }
    let seat = |pair: &PairNow| {
        let pod = id.filter(|id| pair.record.directory.contains_key(id))?;
        Some(Seat { pair: pair.clone(), pod })
    };
    let seats: Vec<Seat> = pairs.iter().filter_map(seat).collect();
    if !seats.is_empty() {
        return Ok(seats);
    }
    let namespace = &cluster.namespace;
    let Some(found) = found else {
        return Err(Error::Refused(format!(
            "no Pod is called {pod:?} in namespace {namespace:?}; `kubectl bps status` shows the Pods of groups"
        )));
    };
    let unread = |group: &String| {
        let is_unread = |lease: &&Lease| {
            lease.labels().get(keys::LABEL_GROUP) == Some(group) && pair_now(lease, None).is_none()
        };
        leases.iter().find(is_unread).map(ResourceExt::name_any)
    };
    let group = found.labels().get(keys::LABEL_GROUP);
    Err(Error::Refused(match (group, group.and_then(unread)) {
        (Some(group), Some(lease)) => format!(
            "the Lease {lease} of group {group} cannot be read, so it is not known whether {pod} may act by it: to be sure \
             that it does not, delete the Pod; `kubectl bps status hag/{group}` says what is wrong with the Lease"
        ),
        (Some(group), None) => format!(
            "Pod {pod} is in no pair of group {group}: only members of pairs act, so there is nothing to fence"
        ),
        (None, _) => format!(
            "Pod {pod} belongs to no group: only Pods with an agent can be fenced, see `kubectl bps inject --help`"
        ),
    }))
}

/// What will happen now.
fn outlook(pair: &PairNow, id: AgentId, is_on: bool) -> String {
    let (pod, name) = (pair.name_of(id), &pair.name);
    let other = pair.members().into_iter().find(|member| *member != id);
    let other_name = other.map(|other| pair.name_of(other));
    let is_other_fenced = other.is_some_and(|other| pair.is_fenced(other));
    let is_active = pair.active == Some(id);
    if !is_on {
        let rest = if is_other_fenced { "; the other member is still fenced" } else { "" };
        return format!("{name}: {pod} is not fenced any more: it may act again{rest}\n");
    }
    let then = match (is_active, other_name, is_other_fenced) {
        (true, Some(other), false) => format!("it ends its application, and {other} takes over if it runs"),
        (true, Some(other), true) => {
            format!(
                "it ends its application; {other} is fenced too, so nobody acts until one of them is unfenced"
            )
        }
        (true, None, _) => "it ends its application, and nobody acts until it is unfenced".to_owned(),
        (false, Some(other), false) => {
            format!("it does not take over; if {other} fails, nobody acts until {other} is back")
        }
        (false, Some(other), true) => {
            format!("{other} is fenced too, so nobody acts until one of them is unfenced")
        }
        (false, None, _) => "nobody acts until it is unfenced".to_owned(),
    };
    format!("{name}: {pod} is fenced: {then}\n")
}
