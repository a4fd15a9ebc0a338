//! Lets the standby of a pair take over from its active, and says when it did.

use std::time::{Duration, Instant};

use bps_api::{HAGroup, keys};
use bps_observe::group::{GroupObjects, see_group};
use bps_protocol::{AgentId, BootTime, Epoch};
use bps_wire::uid::format_uid;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;

use super::arguments::SwitchoverArguments;
use super::cluster::Cluster;
use super::history::epoch_text;
use super::pair::{PairNow, pair_now, pairs_now};
use super::{Error, document};

/// How often the Lease and the slice are read while a switchover is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a switchover is waited for unless the user says otherwise, besides the time that the application may take to end.
const WAIT: Duration = Duration::from_secs(30);

/// A pair that can switch over.
#[derive(Clone, Debug)]
struct Ready {
    pair: PairNow,
    from: AgentId,
    to: AgentId,
    /// How long the application of the active may take to end.
    grace: Duration,
}

/// What became of an order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Handover {
    pair: String,
    from: String,
    to: String,
    /// Of the tenure that ends.
    epoch: String,
    /// What is known of the tenure after it, if it was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<Done>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    epoch: String,
    milliseconds: u64,
}

/// As `status` and `history` tell epochs, and `HA_EPOCH`.
fn decimal(epoch: Epoch) -> String {
    u64::from(epoch).to_string()
}

impl Handover {
    fn text(&self) -> String {
        let Self { pair, from, to, epoch, done } = self;
        match done {
            None => format!("{pair}: {from} was told to hand over to {to}\n"),
            Some(Done { epoch: next, milliseconds }) => {
                let [epoch, next] = [epoch, next].map(|wire| epoch_text(wire));
                format!("{pair}: {from} handed over to {to} in {milliseconds} ms (epoch {epoch} -> {next})\n")
            }
        }
    }
}

/// Orders the switchover, and waits for it if asked.
///
/// # Errors
/// `Usage` if it is not clear which pair is meant, `Refused` if the pair cannot switch over, `Overdue` if it did not in
/// time.
pub async fn run(cluster: &Cluster, wanted: &SwitchoverArguments) -> Result<String, Error> {
    let group = cluster.group(&wanted.group).await?;
    let objects = cluster.group_objects(&group).await?;
    let pairs = pairs_now(&objects.leases, &objects.slices);
    let pair = choose(&wanted.group, pairs, wanted.pair)?;
    let ready = ready(&group, &objects, pair)?;
    let began = Instant::now();
    order(cluster, &ready.pair, ready.pair.epoch).await?;
    let mut handover = Handover {
        pair: ready.pair.name.clone(),
        from: ready.pair.name_of(ready.from),
        to: ready.pair.name_of(ready.to),
        epoch: decimal(ready.pair.epoch),
        done: None,
    };
    if wanted.wait {
        let timeout = wanted.timeout.unwrap_or(WAIT + ready.grace);
        let after = await_other(cluster, &ready, (began, timeout)).await?;
        handover.to = after.active.map(|active| after.name_of(active)).unwrap_or_default();
        let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        handover.done = Some(Done { epoch: decimal(after.epoch), milliseconds });
    }
    document::formed(wanted.output, &handover, || handover.text())
}

fn choose(group: &str, mut pairs: Vec<PairNow>, wanted: Option<u32>) -> Result<PairNow, Error> {
    let numbers: Vec<String> = pairs.iter().map(|pair| pair.number.to_string()).collect();
    let numbers = numbers.join(", ");
    match wanted {
        _ if pairs.is_empty() => Err(Error::Refused(format!(
            "group {group} has no pair yet; `kubectl bps plan hag/{group}` says what it waits for"
        ))),
        None if pairs.len() > 1 => Err(Error::Usage(format!(
            "group {group} has several pairs: say which one by --pair, one of {numbers}"
        ))),
        None => Ok(pairs.remove(0)),
        Some(number) => pairs.into_iter().find(|pair| pair.number == number).ok_or_else(|| {
            Error::Usage(format!("group {group} has no pair {number}: choose one of {numbers}"))
        }),
    }
}

