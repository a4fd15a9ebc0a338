//! What the agents of a group need before they can do anything: keys, and permissions.
//!
//! Permissions are watched, and written when they are other than wanted. Keys are written without being read, because the
//! operator may read no Secret but its own; so it cannot see that somebody changed them, and writes them from time to time.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bps_api::{HAGroup, keys};
use bps_core::manifests::{agent_binding, agent_role, group_keys};
use bps_core::pairing::{Pair, VACANT};
use bps_observe::group::{GroupObjects, SeenGroup, pair_number};
use bps_observe::version;
use bps_protocol::{BootTime, Hold};
use bps_runtime::boot_clock;
use futures::join;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::group_keys::GroupKeys;
use super::leases::{Error, Written};
use super::look::Round;
use super::memory::Memory;
use super::objects::{covers, is_owned};

/// How soon keys are written again while a Pod starts, which waits for them, or after something has not worked as it should
/// for so long: the reason may be that they are gone. 20 s: a failover, which needs none, is over by then.
const KEYS_EVERY_UNSETTLED: Duration = Duration::from_secs(20);
/// How soon if everything works. 10 min: as often as each watch of Pods lists again. An idle group costs no other request.
const KEYS_EVERY: Duration = Duration::from_secs(600);

/// What keys were last written, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeysWritten {
    /// What tells them from others without showing them.
    pub(super) version: String,
    pub(super) at: BootTime,
}

/// Who may miss the keys of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Need {
    /// Nobody: all of it works.
    #[default]
    Nobody,
    /// A Pod that starts.
    Starting,
    /// Maybe whoever has not worked as it should since then.
    Unsettled(BootTime),
}

impl Need {
    /// Who does now; `before` says who did at the last look.
    fn of(seen: &SeenGroup, before: Self, now: BootTime) -> Self {
        let pods = &seen.group.pods;
        // Agents that cannot talk to each other do not live on promises; who is alone has nobody to talk to.
        let are_close = |pair: &Pair| pair.lease.hold == Hold::Peer || pair.lease.members.contains(&VACANT);
        let is_settled =
            pods.iter().all(|pod| pod.is_ready || pod.is_leaving) && seen.group.pairs.iter().all(are_close);
        match before {
            _ if pods.iter().any(|pod| pod.address.is_none() && !pod.is_leaving) => Self::Starting,
            _ if is_settled => Self::Nobody,
            Self::Unsettled(since) => Self::Unsettled(since),
            Self::Nobody | Self::Starting => Self::Unsettled(now),
        }
    }
}

/// When to write keys of this version; in the past if they never were.
fn keys_due(written: Option<&KeysWritten>, version: &str, need: Need) -> BootTime {
    let Some(written) = written.filter(|written| written.version == version) else {
        return BootTime::default();
    };
    match need {
        Need::Nobody => written.at + KEYS_EVERY,
        Need::Starting => written.at + KEYS_EVERY_UNSETTLED,
        Need::Unsettled(since) => written.at.max(since) + KEYS_EVERY_UNSETTLED,
    }
}

/// Least and greatest number of pairs that agents are permitted to change. 4,096: the names take a Role some 50 KB.
const PAIRS_PERMITTED: (u32, u32) = (8, 4_096);

/// How many pairs the agents may change: more than there can be now, and those that were left with high numbers. A power of
/// two, so that it rarely changes.
fn pairs_permitted(objects: &GroupObjects) -> u32 {
    let (least, greatest) = PAIRS_PERMITTED;
    let there = u32::try_from(objects.pods.len() + objects.leases.len()).unwrap_or(greatest);
    let numbers = objects.leases.iter().filter_map(|lease| pair_number(lease));
    let named = numbers.map(|number| number.saturating_add(1)).max().unwrap_or_default();
    there.max(named).clamp(least, greatest).next_power_of_two()
}

