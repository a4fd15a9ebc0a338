//! Reads a Pod: its role, how far it has come, and where it stands with its gate.
//!
//! Ready alone is no proof of life: after a sandbox was killed the condition stays True for seconds while the
//! application is dead, so the phase and every container must agree with it.

use std::net::IpAddr;

use bps_api::keys;
use bps_api::service::IpFamily;
use bps_core::model::{
    Gate, GateTrouble, Lifecycle, NodeName, Ownership, Part, PodName, PodRef, PodView, Revision, Role,
    RoleLabels, Signs, Subset, Uid,
};
use bps_core::pairing::HaState;
use jiff::{SignedDuration, Timestamp};

use super::cache::{Hosts, KnownKeys, Noted};
use super::group::actives;
use super::owner::controller_of;
use super::slim::{SlimCondition, SlimContainerState, SlimContainerStatus, SlimPod};

/// What a Pod is read beside.
pub(super) struct PodContext<'a> {
    pub(super) set_uid: &'a str,
    /// Those of the wish, in its order.
    pub(super) subsets: &'a [Subset],
    pub(super) hosts: Hosts<'a>,
    pub(super) keys: &'a KnownKeys,
    pub(super) noted: &'a Noted,
}

/// The Pod as decisions see it; `None` if it belongs to somebody else or has no role.
pub(super) fn pod_view(pod: &SlimPod, context: &PodContext<'_>) -> Option<PodView> {
    let ownership = ownership(pod, context.set_uid)?;
    let created = created(pod);
    let annotation = |key: &str| pod.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let gate = gate(pod);
    let uid = uid(pod);
    let tickets = context.noted.tickets_to(&uid);
    Some(PodView {
        pod: PodRef {
            name: PodName(pod.metadata.name.clone()?),
            uid: uid.clone(),
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
        },
        ownership,
        role: role(pod)?,
        labels: role_labels(pod),
        role_since: role_since(pod),
        part: part(pod),
        slot: annotation(keys::ANNOTATION_SLOT).and_then(|text| text.parse().ok()).unwrap_or(u32::MAX),
        revision: Revision(label(pod, keys::LABEL_REVISION).unwrap_or_default().to_owned()),
        subset: label(pod, keys::LABEL_SUBSET)
            .and_then(|name| context.subsets.iter().position(|subset| subset.name.0 == name)),
        created,
        lifecycle: as_noted(lifecycle(pod, created), context.noted.unready_since(&uid)),
        gate,
        has_known_key: gate == Gate::None
            || (annotation(keys::ANNOTATION_WAKE_KEYS).is_none_or(|ids| context.keys.knows_any(ids))
                // A set of the same name adopts the Pods of the one before, but cannot sign for it.
                && annotation(keys::ANNOTATION_GATE_OF).is_none_or(|uid| uid == context.set_uid)),
        gate_trouble: gate_trouble(pod)
            .map(|words| GateTrouble { since: context.noted.shut_since(&uid).unwrap_or(created), words }),
        stopped: unready_since(pod),
        first_ticket: tickets.map(|tickets| tickets.first),
        next_ticket: tickets.map(|tickets| tickets.next),
        is_running: is_running(pod),
        signs: signs(pod),
        is_serving: is_serving(pod),
        node: pod.spec.node_name.as_ref().map(|name| context.hosts.view(NodeName(name.clone()))),
        address: address(pod),
        other_address: other_address(pod),
    })
}

/// Address of the sandbox.
pub(super) fn address(pod: &SlimPod) -> Option<IpAddr> {
    pod.status.pod_ip.as_ref().and_then(|text| text.parse().ok())
}

/// Its address of the other family, if it has one.
pub(super) fn other_address(pod: &SlimPod) -> Option<IpAddr> {
    let family = IpFamily::of(address(pod)?);
    let mut all = pod.status.pod_ips.iter().filter_map(|address| address.ip.parse().ok());
    all.find(|address| IpFamily::of(*address) != family)
}

