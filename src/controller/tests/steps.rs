//! What is done for a set while some of its steps are not answered.

use std::sync::Arc;
use std::time::Duration;

use bps_core::model::Role;
use bps_observe::{Watched, observe};
use bps_runtime::clock::Clock;
use bps_testkit::mock_api::{Call, pair};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{context, job, key, known_set, primary, unready_primary};
use crate::apply::testing::{NOW, pod, slim};
use crate::controller::queue::Job;
use crate::controller::reconcile::{Look, reconcile};

/// Method and last part of the path.
fn short(call: &Call) -> (&str, &str) {
    (&call.seen.method, call.seen.path.rsplit('/').next().unwrap_or_default())
}

/// A webhook may look at each new Pod for seconds.
#[tokio::test(start_paused = true)]
async fn a_failover_does_not_wait_until_the_refills_of_the_one_before_it_are_admitted() {
    let (client, mut server) = pair();
    let context = Arc::new(context(
        &client,
        &json!({"replicas": 1, "hotBackups": 2}),
        &[primary("web-0"), pod("web-1", ("hot", 17))],
    ));
    let (urgent, noted) = watch::channel(());
    let job = Job { urgent: noted, ..job() };
    let looking = {
        let context = Arc::clone(&context);
        tokio::spawn(async move { reconcile(&context, &job).await })
    };
    let creation = server.calls().await.pop().expect("a hot backup is missing");
    assert_eq!(short(&creation), ("POST", "pods"));

    slim(&primary("web-0")).lost(&mut context.sink.cache(), NOW);
    urgent.send_replace(());
    let promotion = server.calls().await.pop().expect("the primary is gone");
    assert_eq!(short(&promotion), ("PATCH", "web-1"));
    promotion.reply(200, &pod("web-1", ("primary", 18)));
    assert!(server.calls().await.is_empty(), "what is being created is not created again");

    let name = creation.seen.body["metadata"]["name"].as_str().unwrap().to_owned();
    creation.reply(201, &pod(&name, ("hot", 19)));
    let roles = || {
        let snapshot = observe(&context.sink.cache(), &key(), NOW).unwrap().snapshot;
        snapshot.pods.iter().map(|view| view.role).collect::<Vec<_>>()
    };
    let next = server.calls().await;
    assert_eq!(next.iter().map(short).collect::<Vec<_>>(), [("POST", "pods")], "one of two backups is left");
    assert!(roles().contains(&Role::Primary));
    for call in next {
        let name = call.seen.body["metadata"]["name"].as_str().unwrap().to_owned();
        call.reply(201, &pod(&name, ("hot", 20)));
    }
    for call in server.calls().await {
        assert_eq!(short(&call).1, "status");
        call.reply(200, &serde_json::to_value(known_set(&json!({}))).unwrap());
    }
    let look = tokio::time::timeout(Duration::from_secs(5), looking).await.expect("nothing is left").unwrap();
    assert_eq!(look, Look::Settled(None));
}

/// No event tells that a delay is over.
#[tokio::test(start_paused = true)]
async fn a_failover_whose_delay_ends_does_not_wait_until_refills_are_admitted() {
    let (client, mut server) = pair();
    let fields = json!({"replicas": 1, "hotBackups": 2, "failoverDelaySeconds": 5});
    let mut context = context(&client, &fields, &[unready_primary("web-0"), pod("web-1", ("hot", 17))]);
    let start = Instant::now();
    context.sink.clock = Clock::new(move || NOW + start.elapsed());
    let looking = tokio::spawn(async move { reconcile(&context, &job()).await });
    let creation = server.call().await;
    assert_eq!(short(&creation), ("POST", "pods"));

    let conversion = timeout(Duration::from_secs(60), server.call()).await.expect("the delay ends");
    assert_eq!(start.elapsed().as_secs(), 5);
    let mut conversions = server.calls().await;
    conversions.push(conversion);
    let mut sent: Vec<_> = conversions.iter().map(short).collect();
    sent.sort_unstable();
    assert_eq!(sent, [("PATCH", "web-0"), ("PATCH", "web-1")]);
    looking.abort();
}
