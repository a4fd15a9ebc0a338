//! A toy operator that moves the active label between two Pods, in a correct form and with known mistakes.
//!
//! It shows how an operator is plugged in, and proves that the oracle can fail.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{ApiResource, GroupVersionKind},
    runtime::{WatchStreamExt, reflector, watcher},
};
use serde_json::{Value, json};

use crate::simulation::{
    actors::{GATE, add_node},
    kinds::BACKUP_POD_SETS,
    oracle::{AtMost, Invariant, ROLE_LABEL, SET_LABEL, label, standard},
    run::{Operator, Scenario, Start},
    world::{Actor, Key, World},
};

/// What the toy does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// Labels the new active Pod before it takes the label from the old one.
    PromotesFirst,
    /// Goes on when the demotion was refused with 409.
    SwallowsConflict,
    /// Deletes and patches without preconditions.
    Unguarded,
    /// Does nothing more after a pass that met an error.
    GivesUp,
    /// Writes in every pass, though nothing changes by it.
    Restless,
    /// Deletes whatever carries its label.
    DeletesForeign,
}

/// How the toy is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Passes that list.
    Passes,
    /// A task that watches, decides from its cache, and lists when a timer fires.
    Task,
}

/// One set of two Pods; the active one is `web-0` and shall be `web-1`.
#[derive(Clone, Copy, Debug)]
pub struct Toy {
    pub mistake: Mistake,
    pub form: Form,
    pub is_interleaved: bool,
}

/// The label that says which Pod of a set is active.
pub const ACTIVE_LABEL: &str = "HAState";
const WANTED: [&str; 3] = ["web-0", "web-1", COLD];
/// The Pod that begins cold and is woken.
const COLD: &str = "web-2";

/// A Pod of the set, as the toy creates it.
pub fn pod(name: &str, set_uid: &str, state: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {SET_LABEL: "web", ROLE_LABEL: "hot", ACTIVE_LABEL: state},
            "ownerReferences": [{
                "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "name": "web", "uid": set_uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    });
    if name == COLD {
        pod["spec"]["initContainers"] = json!([{"name": GATE, "image": "app:1"}]);
    }
    pod
}

/// Adds the `BackupPodSet` called `web`, and answers its uid.
pub fn add_set(world: &mut World, spec: &Value) -> String {
    let key = Key::new(&BACKUP_POD_SETS, "default", "web");
    let body = json!({"metadata": {"name": "web"}, "spec": spec});
    let set = world.create(Actor::User, &key, body).expect("a new set");
    crate::simulation::run::text(&set["metadata"]["uid"])
}

/// At most one active Pod per set, at every revision.
pub fn one_active() -> Box<dyn Invariant> {
    Box::new(AtMost {
        name: "ONE-LABEL",
        most: 1,
        group: |pod| (label(pod, ACTIVE_LABEL) == "active").then(|| label(pod, SET_LABEL).to_owned()),
    })
}

impl Scenario for Toy {
    fn name(&self) -> String {
        format!("toy {:?} {:?} interleaved={}", self.form, self.mistake, self.is_interleaved)
    }

    fn build(&self, world: &mut World) {
        add_node(world, "node-a");
        add_node(world, "node-b");
        let uid = add_set(world, &json!({"active": "web-1"}));
        for (name, state) in [("web-0", "active"), ("web-5", "standby"), (COLD, "standby")] {
            world.create(Actor::User, &Key::pod(name), pod(name, &uid, state)).expect("a new Pod");
        }
        let stranger = json!({
            "metadata": {"name": "stranger", "labels": {SET_LABEL: "web"}},
            "spec": {"containers": [{"name": "app", "image": "other:1"}]},
        });
        world.create(Actor::User, &Key::pod("stranger"), stranger).expect("a new Pod");
    }

    fn start(&self, start: Start) -> Operator {
        let toy = *self;
        match self.form {
            Form::Passes => {
                let memory = Arc::new(AtomicBool::new(false));
                Operator::Passes(Box::new(move || Box::pin(toy.remember(start.clone(), Arc::clone(&memory)))))
            }
            Form::Task => Operator::Task(Box::pin(async move { toy.listen(start).await })),
        }
    }

    fn oracle(&self) -> Vec<Box<dyn Invariant>> {
        let mut oracle = standard();
        oracle.push(one_active());
        oracle
    }

    fn is_interleaved(&self) -> bool {
        self.is_interleaved
    }
}

async fn live_pods(client: &Client) -> Result<Vec<Arc<Pod>>, String> {
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    let list = api.list(&ListParams::default().labels("backup.example.com/set=web")).await;
    Ok(list.map_err(|error| error.to_string())?.items.into_iter().map(Arc::new).collect())
}

fn sets(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("backup.example.com", "v1alpha1", "BackupPodSet");
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind))
}

/// The address of a Pod whose gate waits.
fn cold_address(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Pending"))?;
    status.pod_ip.as_deref()
}