/// Identity of this incarnation.
pub(super) fn uid(pod: &SlimPod) -> Uid {
    Uid(pod.metadata.uid.clone().unwrap_or_default())
}

/// Role by the Pod's label.
pub(super) fn role(pod: &SlimPod) -> Option<Role> {
    label(pod, keys::LABEL_ROLE).and_then(Role::parse)
}

/// When the Pod was given its role, by our own record.
pub(super) fn role_since(pod: &SlimPod) -> Timestamp {
    let annotations = pod.metadata.annotations.as_ref();
    let noted = annotations.and_then(|all| all.get(keys::ANNOTATION_ROLE_SINCE)?.parse().ok());
    noted.unwrap_or_else(|| created(pod))
}

/// Whether the label of the BPS paper says the same role.
pub(super) fn role_labels(pod: &SlimPod) -> RoleLabels {
    let is_right = role(pod).is_none_or(|role| label(pod, keys::LABEL_TYPE) == Some(role.type_label()));
    if is_right { RoleLabels::Right } else { RoleLabels::Wrong }
}

/// What the labels say that the Pod does in its pair.
pub(super) fn part(pod: &SlimPod) -> Part {
    let peer = label(pod, keys::LABEL_PEER).map(|name| PodName(name.to_owned()));
    match label(pod, keys::LABEL_HA_STATE).and_then(HaState::parse) {
        None => Part::None,
        Some(HaState::Active) => Part::Active { peer },
        Some(HaState::Standby) => {
            let several = actives(pod).into_values().map(PodName);
            Part::Standby { peers: peer.into_iter().chain(several).collect() }
        }
    }
}

fn label<'p>(pod: &'p SlimPod, key: &str) -> Option<&'p str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

pub(super) fn ownership(pod: &SlimPod, set_uid: &str) -> Option<Ownership> {
    match controller_of(&pod.metadata) {
        None => Some(Ownership::Orphan),
        Some(owner) if owner.uid == set_uid => Some(Ownership::Ours),
        Some(_) => None,
    }
}

