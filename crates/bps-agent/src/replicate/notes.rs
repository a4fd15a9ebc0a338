//! What an agent writes into the Lease of its own accord: who is level, how much the standby lacks, and that a Pod has lost
//! its level copy or came back with it.

use std::collections::BTreeSet;

use bps_api::{StateLag, keys};
use bps_protocol::{AgentId, Version};
use bps_wire::lease::Record;
use bps_wire::level::{DirectoryId, Level};
use bps_wire::uid::format_uid;

use crate::store::{Annotations, Note};

/// These directories, which these Pods have, are level; what a standby lacked before is told no more.
pub fn level_annotations(level: &BTreeSet<DirectoryId>, pods: [Option<AgentId>; 2]) -> Annotations {
    let pods: Vec<String> = pods.into_iter().flatten().map(|pod| format_uid(pod.0)).collect();
    Annotations::from([
        (keys::ANNOTATION_HA_IN_SYNC, Some(Level::write(level))),
        (keys::ANNOTATION_HA_IN_SYNC_PODS, Some(pods.join(","))),
        (keys::ANNOTATION_HA_LAG, None),
    ])
}

/// What the list of Pods lacks that this agent knows better, if it is a member.
///
/// *The Lease lists this Pod, but not its directory:* the one that was level is lost, or belongs to another Pod now. Nobody
/// takes its place in the list, so that it still says that there is a copy that is not to be seen.
///
/// *It lists the directory, but not this Pod:* it came back with it as another Pod, and takes the place of those that are
/// members no more.
pub fn copy_note(record: &Record, own: AgentId, directory: DirectoryId) -> Option<Note> {
    let Level::Only(level) = &record.level else { return None };
    let (members, listed) = (&record.lease.members, &record.level_pods);
    let is_listed = listed.contains(&own);
    if level.contains(&directory) == is_listed || !(is_listed || members.contains(&own)) {
        return None;
    }
    let stays = |pod: &AgentId| is_listed || *pod != AgentId::NOBODY && members.contains(pod);
    let others = listed.iter().filter(|pod| **pod != own && stays(pod));
    let last = if is_listed { AgentId::NOBODY } else { own };
    let pods: Vec<String> = others.chain([&last]).map(|pod| format_uid(pod.0)).collect();
    Some(Note {
        base: record.version,
        annotations: [(keys::ANNOTATION_HA_IN_SYNC_PODS, Some(pods.join(",")))].into(),
    })
}

/// The standby lacks this much; `None` only if that cannot be put into words.
pub fn lag_note(base: Version, lag: &StateLag) -> Option<Note> {
    let text = serde_json::to_string(lag).ok()?;
    Some(Note { base, annotations: [(keys::ANNOTATION_HA_LAG, Some(text))].into() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const A: DirectoryId = DirectoryId(0xa);
    const NEW: DirectoryId = DirectoryId(0xb);

    /// A Lease with these annotations of the pair of the Pods 1 and 2.
    fn record(level: Option<&str>, pods: &[u128]) -> Record {
        let member =
            |number: u128| json!({"uid": format_uid(number), "pod": "web", "address": "10.0.0.1:20001"});
        let pods: Vec<String> = pods.iter().map(|pod| format_uid(*pod)).collect();
        let mut lease = json!({
            "metadata": {"uid": format_uid(9), "resourceVersion": "5", "annotations": {
                (keys::ANNOTATION_HA_SEQUENCE): "1", (keys::ANNOTATION_HA_HOLD): "Peer",
                (keys::ANNOTATION_HA_WRITES): "4",
                (keys::ANNOTATION_HA_MEMBERS): json!([member(1), member(2)]).to_string(),
                (keys::ANNOTATION_HA_IN_SYNC_PODS): pods.join(","),
            }},
            "spec": {"leaseTransitions": 1},
        });
        lease["metadata"]["annotations"][keys::ANNOTATION_HA_IN_SYNC] = json!(level);
        lease["metadata"]["annotations"].as_object_mut().unwrap().retain(|_, value| *value != Value::Null);
        Record::read(&serde_json::from_value(lease).unwrap()).unwrap()
    }

    #[test]
    fn a_pod_has_itself_listed_if_its_copy_is_level_and_taken_out_if_it_lost_it() {
        let (level, other) = (Level::write(&BTreeSet::from([A])), "not a number");
        let only =
            |pods: &[u128]| Some(pods.iter().map(|pod| format_uid(*pod)).collect::<Vec<_>>().join(","));
        let table = [
            (Some(&*level), &[1][..], A, None),
            (Some(&*level), &[1], NEW, only(&[0])),
            (Some(&*level), &[1, 2], NEW, only(&[2, 0])),
            // What it was taken out of says so already, and says nothing of others.
            (Some(&*level), &[0], NEW, None),
            (Some(&*level), &[2], NEW, None),
            // It came back with it: the Pod 7 is no member, and what is not to be seen may be what it has.
            (Some(&*level), &[7], A, only(&[1])),
            (Some(&*level), &[0], A, only(&[1])),
            (Some(&*level), &[], A, only(&[1])),
            (Some(&*level), &[2, 7], A, only(&[2, 1])),
            // Whoever removed the annotation lets anybody act; whoever spoiled it is not understood.
            (None, &[1], NEW, None),
            (Some(other), &[1], NEW, None),
        ];
        for (level, pods, own, expected) in table {
            let note = copy_note(&record(level, pods), AgentId(1), own);
            let expected = expected.map(|text| Note {
                base: Version(5),
                annotations: [(keys::ANNOTATION_HA_IN_SYNC_PODS, Some(text))].into(),
            });
            assert_eq!(note, expected, "{level:?} {pods:?}");
        }
        let mut record = record(Some(&level), &[0]);
        assert_eq!(copy_note(&record, AgentId(3), A), None, "no member");
        record.lease.members[1] = AgentId::NOBODY;
        let listed = copy_note(&record, AgentId(1), A).expect("it is not listed").annotations;
        assert_eq!(listed, [(keys::ANNOTATION_HA_IN_SYNC_PODS, only(&[1]))].into(), "beside a vacant seat");
    }
}
