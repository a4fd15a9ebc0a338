//! As many reconciles at once as allowed, never two of one set; one that panics stops no other.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bps_runtime::metrics::reconcile::{ReconcileMetrics, ReconcileResult};
use bps_runtime::shutdown::Shutdown;
use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::error;

use super::queue::{Job, Queue};
use super::reconcile::Look;

/// Most ordinary reconciles at once: enough to fill the API server's share, few enough not to starve it.
const ORDINARY_MAX: usize = 16;

/// Most reconciles at once, urgent ones included.
const ALL_MAX: u16 = 128;

/// Delay before a set whose reconcile panicked is looked at again.
const PANIC_DELAY: Duration = Duration::from_secs(30);

/// Something whose objects are looked at, each by one look at a time.
pub(super) trait Looks: Send + Sync + 'static {
    /// Label of its metrics.
    const CONTROLLER: &'static str;

    /// Where looks are counted.
    fn metrics(&self) -> &ReconcileMetrics;

    /// Looks at one object and does what is to be done.
    fn look(&self, job: &Job) -> impl Future<Output = Look> + Send;
}

struct Finished {
    job: Job,
    look: Option<Look>,
    elapsed: Duration,
}

/// Runs reconciles until shutdown; those that run then are waited for.
pub(super) async fn dispatch<L: Looks>(context: Arc<L>, queue: Arc<Queue>, shutdown: Shutdown) {
    let mut running: JoinSet<Finished> = JoinSet::new();
    let mut ordinary = 0;
    context.metrics().set_max_workers(L::CONTROLLER, ALL_MAX);
    loop {
        tokio::select! {
            // Finished ones first: they make room.
            biased;
            () = shutdown.requested() => break,
            Some(finished) = running.join_next() => {
                if let Ok(finished) = finished {
                    ordinary -= usize::from(!finished.job.change.is_urgent());
                    settle(&*context, &queue, finished);
                }
            }
            job = queue.take(ordinary < ORDINARY_MAX), if running.len() < usize::from(ALL_MAX) => {
                ordinary += usize::from(!job.change.is_urgent());
                context.metrics().queued(L::CONTROLLER);
                context.metrics().left_queue(L::CONTROLLER, job.since.elapsed());
                running.spawn(run(Arc::clone(&context), job));
            }
        }
        context.metrics().set_depth(L::CONTROLLER, queue.depth());
    }
    while running.join_next().await.is_some() {}
}

async fn run<L: Looks>(context: Arc<L>, job: Job) -> Finished {
    let started = Instant::now();
    let _worker = context.metrics().start_worker(L::CONTROLLER);
    // Unwind safety: the locks that a reconcile takes are held for a few lines that cannot panic.
    let look = AssertUnwindSafe(context.look(&job)).catch_unwind().await.ok();
    Finished { job, look, elapsed: started.elapsed() }
}

fn settle<L: Looks>(context: &L, queue: &Queue, Finished { job, look, elapsed }: Finished) {
    context.metrics().worked(L::CONTROLLER, elapsed);
    let (result, again) = match look {
        Some(Look::Settled(None)) => (ReconcileResult::Success, None),
        Some(Look::Settled(Some(again))) => (ReconcileResult::RequeueAfter, Some(again)),
        Some(Look::Refused(again)) => {
            context.metrics().retried(L::CONTROLLER);
            (ReconcileResult::Error, Some(again))
        }
        None => {
            error!(
                controller = L::CONTROLLER,
                namespace = job.key.namespace.as_str(),
                name = job.key.name.as_str(),
                "Reconcile panicked"
            );
            context.metrics().panicked(L::CONTROLLER);
            (ReconcileResult::Error, Some(PANIC_DELAY.into()))
        }
    };
    context.metrics().reconciled(L::CONTROLLER, result, elapsed);
    queue.done(&job.key);
    if let Some(again) = again {
        queue.note_later(job.key, again);
    }
}
