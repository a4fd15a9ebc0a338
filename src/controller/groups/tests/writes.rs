//! What a look does about its own writes that were not done.

use super::*;

/// A watch shows the newer version, and a Lease that was only renewed leads to no look.
#[tokio::test]
async fn a_write_that_met_a_newer_version_is_repeated_soon_and_less_often_each_time() {
    let (client, server) = pair();
    let is_overtaken = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&is_overtaken);
    let (_, serving) = server.serve(move |seen| {
        let is_met = switch.load(Ordering::Relaxed) && seen.path.contains("/pods/");
        if is_met { (409, status(409, "Conflict", "it has been modified")) } else { answered(seen) }
    });
    let (context, _) = context(&client, Stores::with(group(), [lease()]).with_pods([pod(1), pod(2)]));
    let pauses = async |count: usize| {
        let mut pauses = Vec::new();
        for _ in 0..count {
            let Look::Settled(Some(again)) = look(&context, &job()).await else { panic!("no trouble") };
            pauses.push(again.after.as_millis());
        }
        pauses
    };
    assert_eq!(pauses(7).await, [50, 100, 200, 400, 800, 1_600, 2_000]);
    is_overtaken.store(false, Ordering::Relaxed);
    assert!(matches!(look(&context, &job()).await, Look::Settled(_)));
    assert_eq!(context.stale.times(&key()), 0);
    serving.abort();
}

/// The watch shows only Leases with the group's label.
#[tokio::test]
async fn a_lease_of_somebody_else_is_reported_with_what_to_do() {
    let (client, server) = pair();
    let (log, serving) = server.serve(|seen| {
        let is_taken = seen.method == "POST" && seen.path.ends_with("/leases");
        if is_taken { (409, status(409, "AlreadyExists", "web-0 is there")) } else { answered(seen) }
    });
    let (context, _) = context(&client, Stores::with(group(), []).with_pods([pod(1), pod(2)]));
    assert!(matches!(look(&context, &job()).await, Look::Refused(_)));
    serving.abort();
    let log = log.lock().unwrap();
    let status = log.iter().rfind(|seen| seen.path.ends_with("/status")).expect("a status").body.to_string();
    let said = ["could not write the Lease web-0: ", "; delete it, or use another name"];
    assert!(said.iter().all(|words| status.contains(words)), "{status}");
}

/// A rollout that was told to wait would wait for ever.
#[tokio::test]
async fn the_pods_of_a_group_that_is_gone_are_released() {
    let kept = || {
        let mut kept = pod(1);
        kept.metadata
            .annotations
            .get_or_insert_default()
            .insert(keys::ANNOTATION_HA_KEPT.into(), "true".into());
        kept
    };
    let mut deleted = group();
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    let (client, server) = pair();
    let is_refusing = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&is_refusing);
    let (log, serving) = server.serve(move |seen| {
        if switch.load(Ordering::Relaxed) { (403, status(403, "Forbidden", "no")) } else { answered(seen) }
    });
    let (context, _) = context(&client, Stores::with(deleted, []).with_pods([kept(), pod(2)]));
    assert!(matches!(look(&context, &job()).await, Look::Refused(_)), "it is tried again");
    is_refusing.store(false, Ordering::Relaxed);
    assert_eq!(look(&context, &job()).await, Look::Settled(None));
    serving.abort();
    let patch =
        json!({"metadata": {"uid": format_uid(1), "annotations": {(keys::ANNOTATION_HA_KEPT): null}}});
    let log = log.lock().unwrap();
    let sent: Vec<(&str, &Value)> = log.iter().map(|seen| (seen.path.as_str(), &seen.body)).collect();
    assert_eq!(sent, [("/api/v1/namespaces/shop/pods/web-1", &patch); 2]);
}
