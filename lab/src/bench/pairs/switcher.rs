//! The way in which other operators switch: watch the readiness of two Pods, and move a label from one to the other.
//!
//! It is what pairs are compared with. `decide` is pure.

use std::time::Duration;

use bps_api::keys;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::store;
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::hollow::is_ready;

/// Pause after a write that the API server refused; the next event or look tries again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A running switcher; dropping it ends it.
pub struct Switcher(JoinHandle<()>);

impl Drop for Switcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One Pod as the switcher sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    name: String,
    is_ready: bool,
    is_active: bool,
}

/// What the label of a Pod becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    pod: String,
    is_active: bool,
}

/// Switches the Pods with this label `app` until it is dropped.
pub fn start(client: &Client, namespace: &str, app: &str) -> Switcher {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let config = watcher::Config::default().labels(&format!("app={app}"));
    Switcher(tokio::spawn(async move {
        let (reader, writer) = store();
        let events = watcher::watcher(pods.clone(), config).default_backoff().reflect(writer);
        let mut events = std::pin::pin!(events);
        // What a label has just become is not in the store yet: a later event corrects what this makes too often.
        while events.next().await.is_some() {
            let mut seen: Vec<Seen> = reader.state().iter().map(|pod| see(pod)).collect();
            seen.sort_by(|one, other| one.name.cmp(&other.name));
            for change in decide(&seen) {
                if write(&pods, &change).await.is_err() {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }))
}

fn see(pod: &Pod) -> Seen {
    let state = pod.labels().get(keys::LABEL_HA_STATE);
    Seen {
        name: pod.name_any(),
        is_ready: is_ready(pod) && pod.metadata.deletion_timestamp.is_none(),
        is_active: state.is_some_and(|state| state == keys::HA_ROLE_ACTIVE),
    }
}

/// Nothing while one ready Pod has the label; otherwise it is taken from all that have it and given to the first ready
/// one, if there is one.
fn decide(pods: &[Seen]) -> Vec<Change> {
    let is_good = |pod: &&Seen| pod.is_ready && pod.is_active;
    let Some(active) = pods.iter().find(is_good).or_else(|| pods.iter().find(|pod| pod.is_ready)) else {
        return Vec::new();
    };
    let others = pods.iter().filter(|pod| pod.is_active && pod.name != active.name);
    let mut changes: Vec<Change> =
        others.map(|pod| Change { pod: pod.name.clone(), is_active: false }).collect();
    if !active.is_active {
        changes.push(Change { pod: active.name.clone(), is_active: true });
    }
    changes
}

async fn write(pods: &Api<Pod>, change: &Change) -> kube::Result<()> {
    let state = if change.is_active { keys::HA_ROLE_ACTIVE } else { keys::HA_ROLE_STANDBY };
    let patch = Patch::Merge(json!({"metadata": {"labels": {(keys::LABEL_HA_STATE): state}}}));
    match pods.patch(&change.pod, &PatchParams::default(), &patch).await {
        // Gone: its own event follows.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        written => written.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, is_ready: bool, is_active: bool) -> Seen {
        Seen { name: name.to_owned(), is_ready, is_active }
    }

    fn change(pod: &str, is_active: bool) -> Change {
        Change { pod: pod.to_owned(), is_active }
    }

    #[test]
    fn the_label_stays_where_it_is_while_its_pod_is_ready() {
        assert_eq!(decide(&[pod("a", true, false), pod("b", true, true)]), []);
        assert_eq!(decide(&[pod("a", true, true), pod("b", true, true)]), [change("b", false)]);
    }

    #[test]
    fn the_label_moves_to_the_first_ready_pod() {
        let moved = [change("a", false), change("b", true)];
        assert_eq!(decide(&[pod("a", false, true), pod("b", true, false)]), moved);
        assert_eq!(decide(&[pod("a", true, false), pod("b", true, false)]), [change("a", true)]);
    }

    #[test]
    fn without_a_ready_pod_nothing_moves() {
        assert_eq!(decide(&[pod("a", false, true), pod("b", false, false)]), []);
        assert_eq!(decide(&[]), []);
    }
}