/// The Role and the RoleBinding that the agents of a group need, as far as they are to be written. Without Pods nobody needs
/// any.
fn permissions_wanting(group: &HAGroup, objects: &GroupObjects) -> [Option<Value>; 2] {
    let accounts =
        objects.pods.iter().map(|pod| pod.spec.service_account_name.as_deref().unwrap_or("default"));
    let accounts: Vec<&str> = accounts.collect::<BTreeSet<_>>().into_iter().collect();
    if accounts.is_empty() {
        return [None, None];
    }
    let role = agent_role(group, pairs_permitted(objects));
    let binding = agent_binding(group, &accounts);
    [
        Some(role).filter(|role| !is_as_wanted(group, &objects.roles, (role, &["rules"]))),
        Some(binding).filter(|it| !is_as_wanted(group, &objects.bindings, (it, &["roleRef", "subjects"]))),
    ]
}

/// Whether an object is there and ends with this group, and these parts of it are as wanted.
fn is_as_wanted<K>(group: &HAGroup, existing: &[Arc<K>], (body, parts): (&Value, &[&str])) -> bool
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let name = body["metadata"]["name"].as_str();
    let found = existing.iter().find(|object| object.meta().name.as_deref() == name);
    found.is_some_and(|found| {
        let seen = serde_json::to_value(found.as_ref()).unwrap_or_default();
        is_owned(found.meta(), group) && parts.iter().all(|part| covers(&seen[*part], &body[*part]))
    })
}

/// Writes an object as it is to be, whoever wrote it last.
async fn apply<K>(client: &Client, group: &HAGroup, body: Option<Value>) -> Result<Option<Written>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + k8s_openapi::Resource,
    K: Clone + DeserializeOwned + Debug,
{
    let Some(body) = body else { return Ok(None) };
    let namespace = group.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let parameters = PatchParams::apply(keys::FIELD_MANAGER).force();
    let written = api.patch(name, &parameters, &Patch::Apply(&body)).await?;
    Ok(Some((K::KIND, written.name_any(), version(written.meta()))))
}

impl Round<'_> {
    /// Writes keys and permissions of the agents that are due; notes when the keys are due again, and what was refused.
    pub(super) async fn put_means(&self, (seen, objects): (&SeenGroup, &GroupObjects), memory: &mut Memory) {
        let (client, now) = (&self.context.surroundings.client, boot_clock::now());
        memory.need = Need::of(seen, memory.need, now);
        let (version, keys) = {
            let ring = self.context.surroundings.keys.borrow();
            let keys = GroupKeys::of(&ring, self.now());
            let uid = self.group.metadata.uid.as_deref().unwrap_or_default();
            let version = format!("{uid}|{}", keys.version());
            let is_due = keys_due(memory.keys_written.as_ref(), &version, memory.need) <= now;
            let body = || group_keys(self.group, &keys.text(self.group), &keys.metrics_token(self.group));
            (version, is_due.then(body))
        };
        let are_due = keys.is_some();
        let [role, binding] = permissions_wanting(self.group, objects);
        let (keys, role, binding) = join!(
            apply::<Secret>(client, self.group, keys),
            apply::<Role>(client, self.group, role),
            apply::<RoleBinding>(client, self.group, binding),
        );
        if are_due && keys.is_ok() {
            memory.keys_written = Some(KeysWritten { version: version.clone(), at: boot_clock::now() });
        }
        let mut refused = Vec::new();
        // No watch shows the keys.
        for result in [keys.map(|_| None), role, binding] {
            self.settle(result, memory, &mut refused);
        }
        memory.refused_means = refused;
        let due = keys_due(memory.keys_written.as_ref(), &version, memory.need);
        // What was refused just now is tried again with whatever else was.
        memory.keys_due = if due <= now { now + KEYS_EVERY_UNSETTLED } else { due };
    }
}

#[cfg(test)]
mod tests {
    use bps_observe::slim::SlimPod;
    use bps_observe::testing::lease;
    use serde_json::json;

    use super::*;

