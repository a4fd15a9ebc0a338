//! Runs the looks at HA groups: who is seen becomes a plan of `pairing`, and its steps become writes.
//!
//! What is seen is read by `bps_observe::group`, what is to be done is decided by `bps_core::pairing`, and what is written goes
//! through `apply::groups`.
//!
//! | module | what it does |
//! |---|---|
//! | [`stores`] | what the watches have shown, and which group an event belongs to |
//! | [`labelled`] | objects by the group that their label names |
//! | [`memory`] | what a look keeps for the next one; all of it can be lost |
//! | [`kubelets`] | whether kubelets reach the API server, asked for once for all groups |
//! | [`group_keys`] | the keys of a group, derived from the operator's own |
//! | [`look`] | one look: see, plan, write, report |
//! | [`sight`] | what it sees |
//! | [`writes`] | what it writes, and what becomes of it |
//! | [`report`] | what it tells |

use std::sync::{Arc, Mutex};

use bps_observe::{Cache, Change, NotedNodes, Scope, SetKey};
use bps_runtime::backoff::KeyedBackoff;
use bps_runtime::clock::Clock;
use bps_runtime::lease::Leadership;
use bps_runtime::metrics::Metrics;
use bps_runtime::metrics::reconcile::ReconcileMetrics;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use kube::Client;
use tokio::sync::watch;

use super::dispatch::{Looks, dispatch};
use super::events::EventSender;
use super::queue::{Job, Queue};
use super::reconcile::{Look, after_refusals};
use crate::tickets::keys::KeyRing;

mod group_keys;
mod kubelets;
mod labelled;
mod look;
mod memory;
mod report;
mod sight;
mod stores;
mod writes;

use kubelets::Kubelets;
use memory::Memories;
use stores::{Feeds, Stores, Unlisted};

/// What the looks at groups need from the rest of the operator.
pub(super) struct Surroundings {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) leadership: Leadership,
    pub(super) metrics: Metrics,
    pub(super) events: EventSender,
    /// The operator's keys, which those of groups are derived from.
    pub(super) keys: watch::Receiver<KeyRing>,
    /// Nodes that are about to be taken away, or are off.
    pub(super) nodes_noted: watch::Receiver<NotedNodes>,
    /// What the watches of sets and nodes have shown.
    pub(super) cache: Arc<Mutex<Cache>>,
}

/// What every look at a group needs.
pub(super) struct Context {
    surroundings: Surroundings,
    stores: Vec<Stores>,
    /// How many watches have not listed yet.
    unlisted: watch::Receiver<usize>,
    memories: Mutex<Memories>,
    kubelets: Kubelets,
    /// Groups with refused writes.
    refusals: KeyedBackoff<SetKey>,
    /// Groups whose writes met newer versions.
    stale: KeyedBackoff<SetKey>,
}

impl Looks for Context {
    const CONTROLLER: &'static str = "hagroup";

    fn metrics(&self) -> &ReconcileMetrics {
        &self.surroundings.metrics.reconcile
    }

    async fn look(&self, job: &Job) -> Look {
        look::look(self, job).await
    }
}

/// Starts the watches, and the looks once this replica leads; how many watches have not listed yet.
pub(super) fn start(
    tasks: &mut Tasks,
    shutdown: &Shutdown,
    surroundings: Surroundings,
    scopes: &[Scope],
) -> watch::Receiver<usize> {
    let (queue, unlisted) = (Arc::new(Queue::closed()), Unlisted::default());
    let client = surroundings.client.clone();
    let mut start = |scope| {
        stores::start(Feeds { tasks, shutdown, client: &client, scope, queue: &queue, unlisted: &unlisted })
    };
    let stores = scopes.iter().map(&mut start).collect();
    let left = unlisted.subscribe();
    let context = Arc::new(Context {
        surroundings,
        stores,
        unlisted: left.clone(),
        memories: Mutex::default(),
        kubelets: Kubelets::default(),
        refusals: after_refusals(),
        stale: look::after_stale_writes(),
    });
    let shutdown = shutdown.clone();
    tasks.spawn("pair", async move {
        lead(context, queue, shutdown).await;
        Ok(())
    });
    left
}

/// Waits until every watch has listed.
pub(super) async fn listed(mut left: watch::Receiver<usize>) {
    // Whoever counts has ended only with the process.
    left.wait_for(|left| *left == 0).await.ok();
}

/// Waits until this replica leads and knows every group, then looks until shutdown.
async fn lead(context: Arc<Context>, queue: Arc<Queue>, shutdown: Shutdown) {
    let ready = async {
        context.surroundings.leadership.acquired().await;
        listed(context.unlisted.clone()).await;
    };
    tokio::select! {
        biased;
        () = shutdown.requested() => return,
        () = ready => {}
    }
    queue.open();
    tokio::select! {
        // Only the second one ends.
        () = look_at_all(&context, &queue) => {}
        () = dispatch(context.clone(), queue.clone(), shutdown) => {}
    }
}

/// Has every group looked at now, and whenever there are other keys to derive theirs from; and those with Pods on nodes that
/// somebody is about to take away, or that are off. Does not end.
async fn look_at_all(context: &Context, queue: &Queue) {
    let mut keys = context.surroundings.keys.clone();
    let mut noted = context.surroundings.nodes_noted.clone();
    let note_all = || {
        for key in context.stores.iter().flat_map(Stores::keys) {
            queue.note(key, Change::Ordinary);
        }
    };
    note_all();
    loop {
        tokio::select! {
            // The order does not matter: both are due.
            Ok(()) = keys.changed() => note_all(),
            Ok(()) = noted.changed() => {
                let nodes = noted.borrow_and_update().aside();
                for key in context.stores.iter().flat_map(|stores| stores.keys_on(&nodes)) {
                    queue.note(key, Change::Ordinary);
                }
            }
            // The operator is ending, and with it the looks.
            else => return std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
