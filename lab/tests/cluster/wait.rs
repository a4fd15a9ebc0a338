//! Waits for what a watch shows, never longer than a limit, and says what was last seen if it did not come.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use bps_api::keys;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

/// Longest wait for almost anything.
///
/// 150 s: the longest retry of the operator is 60 s, and the control plane gives a silent node up after 25 s.
pub(crate) const LIMIT: Duration = Duration::from_secs(150);

/// Waits until the objects with these labels are as `judge` wants them; it says in `Err` what is still missing.
pub(crate) async fn until<K, T>(api: Api<K>, labels: &str, judge: impl FnMut(&[K]) -> Result<T, String>) -> T
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    within(LIMIT, api, labels, judge).await
}

/// The same for what may take longer, or must not.
pub(crate) async fn within<K, T>(
    limit: Duration,
    api: Api<K>,
    labels: &str,
    mut judge: impl FnMut(&[K]) -> Result<T, String>,
) -> T
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut missing = "nothing was listed".to_owned();
    let judged = async {
        let events = watch(api, watcher::Config::default().labels(labels)).default_backoff();
        pin_mut!(events);
        let mut known: BTreeMap<String, K> = BTreeMap::new();
        let mut is_listed = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    known.clear();
                    is_listed = false;
                }
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    known.insert(object.uid().unwrap_or_default(), object);
                }
                Ok(Event::Delete(object)) => {
                    known.remove(&object.uid().unwrap_or_default());
                }
                Ok(Event::InitDone) => is_listed = true,
                // The API server may be away for a while; the watcher tries again.
                Err(_) => continue,
            }
            if is_listed {
                match judge(&known.values().cloned().collect::<Vec<_>>()) {
                    Ok(found) => return Some(found),
                    Err(reason) => missing = reason,
                }
            }
        }
        None
    };
    let found = tokio::time::timeout(limit, judged).await.ok().flatten();
    found.unwrap_or_else(|| panic!("not within {} s: {missing}", limit.as_secs()))
}

/// Role of a Pod by its label.
pub(crate) fn role(pod: &Pod) -> &str {
    pod.labels().get(keys::LABEL_ROLE).map_or("", String::as_str)
}

/// Whether the condition Ready is true and every container agrees.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    lab::hollow::is_ready(pod) && containers.is_some_and(|all| all.iter().all(|one| one.ready))
}

/// Status of the gate's container.
pub(crate) fn gate(pod: &Pod) -> Option<&ContainerStatus> {
    let containers = pod.status.as_ref()?.init_container_statuses.as_ref()?;
    containers.iter().find(|one| one.name == keys::CONTAINER_GATE)
}

/// Whether a cold Pod waits at its gate.
pub(crate) fn is_at_gate(pod: &Pod) -> bool {
    gate(pod).is_some_and(|one| one.state.as_ref().is_some_and(|state| state.running.is_some()))
}

/// Whether a Pod is what its role promises: ready, or waiting at the gate.
pub(crate) fn is_available(pod: &Pod) -> bool {
    if role(pod) == "cold" { is_at_gate(pod) } else { is_ready(pod) }
}

/// Whether the Pod stays: nobody asked for its end.
pub(crate) fn stays(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
}

/// One line about a Pod.
pub(crate) fn describe(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    format!(
        "{}/{} role={} node={node} phase={phase} available={} stays={}",
        pod.namespace().unwrap_or_default(),
        pod.name_any(),
        role(pod),
        is_available(pod),
        stays(pod)
    )
}