/// Whether somebody acts who can hand over to somebody.
fn ready(group: &HAGroup, objects: &GroupObjects, pair: PairNow) -> Result<Ready, Error> {
    let name = &pair.name;
    let Some(from) = pair.active else {
        return Err(Error::Refused(format!(
            "nobody acts in {name}, so nobody can hand over; `kubectl bps status` shows its Pods"
        )));
    };
    let seen = see_group(group, objects, BootTime::default());
    let pods = seen.group.pods;
    let is_there =
        |id: AgentId| pods.iter().any(|pod| pod.id == id && !pod.is_leaving && pod.address.is_some());
    let other = pair.members().into_iter().find(|member| *member != from);
    let active = pair.name_of(from);
    let Some(to) = other.filter(|other| is_there(*other)) else {
        let lost = other.map(|other| format!(" ({} is gone or does not run)", pair.name_of(other)));
        return Err(Error::Refused(format!(
            "{name} has no standby{}, so {active} cannot hand over; wait until the pair is complete",
            lost.unwrap_or_default()
        )));
    };
    if pair.is_fenced(to) {
        let standby = pair.name_of(to);
        return Err(Error::Refused(format!(
            "the standby {standby} of {name} is fenced; run `kubectl bps fence off {standby}` first"
        )));
    }
    let end = seen.pod_ends.iter().find(|end| end.id == from);
    Ok(Ready { pair, from, to, grace: end.map_or(Duration::ZERO, |end| end.grace) })
}

/// Only the tenure of this epoch obeys, so that an order never ends a later one.
async fn order(cluster: &Cluster, pair: &PairNow, epoch: Epoch) -> Result<(), Error> {
    let patch = json!({"metadata": {
        // Not a Lease that was made anew in the meantime.
        "uid": format_uid(pair.record.group),
        "annotations": {(keys::ANNOTATION_HA_SWITCH_OVER): u64::from(epoch).to_string()},
    }});
    let parameters =
        PatchParams { field_manager: Some(keys::FIELD_MANAGER_PLUGIN.into()), ..PatchParams::default() };
    let what = format!("order the switchover in Lease {}", pair.name);
    let patched = cluster.api::<Lease>().patch(&pair.name, &parameters, &Patch::Merge(patch)).await;
    patched.map(drop).map_err(Error::request(what))
}

/// Waits until another Pod acts. An active that began another tenure in the meantime is told again. The order is given, so that
/// an API server that does not answer for a while, or refuses to, changes nothing about it; without the Lease it is gone.
async fn await_other(
    cluster: &Cluster,
    ready: &Ready,
    (began, timeout): (Instant, Duration),
) -> Result<PairNow, Error> {
    let mut ordered = ready.pair.epoch;
    let mut trouble = None;
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        let seen = tokio::time::timeout(left, insist(cluster, ready, &mut ordered)).await;
        let Ok(seen) = seen else { return Err(overdue(ready, timeout, trouble.as_ref())) };
        match seen {
            Ok(Some(now)) if now.active.is_some_and(|active| active != ready.from) => return Ok(now),
            Ok(_) => trouble = None,
            Err(error) if error.is_absence() => return Err(error),
            Err(error) => trouble = Some(error),
        }
        tokio::time::sleep(LOOK_EVERY.min(left)).await;
    }
}

/// Looks once, and tells an active that began another tenure again.
async fn insist(cluster: &Cluster, ready: &Ready, ordered: &mut Epoch) -> Result<Option<PairNow>, Error> {
    let now = look(cluster, &ready.pair.name).await?;
    if let Some(now) = now.as_ref().filter(|now| now.active == Some(ready.from) && now.epoch > *ordered) {
        order(cluster, now, now.epoch).await?;
        *ordered = now.epoch;
    }
    Ok(now)
}

fn overdue(ready: &Ready, timeout: Duration, trouble: Option<&Error>) -> Error {
    let trouble = trouble.map(|error| format!("; last: {}", error.chain())).unwrap_or_default();
    let (pair, from) = (&ready.pair.name, ready.pair.name_of(ready.from));
    let is_level = ready.pair.record.level.count().is_none_or(|count| count > 1);
    let hint = if is_level {
        "its application may still be ending, for which it has the grace period of its Pod; else look at the log of its agent"
    } else {
        "its standby lacks state, see `kubectl bps status`"
    };
    Error::Overdue(format!(
        "no other Pod acts in {pair} after {} s; the order stays in its Lease until {from} ends this tenure, \
         unless it is taken back by `kubectl annotate lease {pair} {order}-`; {hint}{trouble}",
        timeout.as_secs_f32(),
        order = keys::ANNOTATION_HA_SWITCH_OVER,
    ))
}

async fn look(cluster: &Cluster, name: &str) -> Result<Option<PairNow>, Error> {
    let lease =
        cluster.api::<Lease>().get(name).await.map_err(Error::request(format!("read Lease {name}")))?;
    let slice = cluster.api::<EndpointSlice>().get_opt(name).await;
    let slice = slice.map_err(Error::request(format!("read EndpointSlice {name}")))?;
    Ok(pair_now(&lease, slice.as_ref()))
}
