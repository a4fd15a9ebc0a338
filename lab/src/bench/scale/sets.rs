//! Makes many sets, breaks some of their primaries at once, and waits for the successors.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_api::{BackupPodSet, keys};
use bps_core::model::Role;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::process::WITHIN;
use crate::bench::{Error, NAMESPACE};
use crate::hollow::{HollowNodes, is_ready};
use crate::stage::{Counts, PodSight, sight};

/// Sets that are created at the same time.
const CREATED_AT_ONCE: usize = 16;
/// Pause between two looks at all Pods.
const POLL: Duration = Duration::from_millis(500);
/// Pods of a set, 2 of each.
const COUNTS: Counts = Counts::of_each(2);

/// Many sets.
pub(super) struct Sets {
    pub(super) client: Client,
    pub(super) count: u16,
}

impl Sets {
    /// Creates them and waits until all their Pods are in place.
    pub(super) async fn create(&self) -> Result<Duration, Error> {
        let api: &Api<BackupPodSet> = &Api::namespaced(self.client.clone(), NAMESPACE);
        let parameters = &PostParams::default();
        let began = Instant::now();
        let created = stream::iter(0..self.count).map(async |number| {
            let made = api.create(parameters, &set(&format!("many-{number}"), COUNTS)).await;
            made.map(drop).map_err(Error::request("create", "a set"))
        });
        created.buffer_unordered(CREATED_AT_ONCE).try_collect::<()>().await?;
        while !self.are_in_place().await? {
            if began.elapsed() >= WITHIN {
                return Err(Error::Find { what: "all pods of all sets in place".to_owned() });
            }
            sleep(POLL).await;
        }
        Ok(began.elapsed())
    }

    async fn are_in_place(&self) -> Result<bool, Error> {
        let mut by_set: BTreeMap<String, Vec<PodSight>> = BTreeMap::new();
        for pod in self.pods("").await? {
            by_set.entry(set_of(&pod)).or_default().push(PodSight::of(&pod));
        }
        let are_in_place = by_set.values().all(|pods| sight::are_in_place(pods, COUNTS));
        Ok(by_set.len() == usize::from(self.count) && are_in_place)
    }

    /// Makes the readiness of one primary of so many sets fail at once; the time until each of these sets has
    /// another ready primary, and the Pods that failed.
    pub(super) async fn fail(
        &self,
        nodes: &HollowNodes,
        count: u16,
    ) -> Result<(Duration, Vec<ObjectRef<Pod>>), Error> {
        let primaries = self.pods(&format!("{}={}", keys::LABEL_ROLE, Role::Primary)).await?;
        let before: BTreeSet<String> = primaries.iter().map(ResourceExt::name_any).collect();
        let by_set: BTreeMap<String, &Pod> = primaries.iter().map(|pod| (set_of(pod), pod)).collect();
        let chosen = by_set.iter().take(usize::from(count));
        let (mut waiting, mut victims) = (BTreeSet::new(), Vec::new());
        for (set, pod) in chosen {
            waiting.insert(set.clone());
            victims.push(ObjectRef::from_obj(*pod));
        }
        let config = watcher::Config::default().labels(keys::LABEL_SET);
        let events = watcher::watcher(Api::<Pod>::namespaced(self.client.clone(), NAMESPACE), config);
        let mut events = std::pin::pin!(events);
        while !matches!(events.next().await, Some(Ok(Event::InitDone)) | None) {}
        let began = Instant::now();
        nodes.fail_pods(&victims).await.map_err(|error| Error::Hollow(Box::new(error)))?;
        let promoted = async {
            while !waiting.is_empty() {
                if let Some(Ok(Event::Apply(pod))) = events.next().await
                    && is_ready(&pod)
                    && PodSight::of(&pod).role == Some(Role::Primary)
                    && !before.contains(&pod.name_any())
                {
                    waiting.remove(&set_of(&pod));
                }
            }
        };
        let overdue = |_| Error::Find { what: "successors of all failed primaries".to_owned() };
        timeout(WITHIN, promoted).await.map_err(overdue)?;
        Ok((began.elapsed(), victims))
    }

    async fn pods(&self, labels: &str) -> Result<Vec<Pod>, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        // From the watch cache: a poll must not load etcd.
        let parameters = ListParams::default().labels(labels).match_any();
        Ok(api.list(&parameters).await.map_err(Error::request("list", "the pods"))?.items)
    }
}

fn set_of(pod: &Pod) -> String {
    pod.labels().get(keys::LABEL_SET).cloned().unwrap_or_default()
}

/// A set whose Pods hollow nodes take.
pub(super) fn set(name: &str, counts: Counts) -> BackupPodSet {
    let Counts { primaries, hot, cold } = counts;
    let set = json!({
        "apiVersion": "backup.example.com/v1alpha1",
        "kind": "BackupPodSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": primaries, "hotBackups": hot, "coldBackups": cold,
            // Hollow nodes bind by themselves; no scheduler feels responsible for this name.
            "schedulerName": "hollow",
            "template": {
                "metadata": {"labels": {"app": "many"}},
                "spec": {"containers": [{"name": "web", "image": "registry.local/lab-app:dev"}]},
            },
        },
    });
    serde_json::from_value(set).expect("a set")
}