    #[test]
    fn agents_may_change_every_pair_that_there_is_and_some_that_may_come() {
        let permitted = |numbers: &[u32]| {
            let leases = numbers
                .iter()
                .map(|number| Arc::new(lease(&[(keys::ANNOTATION_HA_PAIR, number.to_string().as_str())])));
            pairs_permitted(&GroupObjects { leases: leases.collect(), ..GroupObjects::default() })
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

    fn objects(accounts: &[&str]) -> GroupObjects {
        let pod = |account: &&str| {
            let mut pod = SlimPod::default();
            pod.spec.service_account_name = Some((*account).to_owned());
            Arc::new(pod)
        };
        GroupObjects { pods: accounts.iter().map(pod).collect(), ..GroupObjects::default() }
    }

    #[test]
    fn permissions_are_written_if_they_are_missing_or_other_than_wanted() {
        let wanting = |objects: &GroupObjects| permissions_wanting(&group(), objects).map(|it| it.is_some());
        assert_eq!(wanting(&objects(&[])), [false, false], "nobody needs them");
        let mut there = objects(&["web", "web"]);
        let [Some(role), Some(binding)] = permissions_wanting(&group(), &there) else {
            panic!("both are missing")
        };
        let role: Role = serde_json::from_value(role).expect("a Role");
        let binding: RoleBinding = serde_json::from_value(binding).expect("a RoleBinding");
        (there.roles, there.bindings) = (vec![Arc::new(role.clone())], vec![Arc::new(binding.clone())]);
        assert_eq!(wanting(&there), [false, false]);

        let mut edited = role.clone();
        edited.rules.get_or_insert_default()[1].verbs.push("delete".to_owned());
        let mut foreign = binding.clone();
        foreign.metadata.owner_references.get_or_insert_default()[0].uid = "an earlier group".to_owned();
        let mut other = binding;
        other.subjects.get_or_insert_default()[0].name = "somebody".to_owned();
        for (role, binding, expected) in [
            (edited, other.clone(), [true, true]),
            (role.clone(), foreign, [false, true]),
            (role, other, [false, true]),
        ] {
            (there.roles, there.bindings) = (vec![Arc::new(role)], vec![Arc::new(binding)]);
            assert_eq!(wanting(&there), expected);
        }
    }

    #[test]
    fn keys_are_written_when_they_change_and_rarely_while_everything_works() {
        let at = BootTime(1_000_000_000_000);
        let written = KeysWritten { version: "one".to_owned(), at };
        let after = |seconds| at + Duration::from_secs(seconds);
        let due = |version: &str, need| keys_due(Some(&written), version, need);
        assert_eq!(keys_due(None, "one", Need::Nobody), BootTime::default());
        assert_eq!(due("two", Need::Nobody), BootTime::default());
        let needs = [Need::Nobody, Need::Starting, Need::Unsettled(BootTime(1)), Need::Unsettled(after(300))];
        assert_eq!(needs.map(|need| due("one", need)), [600, 20, 20, 320].map(after));
    }

    #[test]
    fn a_pod_that_starts_may_miss_its_keys_and_so_may_who_has_not_worked_for_a_while() {
        let (now, later) = (BootTime(1), BootTime(2));
        let mut seen = SeenGroup::default();
        seen.group.pods = vec![bps_core::pairing::testing::pod(1)];
        assert_eq!(Need::of(&seen, Need::Starting, now), Need::Nobody);
        seen.group.pods[0].is_ready = false;
        assert_eq!(Need::of(&seen, Need::Nobody, now), Need::Unsettled(now));
        assert_eq!(Need::of(&seen, Need::Unsettled(now), later), Need::Unsettled(now));
        seen.group.pods[0].address = None;
        assert_eq!(Need::of(&seen, Need::Unsettled(now), later), Need::Starting);
        seen.group.pods[0].is_leaving = true;
        assert_eq!(Need::of(&seen, Need::Starting, later), Need::Nobody);
        let alone = bps_core::pairing::testing::pair(0, [1, 0]);
        seen.group.pairs = vec![bps_core::pairing::testing::pair(1, [2, 3]), alone];
        for pair in &mut seen.group.pairs {
            pair.lease.hold = Hold::Api;
        }
        assert_eq!(Need::of(&seen, Need::Nobody, now), Need::Unsettled(now));
        seen.group.pairs.remove(0);
        assert_eq!(Need::of(&seen, Need::Nobody, now), Need::Nobody);
    }
}
