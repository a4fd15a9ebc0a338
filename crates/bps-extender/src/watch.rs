//! Feeds the view from the watches of nodes and Pods.

use std::time::{Duration, Instant as Moment};

use bps_runtime::shutdown::Shutdown;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::serve::SharedSums;
use super::view::NodeSums;

/// Objects asked for in one request of a list.
const PAGE_OBJECTS: u32 = 500;

/// How long a watch that has failed may show nothing until everything is listed again.
///
/// kube does not report when a watch works again, and a cluster at rest shows nothing. 5 s: half of
/// [`super::view::STALE_AFTER`], so that a moment without API server silences no scores, and long enough for most
/// watches to show an object that changes.
const DOUBTED_FOR: Duration = Duration::from_secs(5);

/// Least time from the beginning of a list to the one after the next, for a watch in doubt: two outages in a row silence no scores.
///
/// 30 s: the longest pause of kube between two attempts. An account that may list and not watch must not list a large
/// cluster every few seconds.
const LISTS_APART: Duration = Duration::from_secs(30);

/// A kind that the view knows.
pub(super) trait Viewed:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static
{
    /// Its name in logs.
    const KIND: &'static str;
    /// Selects the objects that count, by their fields; empty for all.
    const FIELDS: &'static str;
    /// Changes of the view when an object is there or gone, when a list begins and ends, and when a request fails.
    const TURNS: Turns<Self>;
}

/// Changes of the view by the events of a kind.
pub(super) struct Turns<K> {
    see: fn(&mut NodeSums, &K),
    forget: fn(&mut NodeSums, &K),
    begin: fn(&mut NodeSums),
    end: fn(&mut NodeSums),
    fail: fn(&mut NodeSums, Moment),
    /// Whether a watch has failed, and has not been seen to work since.
    is_doubted: fn(&NodeSums) -> bool,
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
        fail: NodeSums::fail_pods,
        is_doubted: NodeSums::doubts_pods,
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
        fail: NodeSums::fail_nodes,
        is_doubted: NodeSums::doubts_nodes,
    };
}

/// Watches one kind until shutdown.
pub(super) async fn watch<K: Viewed>(client: Client, shared: SharedSums, shutdown: Shutdown) {
    let mut former: Option<Instant> = None;
    loop {
        let begun = Instant::now();
        let next_list = former.map_or(begun, |former| former + LISTS_APART);
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = list_and_watch::<K>(&client, &shared, next_list) => former = Some(begun),
        }
    }
}

/// One list and the watch that follows it, until that is in doubt for [`DOUBTED_FOR`] and the next list is due. Errors are logged and tried
/// again with growing delay.
async fn list_and_watch<K: Viewed>(client: &Client, shared: &SharedSums, next_list: Instant) {
    let config = watcher::Config::default().page_size(PAGE_OBJECTS).fields(K::FIELDS);
    let events = kube::runtime::watcher(Api::<K>::all(client.clone()), config).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut doubted_until: Option<Instant> = None;
    loop {
        let event = tokio::select! {
            // Events first: one of them may end the doubt.
            biased;
            event = events.next() => event,
            () = sleep_until(doubted_until.unwrap_or_else(Instant::now)), if doubted_until.is_some() => return,
        };
        let Some(event) = event else { return };
        take(event, shared);
        let is_doubted = (K::TURNS.is_doubted)(&shared.view());
        let until = || (Instant::now() + DOUBTED_FOR).max(next_list);
        doubted_until = is_doubted.then(|| doubted_until.unwrap_or_else(until));
    }
}

/// Changes the view by what a watch has shown.
fn take<K: Viewed>(event: watcher::Result<Event<K>>, shared: &SharedSums) {
    match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => {
            shared.change(|view| (K::TURNS.see)(view, &object));
        }
        Ok(Event::Delete(object)) => shared.change(|view| (K::TURNS.forget)(view, &object)),
        Ok(Event::Init) => shared.change(K::TURNS.begin),
        Ok(Event::InitDone) => shared.change(K::TURNS.end),
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, kind = K::KIND, "Lost a watch");
            shared.change(|view| (K::TURNS.fail)(view, Instant::now().into_std()));
        }
    }
}
