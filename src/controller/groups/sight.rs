//! What one look at a group sees: by the watches, and by what it asks of the API server.

use std::collections::BTreeSet;
use std::sync::Arc;

use bps_api::keys;
use bps_core::manifests::pair_name;
use bps_core::model::NodeName;
use bps_core::pairing::are_ahead;
use bps_observe::group::{PodEnd, SeenEnds, SeenGroup, SeenPods, Watches, see_group};
use bps_observe::is_out_of_service;
use bps_observe::slim::{SlimNode, SlimPod};
use bps_protocol::BootTime;
use bps_runtime::boot_clock;
use bps_wire::uid::parse_uid;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use tracing::warn;

use super::look::Round;
use super::memory::GroupMemory;
use crate::apply::groups::at_most;

impl Round<'_> {
    /// What the watches show, but for Leases that are known to be others than theirs shows, and when that was so: waits for the
    /// end of whoever wrote a Lease begin there, so never before it was read. `None` if they are about to show what was written.
    pub(super) async fn see(
        &self,
        memory: &mut GroupMemory,
    ) -> Result<Option<(SeenGroup, BootTime)>, kube::Error> {
        let mut objects = self.stores.objects(self.key);
        memory.seen.leases.see_ends(SeenEnds {
            leases: &self.stores.take_ends(self.key),
            lists: self.stores.lists(),
            led_since: self.context.surroundings.leadership.acquired_version(),
            group: self.group,
        });
        let now = boot_clock::now();
        let watches = memory.seen.awaited.watches(now, |kind, name| objects.version_of(kind, name));
        if watches == Watches::Behind {
            return Ok(None);
        }
        let seen = see_group(self.group, &objects, now);
        if watches == Watches::InStep && !are_ahead(self.group, &seen.group, &seen.objects.slices) {
            return Ok(Some((seen, now)));
        }
        let client = self.context.surroundings.client.clone();
        let of_group = ListParams::default().labels(&format!("{}={}", keys::LABEL_GROUP, self.key.name));
        let list = Api::<Lease>::namespaced(client, &self.key.namespace).list(&of_group).await?;
        let now = boot_clock::now();
        let leases = list.items.into_iter().map(Arc::new).collect();
        objects.leases = memory.seen.awaited.read(leases, &objects.leases, now);
        Ok(Some((see_group(self.group, &objects, now), now)))
    }

    /// Notes who does not start again. What watches show is asked for before it counts: Pods that seem to be gone, and then their
    /// nodes.
    pub(super) async fn see_departed(
        &self,
        seen: &mut SeenGroup,
        memory: &mut GroupMemory,
        off: &BTreeSet<NodeName>,
    ) {
        let (departed, group, now) = (&mut memory.seen.departed, &seen.group, boot_clock::now());
        let present = std::mem::take(&mut seen.pod_ends);
        let gone = self.stores.take_pod_ends(self.key);
        departed.see(SeenPods { group, present, gone, off });

        let doubted = departed.doubted(group, off, now).into_iter();
        let doubted = doubted.map(async |end| (self.is_there(&end).await, end));
        for (is_there, end) in at_most(doubted.collect()).await {
            if let Some(is_there) = self.answer("Pod", &end.name, is_there) {
                departed.settle(end.id, is_there, boot_clock::now());
            }
        }

        let nodes = departed.sought(group, off, boot_clock::now()).into_iter();
        let (off, working): (Vec<_>, Vec<_>) = nodes.partition(|(_, is_off)| *is_off);
        let off = off.into_iter().map(async |(node, _)| (self.is_vouched_for(&node).await, node));
        for (is_vouched_for, node) in at_most(off.collect()).await {
            if let Some(is_vouched_for) = self.answer("node", &node.0, is_vouched_for) {
                departed.vouch(&node, is_vouched_for);
            }
        }
        let client = &self.context.surroundings.client;
        let working = working.into_iter();
        let working = working.map(async |(node, _)| (self.context.kubelets.ask(client, &node).await, node));
        for (heard, node) in at_most(working.collect()).await {
            if let Some(heard) = self.answer("Lease of the node", &node.0, heard) {
                departed.hear(&node, &heard);
            }
        }
        departed.tell(&mut seen.group, boot_clock::now());
    }

    async fn is_there(&self, end: &PodEnd) -> Result<bool, kube::Error> {
        let client = self.context.surroundings.client.clone();
        let api: Api<SlimPod> = Api::namespaced(client, &self.key.namespace);
        let found = api.get_opt(&end.name).await?;
        let uid = found.and_then(|pod| parse_uid(pod.metadata.uid.as_deref()?).ok());
        Ok(uid == Some(end.id.0))
    }

    async fn is_vouched_for(&self, node: &NodeName) -> Result<bool, kube::Error> {
        let api: Api<SlimNode> = Api::all(self.context.surroundings.client.clone());
        Ok(api.get_opt(&node.0).await?.is_some_and(|node| is_out_of_service(&node)))
    }

    /// What was asked for, if there was an answer.
    fn answer<T>(&self, kind: &str, name: &str, answer: Result<T, kube::Error>) -> Option<T> {
        let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
        let answer = answer.inspect_err(|error| {
            let error = error as &dyn std::error::Error;
            warn!(
                namespace,
                group, kind, name, error, "Could not ask what became of a Pod that seems to be gone"
            );
        });
        answer.ok()
    }

    /// Says which Leases are not what they should be.
    pub(super) fn tell_leases(&self, seen: &SeenGroup, troubles: &mut Vec<String>) {
        let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
        for (lease, error) in &seen.unreadable {
            let error = error.as_ref().map(|error| error as &dyn std::error::Error);
            warn!(namespace, group, lease, error, "Could not read the Lease of a pair");
            troubles.push(format!(
                "the Lease {lease} is not as agents write it: delete it, it is made anew once nobody can act by it any more"
            ));
        }
        for pair in &seen.set_back {
            let lease = pair_name(&self.key.name, *pair);
            warn!(namespace, group, lease, "The Lease of a pair was set back to a term that is over");
            troubles.push(format!(
                "the Lease {lease} was set back to a term that is over: it is deleted, and made anew once nobody can act by it any more"
            ));
        }
    }
}
