//! Feeds the view from the watches of nodes and Pods.

use bps_runtime::shutdown::Shutdown;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::serve::Shared;
use super::view::View;

/// Objects asked for in one request of a list.
const PAGE_OBJECTS: u32 = 500;

/// A kind that the view knows.
pub(super) trait Viewed:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static
{
    /// Its name in logs.
    const KIND: &'static str;
    /// What happens to the view when it is there, is gone, and when a list begins and ends.
    const TURNS: Turns<Self>;
}

/// How events of a kind change the view.
pub(super) struct Turns<K> {
    see: fn(&mut View, &K),
    forget: fn(&mut View, &K),
    begin: fn(&mut View),
    end: fn(&mut View),
}

impl Viewed for Pod {
    const KIND: &'static str = "Pods";
    const TURNS: Turns<Self> =
        Turns { see: View::see_pod, forget: View::forget_pod, begin: View::begin_pods, end: View::end_pods };
}

impl Viewed for Node {
    const KIND: &'static str = "Nodes";
    const TURNS: Turns<Self> = Turns {
        see: View::see_node,
        forget: View::forget_node,
        begin: View::begin_nodes,
        end: View::end_nodes,
    };
}

/// Watches one kind until shutdown; errors are logged and tried again with growing delay.
pub(super) async fn watch<K: Viewed>(client: Client, shared: Shared, shutdown: Shutdown) {
    let config = watcher::Config::default().page_size(PAGE_OBJECTS);
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
