//! Which steps wait for others, and which never do.

use std::time::Duration;

use bps_core::model::{Action, Outcome, Role, Step};
use bps_testkit::mock_api::pair;
use serde_json::json;

use super::{plain, pod_ref, step};
use crate::apply::testing::{applier, pod};
use crate::apply::{Applier, PATIENT_WRITES_MAX, URGENT_WRITES_MAX};

fn deletions(count: usize) -> Vec<Step> {
    let deletion =
        |name: String| Action::Delete { pod: pod_ref(&name, 17), role: Role::Cold, is_ready: false };
    (0..count).map(|index| step(deletion(format!("old-{index}")))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_promotion_does_not_wait_behind_the_refills_of_other_sets() {
    let (client, mut server) = pair();
    let applier: Applier = applier(&client);
    let storm = {
        let applier = applier.clone();
        tokio::spawn(async move { applier.apply(&plain(), &deletions(PATIENT_WRITES_MAX + 2)).await })
    };
    let mut waiting = server.calls().await;
    assert_eq!(waiting.len(), PATIENT_WRITES_MAX, "the rest waits");

    let promotion = Action::Convert { pod: pod_ref("web-0", 17), from: Role::Hot, to: Role::Primary };
    let seen = plain();
    let steps = [step(promotion)];
    let (tried, ()) = tokio::join!(applier.apply(&seen, &steps), async {
        let call = tokio::time::timeout(Duration::from_secs(1), server.call()).await;
        let call = call.expect("the promotion is sent although others wait");
        assert_eq!(call.seen.method, "PATCH");
        call.reply(200, &pod("web-0", ("primary", 18)));
    });
    assert_eq!(tried[0].result.outcome, Outcome::Done);

    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    waiting.pop().expect("there are many").reply(200, &success);
    let next = server.calls().await;
    assert_eq!(next.len(), 1, "one answer makes room for one");
    waiting.extend(next);
    for call in waiting {
        call.reply(200, &success);
    }
    let last = server.calls().await;
    assert_eq!(last.len(), 1);
    for call in last {
        call.reply(200, &success);
    }
    let tried = storm.await.expect("the task ends well");
    assert_eq!(
        tried.iter().filter(|one| one.result.outcome == Outcome::Done).count(),
        PATIENT_WRITES_MAX + 2
    );
}

#[tokio::test(start_paused = true)]
async fn steps_of_one_plan_are_sent_at_the_same_time() {
    let (client, mut server) = pair();
    let applier = applier(&client);
    let mut steps = deletions(2);
    steps.push(step(Action::Adopt { pod: pod_ref("web-0", 17) }));
    let applying = tokio::spawn(async move { applier.apply(&plain(), &steps).await });
    let calls = server.calls().await;
    assert_eq!(calls.len(), 3);
    for call in calls {
        call.reset();
    }
    assert_eq!(applying.await.expect("the task ends well").len(), 3);
}

fn promotions(count: usize) -> Vec<Step> {
    let promotion =
        |name: String| Action::Convert { pod: pod_ref(&name, 17), from: Role::Hot, to: Role::Primary };
    (0..count).map(|index| step(promotion(format!("web-{index}")))).collect()
}

#[tokio::test(start_paused = true)]
async fn promotions_are_bounded_and_do_not_wait_for_gates_that_do_not_answer() {
    let (client, mut server) = pair();
    let applier: Applier = applier(&client);
    let promoting = {
        let applier = applier.clone();
        tokio::spawn(async move { applier.apply(&plain(), &promotions(URGENT_WRITES_MAX + 1)).await })
    };
    let calls = server.calls().await;
    assert_eq!(calls.len(), URGENT_WRITES_MAX);
    for call in calls.into_iter().chain(server.calls().await) {
        call.reply(200, &pod("web-0", ("primary", 18)));
    }
    for call in server.calls().await {
        call.reply(200, &pod("web-0", ("primary", 18)));
    }
    assert_eq!(promoting.await.expect("the task ends well").len(), URGENT_WRITES_MAX + 1);
    let (ticket, promotion) = (
        Action::Wake { pod: pod_ref("web-0", 17), address: bps_core::testing::address(0) },
        promotions(1).remove(0).action,
    );
    assert!(!std::ptr::eq(applier.turns.of(&ticket), applier.turns.of(&promotion)));
}
