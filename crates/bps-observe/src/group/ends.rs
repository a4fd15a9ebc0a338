//! Leases and Pods as they were when their deletion was seen, until a look at their group asks for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bps_core::model::NodeName;
use bps_protocol::{AgentId, BootTime};
use bps_wire::uid::parse_uid;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube_core::ResourceExt as _;

use super::{labelled_key, pair_number};
use crate::SetKey;
use crate::slim::{SlimPod, SlimPodStatus};

/// Most Leases that are kept after their end, the newest. 4,096, of some 2 KB each: who does not lead takes none. What is left
/// out ended without being seen, which makes nobody act too early.
const ENDS_MAX: usize = 4_096;

/// The end of a Lease.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseEnd {
    /// The Lease as it was.
    pub lease: Lease,
    /// When its deletion was seen.
    pub at: BootTime,
    /// After how many lists of the watch. Until the next one no other Lease comes and goes unseen.
    pub list: u64,
}

/// How far a Pod is on its way from its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnd {
    /// Its uid.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Where it ran.
    pub node: Option<NodeName>,
    /// It was asked to go, and does not start again.
    pub is_going: bool,
    /// Its kubelet said that all its containers have ended for good.
    pub is_certain: bool,
    /// When its object was seen to be gone.
    pub gone_at: Option<BootTime>,
    /// How long its processes have to end once they are asked to.
    pub grace: Duration,
}

impl PodEnd {
    /// Of a Pod that is there; `None` for one with a uid that cannot be read, which only a faulty server makes.
    pub fn of(pod: &SlimPod) -> Option<Self> {
        let id = AgentId(parse_uid(pod.metadata.uid.as_deref()?).ok()?);
        let node = pod.spec.node_name.clone().map(NodeName);
        // Who deletes it may give it longer than its specification does.
        let given = [pod.spec.termination_grace_period_seconds, pod.metadata.deletion_grace_period_seconds];
        let given = given.into_iter().flatten().filter_map(|seconds| u64::try_from(seconds).ok()).max();
        Some(Self {
            id,
            name: pod.name_any(),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            node,
            is_going: pod.metadata.deletion_timestamp.is_some(),
            is_certain: has_ended(pod),
            gone_at: None,
            grace: given.map_or(GRACE, Duration::from_secs),
        })
    }
}

/// How long processes have to end if nobody says so: the default of Kubernetes.
const GRACE: Duration = Duration::from_secs(30);
/// Whether the kubelet said so: since Kubernetes 1.27 it reports a phase that is final only when no container runs any more. Others
/// write that phase, too, of Pods on nodes that they think are lost.
fn has_ended(pod: &SlimPod) -> bool {
    let SlimPodStatus { phase, conditions, container_statuses, init_container_statuses, .. } = &pod.status;
    let is_final = matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
    // The garbage collector of Pods says so together with that phase; others who say so evict, and their Pods end in order.
    let may_be_presumed = conditions.iter().any(|condition| condition.kind == "DisruptionTarget");
    let sidecars =
        pod.spec.init_containers.iter().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let mut all = pod.spec.containers.iter().chain(sidecars).map(|container| &container.name);
    let has_ended = |name: &String| {
        let mut statuses = container_statuses.iter().chain(init_container_statuses);
        statuses.any(|status| status.name == *name && status.state.terminated.is_some())
    };
    is_final && !may_be_presumed && !pod.spec.containers.is_empty() && all.all(has_ended)
}

/// Most Pods of all groups that are kept after their end, the newest. 16,384, of some 100 bytes each: who does not lead takes none.
/// What is left out is waited for.
const POD_ENDS_MAX: usize = 16_384;

/// Pods of groups that are gone, shared by a watch and the looks.
#[derive(Clone, Debug, Default)]
pub struct PodEnds(Arc<Mutex<BTreeMap<SetKey, Vec<PodEnd>>>>);

impl PodEnds {
    /// Keeps how a Pod ended.
    pub fn deleted(&self, pod: &SlimPod, now: BootTime) {
        let Some((key, end)) = labelled_key(&pod.metadata).zip(PodEnd::of(pod)) else { return };
        let end = PodEnd { gone_at: Some(now), ..end };
        let mut ends = self.0.lock().expect("no holder of this lock panics");
        ends.entry(key).or_default().push(end);
        if ends.values().map(Vec::len).sum::<usize>() > POD_ENDS_MAX {
            let oldest = ends.iter().min_by_key(|(_, of_group)| of_group.first().and_then(|end| end.gone_at));
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            let left = ends.get_mut(&key).map_or(0, |of_group| {
                of_group.remove(0);
                of_group.len()
            });
            if left == 0 {
                ends.remove(&key);
            }
        }
    }

