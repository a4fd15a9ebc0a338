//! Hands a ticket to a cold Pod, as the operator would, and watches it start.
//!
//! The set is paused meanwhile, so that the operator does not take part.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use backuppodset::tickets::keys::parse_annotation;
use backuppodset::tickets::secret::{DEFAULT_ROTATION_PERIOD, KeyStore};
use bps_api::BackupPodSet;
use bps_api::keys::{ANNOTATION_WAKE_KEYS, CONTAINER_GATE, GATE_PORT, OPERATOR_NAMESPACE};
use bps_wakeup::client;
use bps_wakeup::protocol::{Answer, SignedTicket, TICKET_LIFETIME_SECONDS, Ticket};
use bps_wakeup::uid::Uid;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;

use super::rounds::Bench;
use super::timeline::Entry;
use super::{Error, inside};
use crate::containers;
use crate::machine::clock::Instant;
use crate::stage::Stage;
use crate::stage::act::IN_PLACE_WITHIN;

/// How long the gate may take to answer and to end.
const GATE_WITHIN: Duration = Duration::from_secs(5);

/// How a cold Pod woke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Woken {
    /// From sending the ticket to the end of the gate's process.
    pub gone: Duration,
    /// From sending the ticket until the Pod was Ready.
    pub ready: Duration,
    /// What happened.
    pub timeline: Vec<Entry>,
}

/// Wakes the only cold Pod of a set.
///
/// # Errors
/// `Find` if there is no such Pod or its gate does not take the ticket; `Request`, `Act`.
pub async fn wake(bench: &Bench, stage: &mut Stage) -> Result<Woken, Error> {
    pause(stage).await?;
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let selector = format!("{}={}", bps_api::keys::LABEL_SET, stage.set);
    let listed = pods.list(&ListParams::default().labels(&selector)).await;
    let pod = listed.map_err(Error::request("list", "the cold pod"))?.items.pop();
    let pod = pod.ok_or_else(|| missing("the cold pod"))?;
    let ticket = ticket(stage, &pod).await?;
    let address: Option<IpAddr> = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse().ok());
    let address = SocketAddr::new(address.ok_or_else(|| missing("the cold pod's address"))?, GATE_PORT);
    let pid = gate_process(bench, (&stage.namespace, &pod.name_any()))?;
    let node = bench.first_node()?;
    let (sent, answered, gone) =
        inside::run(&bench.cluster, &node, move || hand_over(address, ticket, pid)).await??;
    let name = pod.name_any();
    let is_ready = |scene: &crate::stage::Scene| scene.pod(&name).is_some_and(|pod| pod.is_ready);
    let ready = stage.scene.until(("ready", IN_PLACE_WITHIN), is_ready).await?;
    let since = |at: Instant| at.monotonic.saturating_sub(sent.monotonic);
    let entry = |at: Instant, text: &str| Entry {
        after: SignedDuration::try_from(since(at)).unwrap_or_default(),
        source: "bench",
        text: text.to_owned(),
    };
    let timeline = vec![
        entry(sent, "connect to the gate and send the ticket"),
        entry(answered, "the gate has accepted it"),
        entry(gone, "the gate's process has ended"),
        entry(ready, "the pod is ready"),
    ];
    Ok(Woken { gone: since(gone), ready: since(ready), timeline })
}

async fn pause(stage: &Stage) -> Result<(), Error> {
    let sets: Api<BackupPodSet> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let patch = Patch::Merge(json!({"spec": {"paused": true}}));
    let paused = sets.patch(&stage.set, &PatchParams::default(), &patch).await;
    paused.map(drop).map_err(Error::request("pause", "the set"))
}

/// A ticket like the operator's, with the operator's key.
async fn ticket(stage: &Stage, pod: &Pod) -> Result<SignedTicket, Error> {
    let store = KeyStore {
        api: Api::namespaced(stage.client.clone(), OPERATOR_NAMESPACE),
        rotation_period: DEFAULT_ROTATION_PERIOD,
    };
    let now = Timestamp::now();
    let ring = store.load_or_create(now).await.map_err(|_| missing("the operator's keys"))?;
    let known = pod.annotations().get(ANNOTATION_WAKE_KEYS).and_then(|text| parse_annotation(text).ok());
    let key = known.and_then(|known| ring.signing_key_for(&known)).ok_or_else(|| missing("a key"))?;
    let owner = pod.owner_references().first().map(|owner| owner.uid.clone()).unwrap_or_default();
    let uid = |text: &str| Uid::parse(text).map_err(|_| missing("a uid"));
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let ticket = Ticket {
        pod: uid(&pod.uid().unwrap_or_default())?,
        set: uid(&owner)?,
        epoch: seconds,
        expiry: seconds + TICKET_LIFETIME_SECONDS,
        key: key.id(),
    };
    Ok(ticket.sign(key))
}

fn gate_process(bench: &Bench, (namespace, pod): (&str, &str)) -> Result<Pid, Error> {
    let nodes = bench.cluster.nodes().map_err(|error| Error::FindCluster(Box::new(error)))?;
    let directories: Vec<_> =
        nodes.iter().map(|node| bench.cluster.run_directory().node(&node.name)).collect();
    let found = containers::of_pod(&directories, namespace, pod);
    let gate = found.into_iter().find(|container| container.name == CONTAINER_GATE);
    gate.and_then(|gate| Pid::from_raw(gate.main.pid)).ok_or_else(|| missing("the gate's process"))
}

/// Sends the ticket and waits for the end of the gate; the moments of sending, answer and end.
async fn hand_over(
    address: SocketAddr,
    ticket: SignedTicket,
    pid: Pid,
) -> Result<(Instant, Instant, Instant), Error> {
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| missing("the gate's process"))?;
    let sent = Instant::now();
    let answer = client::wake(address, &ticket, GATE_WITHIN).await;
    let answered = Instant::now();
    if !matches!(answer, Ok(Answer::Accepted)) {
        return Err(missing("a gate that accepts the ticket"));
    }
    let limit = Timespec::try_from(GATE_WITHIN).expect("a limit in seconds fits a timespec");
    // Blocks this thread, which has nothing else to do.
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit));
    if ended.is_ok_and(|count| count > 0) {
        Ok((sent, answered, Instant::now()))
    } else {
        Err(missing("the end of the gate's process"))
    }
}

fn missing(what: &str) -> Error {
    Error::Find { what: what.to_owned() }
}
