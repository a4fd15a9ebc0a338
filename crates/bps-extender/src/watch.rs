//! Feeds the view from the watches of nodes and Pods.

use bps_runtime::shutdown::Shutdown;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::serve::SharedSums;
use super::view::NodeSums;

/// Objects asked for in one request of a list.
const PAGE_OBJECTS: u32 = 500;

/// A kind that the view knows.
pub(super) trait Viewed:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static
{
    /// Its name in logs.
    const KIND: &'static str;
    /// Selects the objects that count, by their fields; empty for all.
    const FIELDS: &'static str;
    /// Changes of the view when an object is there or gone, and when a list begins and ends.
    const TURNS: Turns<Self>;
}

/// Changes of the view by the events of a kind.
pub(super) struct Turns<K> {
    see: fn(&mut NodeSums, &K),
    forget: fn(&mut NodeSums, &K),
    begin: fn(&mut NodeSums),
    end: fn(&mut NodeSums),
}

impl Viewed for Pod {
    const KIND: &'static str = "Pods";
    // As kube-scheduler does: one that has ended comes as deleted.
    const FIELDS: &'static str = "status.phase!=Succeeded,status.phase!=Failed";
    const TURNS: Turns<Self> = Turns {
        see: NodeSums::see_pod,
        forget: NodeSums::forget_pod,
        begin: NodeSums::begin_pods,
        end: NodeSums::end_pods,
    };
}

impl Viewed for Node {
    const KIND: &'static str = "Nodes";
    const FIELDS: &'static str = "";
    const TURNS: Turns<Self> = Turns {
        see: NodeSums::see_node,
        forget: NodeSums::forget_node,
        begin: NodeSums::begin_nodes,
        end: NodeSums::end_nodes,
    };
}

/// Watches one kind until shutdown; errors are logged and tried again with growing delay.
pub(super) async fn watch<K: Viewed>(client: Client, shared: SharedSums, shutdown: Shutdown) {
    let config = watcher::Config::default().page_size(PAGE_OBJECTS).fields(K::FIELDS);
    let events = kube::runtime::watcher(Api::<K>::all(client), config).default_backoff();
    let mut events = std::pin::pin!(events);
    loop {
        let event = tokio::select! {
            biased;
            () = shutdown.requested() => return,
            event = events.next() => event,
        };
        let Some(event) = event else { return };
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                shared.change(|view| (K::TURNS.see)(view, &object));
            }
            Ok(Event::Delete(object)) => shared.change(|view| (K::TURNS.forget)(view, &object)),
            Ok(Event::Init) => shared.change(K::TURNS.begin),
            Ok(Event::InitDone) => shared.change(K::TURNS.end),
            Err(error) => warn!(error = &error as &dyn std::error::Error, kind = K::KIND, "Lost a watch"),
        }
    }
}
