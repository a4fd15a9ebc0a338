//! Tests of the task set: under paused time, so that bounds are exact and nothing is waited for.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{self, StreamExt};
use tokio::time::sleep;

use super::*;

fn polite(shutdown: &Shutdown) -> impl Future<Output = Result<(), TaskError>> + Send + use<> {
    let shutdown = shutdown.clone();
    async move {
        shutdown.requested().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_stops_all_tasks_and_is_no_error() {
    let (shutdown, mut tasks) = (Shutdown::new(), Tasks::new());
    tasks.spawn("one", polite(&shutdown));
    tasks.spawn("two", polite(&shutdown));

    let outcome = tasks.run(&shutdown, Signals::from_stream(stream::iter(["SIGTERM"]))).await;

    assert!(outcome.is_ok(), "{outcome:?}");
    assert!(shutdown.is_requested());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_without_being_asked_stops_the_others_and_is_named() {
    let (shutdown, mut tasks) = (Shutdown::new(), Tasks::new());
    tasks.spawn("polite", polite(&shutdown));
    tasks.spawn("early", async { Ok(()) });

    let error = tasks.run(&shutdown, Signals::none()).await.unwrap_err();

    assert!(matches!(error, Error::EndedEarly { task: "early" }), "{error:?}");
    assert!(shutdown.is_requested());
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_is_the_one_reported() {
    let (shutdown, mut tasks) = (Shutdown::new(), Tasks::new());
    let late = shutdown.clone();
    tasks.spawn("late", async move {
        late.requested().await;
        Err("later".into())
    });
    tasks.spawn("first", async { Err("disk is gone".into()) });

    let error = tasks.run(&shutdown, Signals::none()).await.unwrap_err();

    assert_eq!(error.to_string(), "task first failed");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "disk is gone");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_end_with_its_message() {
    let (shutdown, mut tasks) = (Shutdown::new(), Tasks::new());
    tasks.spawn("polite", polite(&shutdown));
    tasks.spawn("broken", async { panic!("index {} is out of range", 7) });

    let error = tasks.run(&shutdown, Signals::none()).await.unwrap_err();

    assert_eq!(error.to_string(), "task broken panicked: index 7 is out of range");
}

#[tokio::test(start_paused = true)]
async fn a_failure_while_stopping_turns_a_requested_stop_into_an_error() {
    let (shutdown, mut tasks) = (Shutdown::new(), Tasks::new());
    let late = shutdown.clone();
    tasks.spawn("late", async move {
        late.requested().await;
        Err("release refused".into())
    });
    shutdown.request();

    let error = tasks.run(&shutdown, Signals::none()).await.unwrap_err();

    assert!(matches!(error, Error::Failed { task: "late", .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ignores_the_stop_is_aborted_after_exactly_the_grace_period() {
    let (shutdown, mut tasks) = (Shutdown::new(), Tasks::new());
    let dropped = Arc::new(AtomicBool::new(false));
    let guard = SetOnDrop(dropped.clone());
    tasks.spawn("polite", polite(&shutdown));
    tasks.spawn("deaf", async move {
        let _guard = guard;
        pending().await
    });
    shutdown.request();
    let start = Instant::now();

    let error = tasks.run(&shutdown, Signals::none()).await.unwrap_err();

    assert!(matches!(&error, Error::Unfinished { tasks } if tasks == &["deaf"]), "{error:?}");
    assert_eq!(start.elapsed(), GRACE_MAX);
    assert!(dropped.load(Ordering::SeqCst), "the task was aborted and joined");
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_aborts_at_once() {
    let (shutdown, mut tasks) = (Shutdown::new(), Tasks::new());
    tasks.spawn("deaf", pending());
    let script = stream::iter([("SIGTERM", 0), ("SIGINT", 3)]).then(|(name, seconds)| async move {
        sleep(Duration::from_secs(seconds)).await;
        name
    });
    let start = Instant::now();

    let error = tasks.run(&shutdown, Signals::from_stream(script)).await.unwrap_err();

    assert!(matches!(error, Error::Aborted { signal: "SIGINT" }), "{error:?}");
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