    /// Those of one group; they are told once.
    pub fn take(&self, key: &SetKey) -> Vec<PodEnd> {
        self.0.lock().expect("no holder of this lock panics").remove(key).unwrap_or_default()
    }
}

/// The last end of each pair, by group and number.
type ByGroup = BTreeMap<SetKey, BTreeMap<u32, LeaseEnd>>;

/// Shared by a watch and the looks.
#[derive(Clone, Debug, Default)]
pub struct LeaseEnds {
    ends: Arc<Mutex<ByGroup>>,
    lists: Arc<AtomicU64>,
}

impl LeaseEnds {
    /// The watch lists anew: whatever came and went meanwhile was not seen.
    pub fn listed(&self) {
        self.lists.fetch_add(1, Ordering::SeqCst);
    }

    /// How often it did so.
    pub fn lists(&self) -> u64 {
        self.lists.load(Ordering::SeqCst)
    }

    /// Forgets how the Lease of a pair ended, because a watch shows another one.
    pub fn shown(&self, lease: &Lease) {
        let Some((key, number)) = labelled_key(&lease.metadata).zip(pair_number(lease)) else { return };
        let mut ends = self.ends.lock().expect("no holder of this lock panics");
        forget(&mut ends, &key, number);
    }

    /// Keeps how a Lease ended, until there is another one for its pair.
    pub fn deleted(&self, lease: &Lease, now: BootTime) {
        let Some((key, number)) = labelled_key(&lease.metadata).zip(pair_number(lease)) else { return };
        let mut ends = self.ends.lock().expect("no holder of this lock panics");
        ends.entry(key)
            .or_default()
            .insert(number, LeaseEnd { lease: lease.clone(), at: now, list: self.lists() });
        if ends.values().map(BTreeMap::len).sum::<usize>() > ENDS_MAX {
            forget_oldest(&mut ends);
        }
    }

    /// Those of one group; they are told once.
    pub fn take(&self, key: &SetKey) -> Vec<LeaseEnd> {
        let mut ends = self.ends.lock().expect("no holder of this lock panics");
        ends.remove(key).into_iter().flat_map(BTreeMap::into_values).collect()
    }
}

fn forget_oldest(ends: &mut ByGroup) {
    let all = ends
        .iter()
        .flat_map(|(key, of_group)| of_group.iter().map(move |(number, end)| (end.at, key, number)));
    let Some((_, key, number)) = all.min_by_key(|(at, ..)| *at) else { return };
    let (key, number) = (key.clone(), *number);
    forget(ends, &key, number);
}

