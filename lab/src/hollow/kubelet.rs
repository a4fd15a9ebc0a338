//! Watches Pods and writes for those on hollow nodes what `pod::next` decides.
//!
//! Decides nothing about a Pod itself; one Pod is never written twice at the same time.

use super::node::{self, HollowNode, Readiness};
use super::pod::{self, Next, Sandbox};
use super::state::{State, key};
use super::{Binding, Conduct, Error, Options};
use futures::{Stream, StreamExt, TryStreamExt, future::BoxFuture, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::controller::{Action, Config as QueueConfig, Error as QueueError, applier, trigger_self};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

/// Pods that wait for their turn after a command; more make the command wait.
const TRIGGERS_MAX: usize = 1024;
/// Pause before a Pod whose write failed is looked at again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Pause before a Pod that found all nodes full is looked at again.
const FULL_PAUSE: Duration = Duration::from_secs(1);
/// Heartbeats, or Pods of a lost node, that are written at the same time.
const SIDE_WRITES_IN_FLIGHT: usize = 16;

/// All hollow nodes of one client.
pub(super) struct Kubelet {
    client: Client,
    nodes: Vec<HollowNode>,
    options: Options,
    store: Store<Pod>,
    state: Mutex<State>,
    trigger: Sender<ObjectRef<Pod>>,
    /// Whether the Pods have been listed once. Of several tasks that wait for a store to be ready, kube 5.0 wakes
    /// only the last, and the queue waits for it already.
    is_listed: watch::Sender<bool>,
}

impl Kubelet {
    /// The kubelet, and the work that must be driven for it.
    pub(super) fn new(
        client: Client,
        nodes: Vec<HollowNode>,
        options: Options,
    ) -> (Arc<Kubelet>, impl Future<Output = ()> + Send + 'static) {
        let (store, writer) = store();
        let (trigger, triggers) = mpsc::channel(TRIGGERS_MAX);
        let state = Mutex::default();
        let is_listed = watch::Sender::new(false);
        let kubelet = Arc::new(Kubelet { client, nodes, options, store, state, trigger, is_listed });
        let config = match kubelet.options.binding {
            Binding::Scheduler => watcher::Config::default().fields("spec.nodeName!="),
            Binding::FewestPods => watcher::Config::default(),
        };
        let pods = watcher::watcher(Api::<Pod>::all(kubelet.client.clone()), config)
            .default_backoff()
            .modify(|pod| pod.managed_fields_mut().clear());
        let observer = Arc::clone(&kubelet);
        let mut listed = BTreeSet::new();
        // Before the store: a Pod that is gone must have given its address back when its successor is seen.
        let pods = pods.inspect_ok(move |event| observer.forget_gone(event, &mut listed)).reflect(writer);
        let observer = Arc::clone(&kubelet);
        let pods = pods.inspect_ok(move |event| {
            if matches!(event, Event::InitDone) {
                observer.is_listed.send_replace(true);
            }
        });
        let changes = trigger_self(pods.touched_objects(), ()).boxed();
        let commands = from_channel(triggers).map(|pod| Ok(pod.into())).boxed();
        let queue = stream::select(commands, changes);
        let limits = QueueConfig::default().concurrency(kubelet.options.writes_in_flight);
        let work = applier(
            reconcile,
            |_, _, _| Action::requeue(RETRY_PAUSE),
            Arc::clone(&kubelet),
            kubelet.store.clone(),
            queue,
            limits,
        );
        let run = work.for_each(async |result| match result {
            // A Pod that went while it was queued.
            Ok(_) | Err(QueueError::ObjectNotFound(_)) => {}
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "Could not serve hollow pod");
            }
        });
        (kubelet, run)
    }

    /// What becomes of Pods.
    pub(super) fn conduct(&self) -> Conduct {
        self.options.conduct
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn nodes(&self) -> &[HollowNode] {
        &self.nodes
    }

    /// Waits until the Pods have been listed once.
    pub(super) async fn wait_until_listed(&self) {
        let mut is_listed = self.is_listed.subscribe();
        is_listed.wait_for(|is_listed| *is_listed).await.expect("this value holds the sender");
    }

    /// The Pods on these nodes that satisfy the predicate, as last seen.
    pub(super) fn pods_where(&self, predicate: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
        let is_ours = |pod: &Pod| node_name(pod).is_some_and(|name| self.node(name).is_some());
        self.store.state_filter(|pod| is_ours(pod) && predicate(pod))
    }

    pub(super) fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods_where(|pod| node_name(pod) == Some(node))
    }

    /// Changes the sandbox of a Pod and has the Pod looked at.
    pub(super) async fn change(
        &self,
        pod: &ObjectRef<Pod>,
        change: impl FnOnce(&mut Sandbox),
    ) -> Result<(), Error> {
        if !self.state().change(pod, change) {
            return Err(Error::UnknownPod(pod.clone()));
        }
        self.trigger.send(pod.clone()).await.map_err(|_| Error::Ended)
    }

    pub(super) fn set_power(&self, node: &str, has_power: bool) -> Result<(), Error> {
        self.node(node).ok_or_else(|| Error::UnknownNode(node.to_owned()))?;
        self.state().set_power(node, has_power);
        Ok(())
    }

    /// Writes about a node and its Pods what the node lifecycle controller would.
    pub(super) async fn write_lost(&self, node: &str) -> Result<(), Error> {
        let failed = |source| Error::WriteNode { node: node.to_owned(), source };
        node::write_readiness(&self.client, node, Readiness::Unknown).await.map_err(failed)?;
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::now());
        let ready = json!({ "type": "Ready", "status": "False", "reason": "NodeNotReady", "lastTransitionTime": now });
        let status = json!({ "conditions": [ready] });
        let writes = stream::iter(self.pods_on(node)).map(|pod| self.patch_status(pod, status.clone()));
        writes.buffer_unordered(SIDE_WRITES_IN_FLIGHT).try_collect().await
    }

    /// Writes that a node is ready again, and has its Pods looked at.
    pub(super) async fn write_back(&self, node: &str) -> Result<(), Error> {
        let failed = |source| Error::WriteNode { node: node.to_owned(), source };
        node::renew(&self.client, node).await.map_err(failed)?;
        node::write_readiness(&self.client, node, Readiness::Ready).await.map_err(failed)?;
        for pod in self.pods_on(node) {
            self.trigger.send(ObjectRef::from_obj(&*pod)).await.map_err(|_| Error::Ended)?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything in it can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, name: &str) -> Option<&HollowNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    fn forget_gone(&self, event: &Event<Pod>, listed: &mut BTreeSet<(String, String)>) {
        let key_of = |pod: &Pod| key(&ObjectRef::from_obj(pod));
        match event {
            Event::Delete(pod) => self.state().forget(&key_of(pod)),
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                listed.insert(key_of(pod));
            }
            Event::InitDone => self.state().retain(&std::mem::take(listed)),
            Event::Apply(_) => {}
        }
    }

    async fn patch_status(&self, pod: Arc<Pod>, status: serde_json::Value) -> Result<(), Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        // The uid keeps the status away from a successor of the same name.
        let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.uid() }, "status": status }));
        let written = pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
        unless_gone(&pod, written)
    }

    async fn write(&self, pod: Arc<Pod>, status: &PodStatus) -> Result<(), Error> {
        let status = serde_json::to_value(status).expect("a Pod's status has only string keys");
        self.patch_status(pod, status).await
    }

    async fn remove(&self, pod: &Pod) -> Result<(), Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let parameters = DeleteParams::default().grace_period(0).preconditions(preconditions);
        unless_gone(pod, pods.delete(&pod.name_any(), &parameters).await)
    }

    /// Binds a Pod that has no node; its echo brings it back with one.
    async fn bind(&self, pod: &Pod) -> Result<Action, Error> {
        let is_gated = pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.is_some());
        if self.options.binding == Binding::Scheduler || is_gated || pod.metadata.deletion_timestamp.is_some()
        {
            return Ok(Action::await_change());
        }
        let node = {
            let mut state = self.state();
            let node = state.emptiest(&self.nodes).cloned();
            // Takes the place now: the next Pod must not count on it.
            node.filter(|node| state.sandbox(pod, node, Timestamp::now()).is_some())
        };
        let Some(node) = node else { return Ok(Action::requeue(FULL_PAUSE)) };
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": pod.name_any(), "namespace": pod.namespace(), "uid": pod.uid() },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node.name },
        });
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/binding",
            pod.namespace().unwrap_or_default(),
            pod.name_any()
        );
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(binding.to_string().into_bytes())
            .expect("names of objects are valid in a path");
        // The answer is a Status, not a Binding, so the typed call cannot read it.
        let bound = self.client.request::<serde_json::Value>(request).await;
        unless_gone(pod, bound).inspect_err(|_| self.state().forget(&key(&ObjectRef::from_obj(pod))))?;
        Ok(Action::await_change())
    }
}

fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Gone or replaced since it was seen: its own event follows.
fn unless_gone<T>(pod: &Pod, result: kube::Result<T>) -> Result<(), Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(source) => Err(Error::WritePod { pod: ObjectRef::from_obj(pod), source: Box::new(source) }),
    }
}

fn from_channel(receiver: Receiver<ObjectRef<Pod>>) -> impl Stream<Item = ObjectRef<Pod>> + Send {
    stream::unfold(receiver, async |mut receiver| receiver.recv().await.map(|pod| (pod, receiver)))
}

fn reconcile(pod: Arc<Pod>, kubelet: Arc<Kubelet>) -> BoxFuture<'static, Result<Action, Error>> {
    Box::pin(async move {
        let Some(name) = node_name(&pod) else { return kubelet.bind(&pod).await };
        let Some(node) = kubelet.node(name) else { return Ok(Action::await_change()) };
        let (now, timings) = (Timestamp::now(), &kubelet.options.timings);
        let next = {
            let mut state = kubelet.state();
            if !state.has_power(name) {
                return Ok(Action::await_change());
            }
            let Some(sandbox) = state.sandbox(&pod, node, now) else {
                return Ok(Action::requeue(FULL_PAUSE));
            };
            sandbox.notice(&pod, timings, now);
            pod::next(&pod, sandbox, timings, now)
        };
        match next {
            Next::Write(status) => kubelet.write(pod, &status).await.map(|()| Action::await_change()),
            Next::Remove => kubelet.remove(&pod).await.map(|()| Action::await_change()),
            Next::Wait(None) => Ok(Action::await_change()),
            Next::Wait(Some(until)) => {
                let pause = until.duration_since(now).unsigned_abs();
                Ok(Action::requeue(pause))
            }
        }
    })
}

/// Renews the Leases of all nodes that have power, each period, for ever.
pub(super) async fn send_heartbeats(kubelet: Arc<Kubelet>) {
    let mut ticks = tokio::time::interval(kubelet.options.heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let powered = kubelet.nodes.iter().filter(|node| kubelet.state().has_power(&node.name));
        let powered: Vec<&HollowNode> = powered.collect();
        let renew = async |node: &HollowNode| {
            if let Err(error) = node::renew(&kubelet.client, &node.name).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(node = node.name, error, "Could not renew heartbeat");
            }
        };
        stream::iter(powered).for_each_concurrent(SIDE_WRITES_IN_FLIGHT, renew).await;
    }
}
