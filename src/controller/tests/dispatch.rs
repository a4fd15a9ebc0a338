//! Whose looks keep whom waiting, on a paused clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bps_observe::{Cache, Change, SetKey, Watched};
use bps_runtime::metrics::Metrics;
use bps_runtime::metrics::reconcile::ReconcileMetrics;
use bps_runtime::shutdown::Shutdown;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::apply::testing::{NOW, set};
use crate::controller::dispatch::{Looks, dispatch};
use crate::controller::queue::{Again, Job, Queue};
use crate::controller::reconcile::Look;

/// The only set whose looks end. All others wait for ever, as for Pods that nobody admits.
const QUICK: &str = "quick";

/// Time after which all that can begin has begun: the clock goes on when nothing else does.
const SETTLED: Duration = Duration::from_millis(100);

/// After this time the quick set is to be looked at again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

struct Blocked {
    metrics: Metrics,
    /// How pressing the quick set is then.
    change: Change,
    /// Names of the sets whose looks have begun, in order.
    begun: Mutex<Vec<String>>,
}

impl Looks for Blocked {
    const CONTROLLER: &'static str = "test";

    fn metrics(&self) -> &ReconcileMetrics {
        &self.metrics.reconcile
    }

    async fn look(&self, job: &Job) -> Look {
        self.begun.lock().unwrap().push(job.key.name.clone());
        if job.key.name != QUICK {
            std::future::pending::<()>().await;
        }
        Look::Settled(Some(Again { after: AGAIN_AFTER, change: self.change }))
    }
}

impl Blocked {
    fn looks_at(&self, name: &str) -> usize {
        self.begun.lock().unwrap().iter().filter(|begun| *begun == name).count()
    }
}

fn key(name: &str) -> SetKey {
    SetKey { namespace: "shop".into(), name: name.into() }
}

fn start(change: Change) -> (Arc<Blocked>, Arc<Queue>, JoinHandle<()>) {
    let looks = Arc::new(Blocked { metrics: Metrics::new("test"), change, begun: Mutex::default() });
    let queue = Arc::new(Queue::default());
    let running = tokio::spawn(dispatch(Arc::clone(&looks), Arc::clone(&queue), Shutdown::new()));
    (looks, queue, running)
}

#[tokio::test(start_paused = true)]
async fn sets_that_are_made_by_the_hundred_keep_no_failover_waiting() {
    let (looks, queue, running) = start(Change::Ordinary);
    let mut cache = Cache::default();
    for number in 0..200 {
        let mut made = set(&json!({}));
        made.metadata.name = Some(format!("new-{number}"));
        for (key, change) in made.seen(&mut cache, NOW) {
            queue.note(key, change);
        }
    }
    sleep(SETTLED).await;
    assert_eq!(looks.looks_at("new-0"), 1, "the first of them are being made");
    queue.note(key("lost"), Change::Urgent);
    sleep(SETTLED).await;
    running.abort();
    assert_eq!(looks.looks_at("lost"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_later_look_that_service_depends_on_does_not_wait_behind_ordinary_ones() {
    for (change, expected) in [(Change::Urgent, 2), (Change::Ordinary, 1)] {
        let (looks, queue, running) = start(change);
        queue.note(key(QUICK), Change::Urgent);
        for number in 0..50 {
            queue.note(key(&format!("busy-{number}")), Change::Ordinary);
        }
        sleep(AGAIN_AFTER + SETTLED).await;
        running.abort();
        assert_eq!(looks.looks_at(QUICK), expected, "{change:?}");
    }
}