impl Toy {
    /// One pass that lists; `has_failed` is what the incarnation remembers.
    async fn remember(self, start: Start, has_failed: Arc<AtomicBool>) -> Result<(), String> {
        if self.mistake == Mistake::GivesUp && has_failed.load(Relaxed) {
            return Ok(());
        }
        let result = match live_pods(&start.client).await {
            Ok(pods) => self.pass(&start, pods).await.map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        has_failed.fetch_or(result.is_err(), Relaxed);
        result
    }

    /// Watches Pods; decides from the cache after each event, and from a list every two minutes.
    async fn listen(self, start: Start) {
        let api: Api<Pod> = Api::namespaced(start.client.clone(), "default");
        let (store, writer) = reflector::store();
        let config = watcher::Config::default().labels("backup.example.com/set=web");
        let mut events =
            std::pin::pin!(watcher(api, config).default_backoff().reflect(writer).touched_objects());
        let mut is_ready = false;
        loop {
            // Biased: events before the timer, so that a run does not depend on which is polled first.
            let cached = tokio::select! {
                biased;
                event = events.next() => {
                    is_ready = is_ready || event.is_some_and(|event| event.is_ok());
                    true
                }
                () = tokio::time::sleep(std::time::Duration::from_secs(120)) => false,
            };
            let cache = store.state();
            let is_known = |name: &str| cache.iter().any(|pod| pod.metadata.name.as_deref() == Some(name));
            // Own creations may not be in the cache yet: what seems to be missing is looked up.
            let suffices = cached && WANTED.into_iter().all(is_known);
            let pods = if suffices { Ok(cache) } else { live_pods(&start.client).await };
            let Ok(mut pods) = pods else { continue };
            pods.sort_by_key(|pod| pod.metadata.name.clone());
            if is_ready {
                // An error is met again by the timer.
                let _ = self.pass(&start, pods).await;
            }
        }
    }

    async fn pass(self, start: &Start, pods: Vec<Arc<Pod>>) -> Result<(), kube::Error> {
        let client = &start.client;
        let api: Api<Pod> = Api::namespaced(client.clone(), "default");
        let set = sets(client).get("web").await?;
        let set_uid = set.metadata.uid.clone().unwrap_or_default();
        let is_ours = |pod: &&Arc<Pod>| {
            let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
            self.mistake == Mistake::DeletesForeign || owners.iter().any(|owner| owner.uid == set_uid)
        };
        let pods: Vec<Arc<Pod>> = pods.iter().filter(is_ours).map(Arc::clone).collect();
        let find = |name: &str| pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(name));
        for name in WANTED.into_iter().filter(|name| find(name).is_none()) {
            let pod = serde_json::from_value(pod(name, &set_uid, "standby")).expect("a Pod");
            match api.create(&PostParams::default(), &pod).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                other => drop(other?),
            }
        }
        for surplus in &pods {
            if !WANTED.contains(&surplus.metadata.name.as_deref().unwrap_or_default())
                && surplus.metadata.deletion_timestamp.is_none()
            {
                self.delete(&api, surplus).await?;
            }
        }
        let (Some(old), Some(new)) = (find("web-0"), find("web-1")) else { return Ok(()) };
        if self.mistake == Mistake::PromotesFirst {
            self.mark(&api, new, "active").await?;
        }
        match self.mark(&api, old, "standby").await {
            Err(kube::Error::Api(status))
                if status.code == 409 && self.mistake == Mistake::SwallowsConflict => {}
            other => other?,
        }
        self.mark(&api, new, "active").await?;
        if let Some(address) = find(COLD).and_then(|pod| cold_address(pod)) {
            // A ticket that was refused or lost is sent again by the next pass.
            let _ = start.hub.wake(start.incarnation, address).await;
        }
        if set.data["status"]["active"] != "web-1" || self.mistake == Mistake::Restless {
            let generation = set.metadata.generation;
            let status =
                Patch::Merge(json!({"status": {"active": "web-1", "observedGeneration": generation}}));
            sets(client).patch_status("web", &PatchParams::default(), &status).await?;
        }
        Ok(())
    }

    async fn delete(self, api: &Api<Pod>, pod: &Pod) -> Result<(), kube::Error> {
        let metadata = &pod.metadata;
        let preconditions =
            Preconditions { uid: metadata.uid.clone(), resource_version: metadata.resource_version.clone() };
        let params = DeleteParams {
            preconditions: (self.mistake != Mistake::Unguarded).then_some(preconditions),
            ..DeleteParams::default()
        };
        api.delete(metadata.name.as_deref().unwrap_or_default(), &params).await.map(drop)
    }

    async fn mark(self, api: &Api<Pod>, pod: &Pod, state: &str) -> Result<(), kube::Error> {
        let metadata = &pod.metadata;
        if metadata.labels.as_ref().and_then(|all| all.get(ACTIVE_LABEL)).is_some_and(|now| now == state) {
            return Ok(());
        }
        let mut patch = json!({"metadata": {"labels": {ACTIVE_LABEL: state}}});
        if self.mistake != Mistake::Unguarded {
            patch["metadata"]["uid"] = json!(metadata.uid);
            patch["metadata"]["resourceVersion"] = json!(metadata.resource_version);
        }
        let name = metadata.name.as_deref().unwrap_or_default();
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }
}