fn created(pod: &SlimPod) -> Timestamp {
    pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// How far the Pod has come, with the beginning of its unreadiness by our own clock: delays and deadlines count from
/// there, and with the node's they would end too soon or too late by as much as it is off.
fn as_noted(lifecycle: Lifecycle, unready_since: Option<Timestamp>) -> Lifecycle {
    if let (Lifecycle::Unready { .. }, Some(since)) = (lifecycle, unready_since) {
        Lifecycle::Unready { since }
    } else {
        lifecycle
    }
}

/// Since when the Pod is unready by its record.
pub(super) fn unready_since(pod: &SlimPod) -> Option<Timestamp> {
    if let Lifecycle::Unready { since } = lifecycle(pod, created(pod)) { Some(since) } else { None }
}

/// Whether an unready Pod was so at a former version already, and ever since.
///
/// If a watch was away it has not shown that the Pod was ready in between, but then its condition has another time.
pub(super) fn is_still_unready(former: &SlimPod, pod: &SlimPod) -> bool {
    let stopped = |pod: &SlimPod| {
        let ready = SlimCondition::ready(&pod.status.conditions).filter(|ready| !ready.is_true());
        ready.and_then(SlimCondition::since)
    };
    let was_ready = stopped(former).zip(stopped(pod)).is_some_and(|(one, other)| one != other);
    unready_since(former).is_some() && !was_ready
}

/// Whether the Pod serves, by its record.
pub(super) fn is_ready(pod: &SlimPod) -> bool {
    matches!(lifecycle(pod, created(pod)), Lifecycle::Ready { .. })
}

/// How far the Pod has come, by its record.
pub(super) fn lifecycle(pod: &SlimPod, created: Timestamp) -> Lifecycle {
    if pod.metadata.deletion_timestamp.is_some() {
        return Lifecycle::Terminating;
    }
    match pod.status.phase.as_deref() {
        Some("Failed" | "Succeeded") => return Lifecycle::Finished,
        _ if pod.spec.node_name.is_none() => return Lifecycle::Unscheduled,
        _ => {}
    }
    let ready = SlimCondition::ready(&pod.status.conditions);
    let since = ready.and_then(SlimCondition::since).unwrap_or(created);
    let is_true = ready.is_some_and(SlimCondition::is_true);
    if is_true && pod.status.phase.as_deref() == Some("Running") && all_ready(pod) {
        Lifecycle::Ready { since }
    } else if was_started(pod) {
        // A condition that still says Ready tells when that began, not when it ended.
        let signs = if is_true { last_sign(pod) } else { failed_at(pod) };
        Lifecycle::Unready { since: signs.map_or(since, |sign| sign.max(since)) }
    } else {
        Lifecycle::Starting
    }
}

fn all_ready(pod: &SlimPod) -> bool {
    all_containers(pod, |status| status.ready)
}

/// Whether this holds of every container; one without a status did not start yet.
fn all_containers(pod: &SlimPod, holds: impl Fn(&SlimContainerStatus) -> bool) -> bool {
    let statuses = &pod.status.container_statuses;
    !statuses.is_empty() && statuses.len() >= pod.spec.containers.len() && statuses.iter().all(holds)
}

/// Whether the application was ready before, or ended at least once.
fn was_started(pod: &SlimPod) -> bool {
    let ended = |status: &SlimContainerStatus| {
        status.restart_count > 0
            || [&status.state, &status.last_state].iter().any(|state| state.terminated.is_some())
    };
    let condition = SlimCondition::ready(&pod.status.conditions);
    // A Ready condition that changed after the containers started says that it was True in between.
    let lost_ready = condition.is_some_and(|ready| {
        !ready.is_true() && ready.since().zip(last_start(pod)).is_some_and(|(since, start)| since > start)
    });
    let claims_ready = condition.is_some_and(SlimCondition::is_true);
    let statuses = &pod.status.container_statuses;
    statuses.iter().any(ended) || lost_ready || claims_ready
}

fn last_start(pod: &SlimPod) -> Option<Timestamp> {
    let started =
        |status: &SlimContainerStatus| status.state.running.as_ref()?.started_at.as_ref().map(|time| time.0);
    pod.status.container_statuses.iter().filter_map(started).max()
}

fn failed_at(pod: &SlimPod) -> Option<Timestamp> {
    pod.status.container_statuses.iter().filter_map(|status| finished(&status.state)).max()
}

/// The last moment that anything in the status tells of: at least until then the Pod may have been ready.
fn last_sign(pod: &SlimPod) -> Option<Timestamp> {
    let of_container = |status: &SlimContainerStatus| {
        let started = status.state.running.as_ref().and_then(|running| running.started_at.as_ref());
        [started.map(|time| time.0), finished(&status.state), finished(&status.last_state)]
    };
    let status = &pod.status;
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses);
    let conditions = status.conditions.iter().map(super::slim::SlimCondition::since);
    containers.flat_map(of_container).chain(conditions).flatten().max()
}

fn finished(state: &SlimContainerState) -> Option<Timestamp> {
    state.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0)
}

pub(super) fn is_running(pod: &SlimPod) -> bool {
    all_containers(pod, |status| status.state.running.is_some())
}

/// How soon the end of a Pod is early, after which another one is not made at once.
///
/// 60 s: longer than a kubelet that rejects a Pod, or an application that ends at once, ever takes; and less than the pause
/// before another one is made once there were a few.
const EARLY: SignedDuration = SignedDuration::from_secs(60);

/// Whether the Pod has ended soon after it was made, as one does that its kubelet rejects.
pub(super) fn has_ended_early(pod: &SlimPod) -> bool {
    let created = created(pod);
    let lived = last_sign(pod).map_or(SignedDuration::ZERO, |last| last.duration_since(created));
    // Also while it is being deleted.
    matches!(pod.status.phase.as_deref(), Some("Failed" | "Succeeded")) && lived < EARLY
}

