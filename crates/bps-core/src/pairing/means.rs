//! What the agents of a group need before they can do anything: keys, and permissions.
//!
//! Permissions are watched, and written when they are other than wanted. Keys are written without being read, because the
//! operator may read no Secret but its own; so it cannot see that somebody changed them, and writes them from time to time.

use std::collections::BTreeSet;
use std::time::Duration;

use bps_api::HAGroup;
use bps_protocol::{BootTime, Hold};
use serde_json::Value;

use super::existing::{ExistingObject, ExistingObjects};
use super::objects::{ObjectChange, WantedObject, change};
use super::view::{Group, Pair, VACANT};
use crate::manifests::{agent_binding, agent_role};

/// How soon keys are written again while a Pod starts, which waits for them, or after something has not worked as it should
/// for so long: the reason may be that they are gone. 20 s: a failover, which needs none, is over by then. If it lasts, the pause
/// doubles up to [`KEYS_EVERY`]: it is less and less likely that keys are what is missing.
const KEYS_EVERY_UNSETTLED: Duration = Duration::from_secs(20);
/// How soon if everything works. 10 min: as often as each watch of Pods lists again. An idle group costs no other request.
const KEYS_EVERY: Duration = Duration::from_secs(600);

/// What keys were last written, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysWritten {
    /// What tells them from others without showing them.
    pub version: String,
    /// When that was.
    pub at: BootTime,
}

/// Who may miss the keys of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeysNeed {
    /// Nobody: all of it works.
    #[default]
    Nobody,
    /// Pods that start.
    Starting {
        /// How many.
        pods: usize,
        /// Since when it is no more of them.
        since: BootTime,
    },
    /// Maybe whoever has not worked as it should since then.
    Unsettled(BootTime),
}

impl KeysNeed {
    /// Who does now; `before` says who did at the last look.
    pub fn of(seen: &Group, before: Self, now: BootTime) -> Self {
        let pods = &seen.pods;
        // Agents that cannot talk to each other do not live on promises; who is alone has nobody to talk to.
        let are_close = |pair: &Pair| pair.lease.hold == Hold::Peer || pair.lease.members.contains(&VACANT);
        let is_settled =
            pods.iter().all(|pod| pod.is_ready || pod.is_leaving) && seen.pairs.iter().all(are_close);
        let starting = pods.iter().filter(|pod| pod.address.is_none() && !pod.is_leaving).count();
        match before {
            Self::Starting { pods, since } if (1..=pods).contains(&starting) => {
                Self::Starting { pods: starting, since }
            }
            _ if starting > 0 => Self::Starting { pods: starting, since: now },
            _ if is_settled => Self::Nobody,
            Self::Unsettled(since) => Self::Unsettled(since),
            Self::Nobody | Self::Starting { .. } => Self::Unsettled(now),
        }
    }
}

/// When to write keys of this version; in the past if they never were.
pub fn keys_due(written: Option<&KeysWritten>, version: &str, need: KeysNeed) -> BootTime {
    let Some(written) = written.filter(|written| written.version == version) else {
        return BootTime::default();
    };
    let doubled = |since| written.at.since(since).clamp(KEYS_EVERY_UNSETTLED, KEYS_EVERY);
    match need {
        KeysNeed::Nobody => written.at + KEYS_EVERY,
        KeysNeed::Starting { since, .. } => written.at + doubled(since),
        KeysNeed::Unsettled(since) => written.at.max(since) + doubled(since),
    }
}

/// Time at which keys are due after a look that may have written them. If that write was refused, it is retried with the other
/// writes that were refused.
pub fn keys_due_next(
    written: Option<&KeysWritten>,
    version: &str,
    need: KeysNeed,
    now: BootTime,
) -> BootTime {
    let due = keys_due(written, version, need);
    if due <= now { now + KEYS_EVERY_UNSETTLED } else { due }
}

/// Least and greatest number of pairs that agents are permitted to change. 4,096: the names take a Role some 50 KB.
const PAIRS_PERMITTED: (u32, u32) = (8, 4_096);