fn forget(ends: &mut ByGroup, key: &SetKey, number: u32) {
    let Some(of_group) = ends.get_mut(key) else { return };
    of_group.remove(&number);
    if of_group.is_empty() {
        ends.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use bps_api::keys;
    use bps_wire::uid::format_uid;
    use serde_json::json;

    use super::*;

    fn lease(group: &str, number: usize, uid: &str) -> Lease {
        let metadata = json!({"name": "lease", "namespace": "shop", "uid": uid,
            "labels": {(keys::LABEL_GROUP): group},
            "annotations": {(keys::ANNOTATION_HA_PAIR): number.to_string()}});
        serde_json::from_value(json!({"metadata": metadata})).expect("a Lease")
    }

    fn key(name: &str) -> SetKey {
        SetKey { namespace: "shop".into(), name: name.into() }
    }

    /// A Pod of a group in this phase, of which these containers have ended.
    fn pod(phase: &str, ended: &[&str]) -> serde_json::Value {
        let statuses = ended.iter().map(
            |name| json!({"name": name, "state": {"terminated": {"finishedAt": "2026-11-20T10:00:00Z"}}}),
        );
        let statuses: Vec<_> = statuses.collect();
        json!({
            "metadata": {"name": "web-0", "namespace": "shop", "uid": format_uid(7),
                "labels": {(keys::LABEL_GROUP): "web"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "web"}, {"name": "log"}],
                "initContainers": [{"name": "once"}, {"name": "beside", "restartPolicy": "Always"}]},
            "status": {"phase": phase, "containerStatuses": statuses},
        })
    }

    fn slim(pod: serde_json::Value) -> SlimPod {
        serde_json::from_value(pod).expect("a Pod")
    }

    #[test]
    fn a_pod_has_ended_when_its_kubelet_says_so_of_all_that_could_run() {
        let all = ["web", "log", "beside"];
        let is_certain = |pod| PodEnd::of(&slim(pod)).expect("a uid").is_certain;
        assert!(is_certain(pod("Succeeded", &all)) && is_certain(pod("Failed", &all)));
        assert!(!is_certain(pod("Running", &all)), "a container that ended is started again");
        for missing in 0..all.len() {
            let rest: Vec<&str> =
                all.iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, name)| *name).collect();
            assert!(!is_certain(pod("Failed", &rest)), "{rest:?}");
        }
        let mut presumed = pod("Failed", &all);
        presumed["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
        assert!(!is_certain(presumed), "whoever collects Pods of lost nodes says so, too");
        let mut empty = pod("Failed", &all);
        empty["spec"]["containers"] = json!([]);
        assert!(!is_certain(empty), "nothing is known of it");
    }

    #[test]
    fn pods_that_are_gone_are_told_once() {
        let (ends, now) = (PodEnds::default(), BootTime(7));
        ends.deleted(&slim(pod("Running", &[])), now);
        let [end] = &ends.take(&key("web"))[..] else { panic!("one") };
        assert_eq!((end.name.as_str(), end.gone_at, end.is_certain), ("web-0", Some(now), false));
        assert_eq!((&end.node, end.grace), (&Some(NodeName("n1".into())), GRACE));
        assert_eq!(ends.take(&key("web")), []);
    }

    #[test]
    fn the_oldest_pod_gives_way_to_a_new_one() {
        let ends = PodEnds::default();
        let mut of_other = pod("Running", &[]);
        of_other["metadata"]["labels"][keys::LABEL_GROUP] = json!("api");
        ends.deleted(&slim(of_other), BootTime(1));
        let gone = slim(pod("Running", &[]));
        for moment in 0..POD_ENDS_MAX {
            ends.deleted(&gone, BootTime(2 + moment as u64));
        }
        assert_eq!(ends.take(&key("api")), []);
        assert_eq!(ends.take(&key("web")).len(), POD_ENDS_MAX);
    }

    #[test]
    fn a_pod_that_goes_has_the_longest_time_that_somebody_gave_it() {
        let of = |pod| PodEnd::of(&slim(pod)).expect("a uid");
        assert!(!of(pod("Running", &[])).is_going);
        let mut going = pod("Running", &[]);
        going["metadata"]["deletionTimestamp"] = json!("2026-11-20T10:00:00Z");
        going["spec"]["terminationGracePeriodSeconds"] = json!(5);
        for (given, expected) in [(0, 5), (60, 60)] {
            going["metadata"]["deletionGracePeriodSeconds"] = json!(given);
            let end = of(going.clone());
            assert_eq!((end.is_going, end.is_certain, end.gone_at), (true, false, None));
            assert_eq!(end.grace, Duration::from_secs(expected));
        }
    }

    #[test]
    fn ends_tell_after_how_many_lists_they_were_seen() {
        let ends = LeaseEnds::default();
        ends.deleted(&lease("web", 0, "a"), BootTime(7));
        ends.listed();
        ends.deleted(&lease("web", 1, "b"), BootTime(8));
        let lists = |ends: Vec<LeaseEnd>| ends.iter().map(|end| end.list).collect::<Vec<_>>();
        assert_eq!((lists(ends.take(&key("web"))), ends.lists()), (vec![0, 1], 1));
    }

    #[test]
    fn the_end_of_a_lease_is_kept_until_it_is_taken_or_another_one_is_there() {
        let (ends, now) = (LeaseEnds::default(), BootTime(7));
        ends.shown(&lease("web", 0, "a"));
        assert_eq!(ends.take(&key("web")), []);
        ends.deleted(&lease("web", 0, "a"), now);
        assert_eq!(ends.take(&key("api")), []);
        assert_eq!(ends.take(&key("web")), [LeaseEnd { lease: lease("web", 0, "a"), at: now, list: 0 }]);
        assert_eq!(ends.take(&key("web")), []);
        ends.deleted(&lease("web", 0, "a"), now);
        ends.shown(&lease("web", 0, "b"));
        assert_eq!(ends.take(&key("web")), []);
    }

    #[test]
    fn the_oldest_end_gives_way_to_a_new_one() {
        let ends = LeaseEnds::default();
        for number in 0..ENDS_MAX {
            ends.deleted(&lease("web", number, "a"), BootTime(1 + number as u64));
        }
        // Its group comes first by name, and its end is the newest.
        ends.deleted(&lease("api", 0, "a"), BootTime(1 + ENDS_MAX as u64));
        assert_eq!(ends.take(&key("api")).len(), 1);
        let left = ends.take(&key("web"));
        assert_eq!((left.len(), left[0].at), (ENDS_MAX - 1, BootTime(2)));
    }
}