/// Whether a container of it was started again.
pub(super) fn was_restarted(pod: &SlimPod) -> bool {
    pod.status.container_statuses.iter().any(|status| status.restart_count > 0)
}

/// What the record of a Pod says about its end.
pub(super) fn last_words(pod: &SlimPod) -> String {
    let [reason, message] =
        [&pod.status.reason, &pod.status.message].map(|text| text.as_deref().unwrap_or(""));
    match (reason, message) {
        ("", text) | (text, "") => text.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// What the record of a Pod tells of its start and its end.
pub(super) fn signs(pod: &SlimPod) -> Signs {
    Signs { is_at_work: is_at_work(pod), progressed: progressed(pod), has_ended_early: has_ended_early(pod) }
}

/// Whether an init container other than the gate runs that the next one waits for: a sidecar does so until it has started.
pub(super) fn is_at_work(pod: &SlimPod) -> bool {
    let is_sidecar = |name: &str| {
        let mut specs = pod.spec.init_containers.iter();
        specs.any(|container| container.name == name && container.restart_policy.as_deref() == Some("Always"))
    };
    pod.status.init_container_statuses.iter().any(|status| {
        let is_done = is_sidecar(&status.name) && status.started == Some(true);
        status.name != keys::CONTAINER_GATE && status.state.running.is_some() && !is_done
    })
}

/// When a container last started or ended.
pub(super) fn progressed(pod: &SlimPod) -> Option<Timestamp> {
    let signs = |status: &SlimContainerStatus| {
        let running = status.state.running.as_ref().and_then(|running| running.started_at.as_ref());
        // One that is started over and over comes no further.
        let signs = [running.map(|time| time.0), finished(&status.state)];
        if status.restart_count == 0 { signs } else { [None, None] }
    };
    let status = &pod.status;
    status.init_container_statuses.iter().chain(&status.container_statuses).flat_map(signs).flatten().max()
}

/// Whether every container still answers, also while the Pod is terminating.
pub(super) fn is_serving(pod: &SlimPod) -> bool {
    all_containers(pod, |status| status.ready && status.state.running.is_some())
}

/// Where the Pod stands with its gate.
pub(super) fn gate(pod: &SlimPod) -> Gate {
    if !pod.spec.init_containers.iter().any(|container| container.name == keys::CONTAINER_GATE) {
        return Gate::None;
    }
    let status = pod.status.init_container_statuses.iter().find(|status| status.name == keys::CONTAINER_GATE);
    let Some(state) = status.map(|status| &status.state) else { return Gate::Ahead };
    let created = created(pod);
    match (&state.running, &state.terminated) {
        (Some(running), _) => {
            Gate::Listening { since: running.started_at.as_ref().map_or(created, |time| time.0) }
        }
        (None, Some(ended)) if ended.exit_code == 0 => {
            Gate::Passed { since: ended.finished_at.as_ref().map_or(created, |time| time.0) }
        }
        (None, Some(_) | None) => Gate::Ahead,
    }
}

/// Reasons of a waiting container that do not pass by themselves within seconds, as the kubelet (1.36) writes them.
const FAILURES: [&str; 9] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// What keeps the gate, or a container before it, from starting; `None` once the gate has started.
///
/// A container of the user's behind it is none of this: it is started after the ticket.
pub(super) fn gate_trouble(pod: &SlimPod) -> Option<String> {
    if gate(pod) != Gate::Ahead {
        return None;
    }
    let failure = |status: &SlimContainerStatus| {
        let waiting = status.state.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|reason| FAILURES.contains(reason))?;
        Some(match waiting.message.as_deref() {
            None | Some("") => format!("{}: {reason}", status.name),
            Some(message) => format!("{}: {reason}: {message}", status.name),
        })
    };
    pod.status.init_container_statuses.iter().find_map(failure)
}