/// How many pairs the agents may change: more than there can be now, and those that were left with high numbers. A power of
/// two, so that it rarely changes.
fn pairs_permitted(objects: &ExistingObjects) -> u32 {
    let (least, greatest) = PAIRS_PERMITTED;
    let there = u32::try_from(objects.accounts.len() + objects.numbers.len()).unwrap_or(greatest);
    let named =
        objects.numbers.iter().flatten().map(|number| number.saturating_add(1)).max().unwrap_or_default();
    there.max(named).clamp(least, greatest).next_power_of_two()
}

/// What the Role and the RoleBinding need that the agents of a group need. Without Pods nobody needs any.
pub fn permission_changes(group: &HAGroup, objects: &ExistingObjects) -> [Option<ObjectChange>; 2] {
    let accounts = objects.accounts.iter().map(String::as_str);
    let accounts: Vec<&str> = accounts.collect::<BTreeSet<_>>().into_iter().collect();
    if accounts.is_empty() {
        return [None, None];
    }
    let role = agent_role(group, pairs_permitted(objects));
    let binding = agent_binding(group, &accounts);
    let needs = |body: &Value, parts: &[&str], existing: &[ExistingObject]| {
        let patch = parts.iter().map(|part| ((*part).to_owned(), body[*part].clone())).collect();
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let found = existing.iter().find(|object| object.name() == name);
        change(group, WantedObject { body, patch: Value::Object(patch) }, found)
    };
    [needs(&role, &["rules"], &objects.roles), needs(&binding, &["roleRef", "subjects"], &objects.bindings)]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    use serde::Serialize;
    use serde_json::json;

    use super::*;
    use crate::pairing::testing;

    #[test]
    fn agents_may_change_every_pair_that_there_is_and_some_that_may_come() {
        let permitted = |numbers: &[u32]| {
            let numbers = numbers.iter().copied().map(Some).collect();
            pairs_permitted(&ExistingObjects { numbers, ..ExistingObjects::default() })
        };
        // What is left after a scale-in may have any number.
        let table: [(&[u32], u32); 5] =
            [(&[], 8), (&[0, 1], 8), (&[9, 12], 16), (&[16], 32), (&[u32::MAX], 4_096)];
        assert_eq!(table.map(|(numbers, _)| permitted(numbers)), table.map(|(_, expected)| expected));
    }

    fn group() -> HAGroup {
        serde_json::from_value(json!({
            "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup",
            "metadata": {"name": "web", "namespace": "shop", "uid": "group-uid"}, "spec": {},
        }))
        .expect("a group")
    }

    fn objects(accounts: &[&str]) -> ExistingObjects {
        let accounts = accounts.iter().map(|account| (*account).to_owned()).collect();
        ExistingObjects { accounts, ..ExistingObjects::default() }
    }

    fn existing(object: &impl Serialize) -> Vec<ExistingObject> {
        vec![testing::existing(serde_json::to_value(object).expect("JSON"))]
    }

    #[test]
    fn permissions_are_written_if_they_are_missing_or_other_than_wanted() {
        let wanting = |objects: &ExistingObjects| {
            permission_changes(&group(), objects).map(|change| match change {
                None => "nothing",
                Some(ObjectChange::Create(_)) => "create",
                Some(ObjectChange::Put { .. }) => "put",
                Some(ObjectChange::Leave(_)) => "leave",
                Some(ObjectChange::Remove(_)) => "remove",
            })
        };
        assert_eq!(wanting(&objects(&[])), ["nothing"; 2], "nobody needs them");
        let mut there = objects(&["web", "web"]);
        let made = permission_changes(&group(), &there);
        let [Some(ObjectChange::Create(role)), Some(ObjectChange::Create(binding))] = made else {
            panic!("both are missing")
        };
        let role: Role = serde_json::from_value(role).expect("a Role");
        let binding: RoleBinding = serde_json::from_value(binding).expect("a RoleBinding");
        (there.roles, there.bindings) = (existing(&role), existing(&binding));
        assert_eq!(wanting(&there), ["nothing"; 2]);

        let mut edited = role.clone();
        edited.rules.get_or_insert_default()[1].verbs.push("delete".to_owned());
        let mut ending = binding.clone();
        ending.metadata.owner_references.get_or_insert_default()[0].uid = "an earlier group".to_owned();
        let mut foreign = role.clone();
        (foreign.metadata.owner_references, foreign.metadata.labels) = (None, None);
        let mut other = binding;
        other.subjects.get_or_insert_default()[0].name = "somebody".to_owned();
        for (role, binding, expected) in [
            (edited, other.clone(), ["put", "put"]),
            (role, ending, ["nothing", "nothing"]),
            (foreign, other, ["leave", "put"]),
        ] {
            (there.roles, there.bindings) = (existing(&role), existing(&binding));
            assert_eq!(wanting(&there), expected);
        }
    }

    #[test]
    fn keys_are_written_when_they_change_and_rarely_while_everything_works() {
        let at = BootTime(1_000_000_000_000);
        let written = KeysWritten { version: "one".to_owned(), at };
        let after = |seconds| at + Duration::from_secs(seconds);
        let due = |version: &str, need| keys_due(Some(&written), version, need);
        assert_eq!(keys_due(None, "one", KeysNeed::Nobody), BootTime::default());
        assert_eq!(due("two", KeysNeed::Nobody), BootTime::default());
        let starting = |since| KeysNeed::Starting { pods: 1, since };
        let before = |seconds| at.before(Duration::from_secs(seconds));
        let needs = [
            (KeysNeed::Nobody, 600),
            (starting(after(300)), 20),
            (starting(at), 20),
            (starting(before(160)), 160),
            (KeysNeed::Unsettled(after(300)), 320),
            (KeysNeed::Unsettled(at), 20),
            (KeysNeed::Unsettled(before(40)), 40),
            (KeysNeed::Unsettled(before(9_000)), 600),
        ];
        for (need, seconds) in needs {
            assert_eq!(due("one", need), after(seconds), "{need:?}");
        }
    }

    #[test]
    fn a_pod_that_starts_may_miss_its_keys_and_so_may_who_has_not_worked_for_a_while() {
        let (now, later) = (BootTime(1), BootTime(2));
        let mut seen = Group { pods: vec![testing::pod(1)], ..Group::default() };
        let starting = |pods, since| KeysNeed::Starting { pods, since };
        assert_eq!(KeysNeed::of(&seen, starting(1, now), now), KeysNeed::Nobody);
        seen.pods[0].is_ready = false;
        assert_eq!(KeysNeed::of(&seen, KeysNeed::Nobody, now), KeysNeed::Unsettled(now));
        assert_eq!(KeysNeed::of(&seen, KeysNeed::Unsettled(now), later), KeysNeed::Unsettled(now));
        seen.pods[0].address = None;
        assert_eq!(KeysNeed::of(&seen, KeysNeed::Unsettled(now), later), starting(1, later));
        assert_eq!(KeysNeed::of(&seen, starting(2, now), later), starting(1, now));
        assert_eq!(KeysNeed::of(&seen, starting(0, now), later), starting(1, later), "one more");
        seen.pods[0].is_leaving = true;
        assert_eq!(KeysNeed::of(&seen, starting(1, now), later), KeysNeed::Nobody);
        let alone = testing::pair(0, [1, 0]);
        seen.pairs = vec![testing::pair(1, [2, 3]), alone];
        for pair in &mut seen.pairs {
            pair.lease.hold = Hold::Api;
        }
        assert_eq!(KeysNeed::of(&seen, KeysNeed::Nobody, now), KeysNeed::Unsettled(now));
        seen.pairs.remove(0);
        assert_eq!(KeysNeed::of(&seen, KeysNeed::Nobody, now), KeysNeed::Nobody);
    }
}
