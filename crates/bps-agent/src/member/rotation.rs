//! Polls the loops of all seats within one task, each time in another order.
//!
//! A task has one budget for each of its turns, and an operation that would exceed it waits for the next turn. In a
//! fixed order a flood of datagrams for the first seat would take all of it each time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Waits until all have ended; returns what they ended with, in their order.
pub(super) async fn all_in_rotation<Work: Future>(work: impl IntoIterator<Item = Work>) -> Vec<Work::Output> {
    let mut running: Vec<Option<Pin<Box<Work>>>> = work.into_iter().map(|one| Some(Box::pin(one))).collect();
    let mut ended: Vec<Option<Work::Output>> = running.iter().map(|_| None).collect();
    let mut first = 0;
    poll_fn(|context| {
        let count = running.len();
        for index in (first..count).chain(0..first) {
            let Some(one) = &mut running[index] else { continue };
            if let Poll::Ready(output) = one.as_mut().poll(context) {
                // What it holds goes at once: the others may run for long.
                (running[index], ended[index]) = (None, Some(output));
            }
        }
        first = (first + 1) % count.max(1);
        if running.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    ended.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures::future::LocalBoxFuture;
    use tokio::sync::mpsc;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn each_poll_begins_with_another_one_until_all_have_ended() {
        let polled = RefCell::new(Vec::new());
        let work = [0, 1, 2].map(|number| {
            let polled = &polled;
            async move {
                for _ in 0..2 - number % 2 {
                    polled.borrow_mut().push(number);
                    yield_now().await;
                }
                number
            }
        });
        assert_eq!(all_in_rotation(work).await, [0, 1, 2]);
        assert_eq!(*polled.borrow(), [0, 1, 2, 2, 0]);
        assert_eq!(all_in_rotation(Vec::<std::future::Ready<()>>::new()).await, []);
    }

    /// One seat has a message for each of its turns, and another one gets its own all the same.
    #[tokio::test]
    async fn a_flood_for_the_first_one_does_not_starve_the_others() {
        /// More than the budget of a task.
        const FLOOD: usize = 10_000;
        let (flood, mut flooded) = mpsc::channel(FLOOD);
        (0..FLOOD).for_each(|number| flood.try_send(number).unwrap());
        let (word, mut heard) = mpsc::channel(1);
        word.try_send(()).unwrap();
        let taken = RefCell::new(0);
        let first = async {
            while *taken.borrow() < FLOOD && flooded.recv().await.is_some() {
                *taken.borrow_mut() += 1;
            }
            0
        };
        let second = async {
            heard.recv().await;
            *taken.borrow()
        };
        let both: [LocalBoxFuture<'_, usize>; 2] = [Box::pin(first), Box::pin(second)];
        let before = all_in_rotation(both).await[1];
        assert!(before < FLOOD / 10, "it waited for {before} words of the flood");
    }
}
