//! Looks while the watch of groups is behind, as it is for a while after the API server was away.

use bps_protocol::Epoch;
use k8s_openapi::api::discovery::v1::EndpointSlice;

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

#[tokio::test]
async fn how_much_a_standby_lacks_is_told_at_once_and_then_every_ten_seconds() {
    let mut known = group();
    known.spec.paused = true;
    let (client, server) = pair();
    let (log, serving) = server.serve(merging(known.clone()));
    let (mut context, _writer) = context(&client, Stores::with(known.clone(), []));
    for (entries, reason) in [(7, None), (9, None), (9, None), (9, Some("StandbyFull"))] {
        let mut lease = held(1, 1);
        let lag = json!({"entries": entries, "bytes": 0, "since": "2026-01-01T00:00:00Z", "reason": reason});
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::ANNOTATION_HA_LAG.to_owned(), lag.to_string());
        annotations.insert(keys::ANNOTATION_HA_IN_SYNC.to_owned(), String::new());
        context.stores = vec![Stores::with(known.clone(), [lease]).with_pods([pod(1), pod(2)])];
        assert!(matches!(look(&context, &job()).await, Look::Settled(Some(_))));
    }
    serving.abort();
    let log = log.lock().unwrap();
    let status = log.iter().filter(|seen| seen.path.ends_with("/status")).map(|seen| &seen.body["status"]);
    let lags: Vec<_> = status.map(|status| status["pairs"][0]["lag"]["entries"].clone()).collect();
    assert_eq!(lags, [7, 9]);
}

/// The slice of the pair `web-0`, which shows this Pod.
fn slice_of(number: u128, epoch: Epoch) -> EndpointSlice {
    let target = json!({"kind": "Pod", "name": format!("web-{number}"), "uid": format_uid(number)});
    let slice = json!({
        "metadata": {"name": "web-0", "namespace": "shop", "labels": {(keys::LABEL_GROUP): "web"},
            "annotations": {(keys::ANNOTATION_HA_EPOCH): u64::from(epoch).to_string()}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [format!("10.0.0.{number}")], "targetRef": target}],
    });
    serde_json::from_value(slice).unwrap()
}

/// The labels of Pods that were written, by name of the Pod.
fn labelled(log: &Mutex<Vec<Seen>>) -> Vec<(String, Value)> {
    let mut log = log.lock().unwrap();
    let labels = log.drain(..).filter(|seen| seen.path.contains("/pods/")).map(|seen| {
        let pod = seen.path.rsplit('/').next().unwrap_or_default().to_owned();
        (pod, seen.body["metadata"]["labels"][keys::LABEL_HA_STATE].clone())
    });
    let mut labels: Vec<_> = labels.collect();
    labels.sort_by_key(|(pod, _)| pod.clone());
    labels
}

#[tokio::test]
async fn leases_are_read_and_not_planned_from_as_they_were_while_their_watch_is_behind() {
    let versioned = |mut lease: Lease, version: &str| {
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    };
    let (old, new) = (versioned(held(1, 1), "6"), versioned(held(2, 2), "9"));
    let (client, server) = pair();
    let list =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": {}, "items": [new]});
    let (log, serving) = server.serve(move |seen| {
        let is_list = seen.method == "GET" && seen.path.ends_with("/leases");
        if is_list { (200, list.clone()) } else { answered(seen) }
    });
    let shown = |lease: &Lease| Stores::with(group(), [lease.clone()]).with_pods([1, 2].map(pod));
    // By the old Lease nobody can act in this epoch, by the new one it is another one's.
    let ahead = |lease: &Lease| shown(lease).with_slices([slice_of(2, Epoch { term: 9, sequence: 0 })]);
    let (mut context, _writer) = context(&client, shown(&old));
    let [active, standby] = ["active", "standby"].map(|state| json!(state));
    let acts = |number: u32| {
        let state = |pod| if pod == number { active.clone() } else { standby.clone() };
        vec![("web-1".to_owned(), state(1)), ("web-2".to_owned(), state(2))]
    };
    for (stores, expected) in [
        (shown(&old), acts(1)),
        (ahead(&old), acts(2)),
        // What was read is not forgotten.
        (shown(&old), acts(2)),
        (shown(&new), acts(2)),
        (shown(&new), acts(2)),
    ] {
        context.stores = vec![stores];
        assert!(matches!(look(&context, &job()).await, Look::Settled(_)));
        assert_eq!(labelled(&log), expected);
    }
    serving.abort();
}

#[tokio::test]
async fn nothing_is_planned_from_old_leases_as_long_as_they_cannot_be_read() {
    let (client, server) = pair();
    let (log, serving) = server.serve(|seen| {
        if seen.method == "GET" { (500, status(500, "InternalError", "no")) } else { answered(seen) }
    });
    let slice = slice_of(2, Epoch { term: 9, sequence: 0 });
    let stores = Stores::with(group(), [held(1, 1)]).with_pods([1, 2].map(pod)).with_slices([slice]);
    let (context, _writer) = context(&client, stores);
    for delay in [250, 500] {
        assert_eq!(look(&context, &job()).await, Look::Refused(Duration::from_millis(delay).into()));
    }
    serving.abort();
    assert!(log.lock().unwrap().iter().all(|seen| seen.method == "GET"), "{log:?}");
}

/// An active without a standby renews its Lease twice a second, which leads to no look.
#[tokio::test]
async fn a_step_that_met_a_renewal_is_soon_repeated() {
    let (client, server) = pair();
    let (log, serving) = server.serve(|seen| {
        let is_met = seen.method == "PATCH" && seen.path.ends_with("/leases/web-0");
        if is_met { (409, status(409, "Conflict", "it was renewed")) } else { answered(seen) }
    });
    // The first Pod of the pair is gone, and a third one is there.
    let (context, _) = context(&client, Stores::with(group(), [held(2, 1)]).with_pods([pod(2), pod(3)]));
    let Look::Settled(Some(again)) = look(&context, &job()).await else { panic!("it is no trouble") };
    serving.abort();
    assert_eq!(changes(&log, "leases").len(), 1, "{log:?}");
    assert!(again.after <= Duration::from_millis(50), "{again:?}");
}
