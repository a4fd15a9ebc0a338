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
