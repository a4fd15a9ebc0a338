//! Which set is looked at next, on a paused clock.

use std::time::Duration;

use bps_observe::{Change, SetKey};
use bps_runtime::sync::Instant;
use futures::FutureExt as _;
use tokio::time::advance;

use crate::controller::queue::{Again, ORDINARY_DELAY, Queue};

const MILLISECOND: Duration = Duration::from_millis(1);

fn key(name: &str) -> SetKey {
    SetKey { namespace: "shop".into(), name: name.into() }
}

/// Name of the next set that is due at this moment.
fn due(queue: &Queue) -> Option<String> {
    queue.take(true).now_or_never().map(|job| job.key.name)
}

fn urgent(queue: &Queue, name: &str) {
    queue.note(key(name), Change::Urgent);
}

fn ordinary(queue: &Queue, name: &str) {
    queue.note(key(name), Change::Ordinary);
}

#[tokio::test(start_paused = true)]
async fn urgent_sets_come_at_once_and_before_ordinary_ones_that_waited_longer() {
    let queue = Queue::default();
    ordinary(&queue, "a");
    advance(ORDINARY_DELAY).await;
    urgent(&queue, "b");
    advance(MILLISECOND).await;
    urgent(&queue, "a-later");
    assert_eq!(queue.depth(), 3);
    assert_eq!([due(&queue), due(&queue), due(&queue)], ["b", "a-later", "a"].map(|name| Some(name.into())));
    assert_eq!((due(&queue), queue.depth()), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn a_closed_queue_keeps_nothing() {
    let queue = Queue::closed();
    urgent(&queue, "a");
    queue.note_later(key("b"), ORDINARY_DELAY);
    assert_eq!((due(&queue), queue.depth()), (None, 0));
    queue.open();
    urgent(&queue, "a");
    assert_eq!(due(&queue), Some("a".into()));
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_set_waits_for_its_neighbours_from_the_first_event_on() {
    let queue = Queue::default();
    let start = Instant::now();
    ordinary(&queue, "a");
    advance(ORDINARY_DELAY.checked_sub(MILLISECOND).unwrap()).await;
    ordinary(&queue, "a");
    assert_eq!((due(&queue), queue.depth()), (None, 1));
    let job = queue.take(true).await;
    assert_eq!((job.key, job.change, job.since), (key("a"), Change::Ordinary, start));
    assert_eq!(start.elapsed().as_millis(), ORDINARY_DELAY.as_millis());
    queue.done(&key("a"));
    assert_eq!((due(&queue), queue.depth()), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn an_urgent_event_makes_a_waiting_set_urgent_and_no_ordinary_one_takes_that_back() {
    let queue = Queue::default();
    let start = Instant::now();
    ordinary(&queue, "a");
    advance(MILLISECOND).await;
    urgent(&queue, "a");
    ordinary(&queue, "a");
    let job = queue.take(false).now_or_never().expect("it waits for nothing");
    assert_eq!((job.key, job.change, job.since), (key("a"), Change::Urgent, start));
    queue.done(&key("a"));
    advance(ORDINARY_DELAY).await;
    assert_eq!(due(&queue), None, "all three were one");
}

/// Milliseconds until the set of a foreign change is handed out.
async fn answered_after(queue: &Queue) -> u128 {
    let start = Instant::now();
    queue.note(key("a"), Change::Contested);
    let job = queue.take(true).await;
    queue.done(&job.key);
    start.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn two_writers_that_disagree_answer_each_other_less_and_less_often() {
    let queue = Queue::default();
    let mut delays = Vec::new();
    for _ in 0..12 {
        delays.push(answered_after(&queue).await);
    }
    let doubling: [u128; 10] = std::array::from_fn(|round| 50 << round);
    assert_eq!(delays, [&doubling[..], &[30_000, 30_000]].concat());
    advance(Duration::from_mins(2)).await;
    assert_eq!(answered_after(&queue).await, 50, "a calm time ends the contest");
}

#[tokio::test(start_paused = true)]
async fn a_contest_delays_no_event_of_the_set_itself() {
    let queue = Queue::default();
    for _ in 0..8 {
        answered_after(&queue).await;
    }
    queue.note(key("a"), Change::Contested);
    urgent(&queue, "a");
    assert_eq!(due(&queue), Some("a".into()));
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_looked_at_is_not_handed_out_again_before_it_is_done() {
    let queue = Queue::default();
    urgent(&queue, "a");
    assert_eq!(due(&queue), Some("a".into()));
    ordinary(&queue, "a");
    urgent(&queue, "a");
    urgent(&queue, "b");
    assert_eq!((due(&queue), due(&queue)), (Some("b".into()), None));
    advance(ORDINARY_DELAY).await;
    assert_eq!(due(&queue), None);
    queue.done(&key("b"));
    assert_eq!(due(&queue), None);
    queue.done(&key("a"));
    assert_eq!(due(&queue), Some("a".into()), "its events came again");
    queue.done(&key("a"));
    assert_eq!(due(&queue), None, "once for all of them");
}

#[tokio::test(start_paused = true)]
async fn ordinary_sets_stay_while_only_urgent_ones_are_allowed() {
    let queue = Queue::default();
    ordinary(&queue, "a");
    advance(ORDINARY_DELAY).await;
    assert!(queue.take(false).now_or_never().is_none());
    urgent(&queue, "b");
    assert_eq!(queue.take(false).await.key, key("b"));
    assert!(queue.take(false).now_or_never().is_none());
    assert_eq!(due(&queue), Some("a".into()));
}

#[tokio::test(start_paused = true)]
async fn what_somebody_wants_comes_at_once_but_where_ordinary_sets_are_allowed() {
    let queue = Queue::default();
    queue.note(key("a"), Change::Wanted);
    assert!(queue.take(false).now_or_never().is_none());
    advance(MILLISECOND).await;
    urgent(&queue, "b");
    assert_eq!([due(&queue), due(&queue)], ["b", "a"].map(|name| Some(name.into())));
}

#[tokio::test(start_paused = true)]
async fn a_look_is_told_of_what_is_urgent_or_wanted_meanwhile_and_of_nothing_else() {
    let queue = Queue::default();
    for change in [Change::Contested, Change::Ordinary, Change::Wanted, Change::Urgent] {
        urgent(&queue, "a");
        let job = queue.take(true).await;
        queue.note(key("a"), change);
        let is_told = [Change::Wanted, Change::Urgent].contains(&change);
        assert_eq!(job.urgent.has_changed().unwrap(), is_told, "{change:?}");
        queue.done(&key("a"));
        assert_eq!(queue.take(true).await.change, change, "it comes again, told or not");
        queue.done(&key("a"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_look_that_service_depends_on_is_urgent_at_its_time() {
    let queue = Queue::default();
    let start = Instant::now();
    let after = Duration::from_secs(5);
    queue.note_later(key("a"), Again { after, change: Change::Urgent });
    assert!(queue.take(false).now_or_never().is_none());
    let job = queue.take(false).await;
    assert_eq!((job.key, job.change, start.elapsed().as_secs()), (key("a"), Change::Urgent, 5));
}

#[tokio::test(start_paused = true)]
async fn a_later_look_comes_at_its_time_unless_something_happens_first() {
    let queue = Queue::default();
    let start = Instant::now();
    queue.note_later(key("a"), Duration::from_secs(60));
    queue.note_later(key("b"), Duration::from_secs(30));
    assert_eq!(queue.take(true).await.key, key("b"));
    assert_eq!(start.elapsed().as_secs(), 30);
    // A longer delay does not put off an earlier look.
    queue.note_later(key("a"), Duration::from_secs(600));
    urgent(&queue, "a");
    assert_eq!(due(&queue), Some("a".into()));
    queue.done(&key("a"));
    queue.done(&key("b"));
    advance(Duration::from_secs(3600)).await;
    assert_eq!((due(&queue), queue.depth()), (None, 0), "nothing is left of the merged look");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_woken_by_an_event_or_by_the_end_of_a_look() {
    let queue = std::sync::Arc::new(Queue::default());
    let waiter = |queue: &std::sync::Arc<Queue>| {
        let queue = std::sync::Arc::clone(queue);
        tokio::spawn(async move { queue.take(true).await.key.name })
    };
    let waiting = waiter(&queue);
    tokio::task::yield_now().await;
    urgent(&queue, "a");
    assert_eq!(waiting.await.unwrap(), "a");
    urgent(&queue, "a");
    let waiting = waiter(&queue);
    tokio::task::yield_now().await;
    queue.done(&key("a"));
    assert_eq!(waiting.await.unwrap(), "a");
}

#[tokio::test(start_paused = true)]
async fn an_earlier_event_shortens_a_wait_that_has_begun() {
    let queue = std::sync::Arc::new(Queue::default());
    let start = Instant::now();
    queue.note_later(key("a"), Duration::from_secs(60));
    let waiting = {
        let queue = std::sync::Arc::clone(&queue);
        tokio::spawn(async move { queue.take(true).await.key.name })
    };
    advance(Duration::from_secs(1)).await;
    ordinary(&queue, "b");
    assert_eq!(waiting.await.unwrap(), "b");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}
