//! Looks while the watch of groups is behind, as it is for a while after the API server was away.

use super::*;

/// Takes every write, and merges those of the status into the group as it is.
fn merging(group: HAGroup) -> impl FnMut(&Seen) -> (u16, Value) + Send + 'static {
    let (mut stored, mut version) = (serde_json::to_value(group).unwrap(), 5);
    move |seen| {
        if !seen.path.ends_with("/status") {
            return answered(seen);
        }
        json_patch::merge(&mut stored, &seen.body);
        version += 1;
        stored["metadata"]["resourceVersion"] = json!(version.to_string());
        (200, stored.clone())
    }
}

/// The pair `web-0`, in which this Pod acts by this term.
fn held(number: u128, term: i32) -> Lease {
    let mut lease = lease();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(format!("web-{number}_{}", format_uid(number)));
    spec.lease_transitions = Some(term);
    lease.metadata.annotations.get_or_insert_default().remove(keys::ANNOTATION_HA_TAKEOVER);
    lease
}

#[tokio::test]
async fn takeovers_are_told_once_and_none_is_missed_as_long_as_no_watch_shows_the_status() {
    let mut known = group();
    known.spec.paused = true;
    let (client, server) = pair();
    let (log, serving) = server.serve(merging(known.clone()));
    let (mut context, _writer) = context(&client, Stores::with(known.clone(), []));
    for (number, term) in [(1, 1), (2, 2), (2, 2), (1, 3)] {
        // The Leases are watched, the group is not shown as it was written.
        context.stores = vec![Stores::with(known.clone(), [held(number, term)])];
        assert!(matches!(look(&context, &job()).await, Look::Settled(_)));
    }
    serving.abort();
    let log = log.lock().unwrap();
    let status = log.iter().filter(|seen| seen.path.ends_with("/status")).map(|seen| &seen.body["status"]);
    let takeovers: Vec<_> = status.map(|status| status["takeovers"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(takeovers, [0, 1, 2]);
}
