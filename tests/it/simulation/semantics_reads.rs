//! Tests of the simulated server's lists and watches, one rule each, through the real client.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, VersionMatch, WatchEvent, WatchParams},
    runtime::watcher,
};
use serde_json::json;

use crate::simulation::{
    api::Hub,
    fault::Plan,
    semantics_writes::{create, pods, refused, server},
};

fn names(list: impl IntoIterator<Item = Pod>) -> Vec<String> {
    list.into_iter().map(|pod| pod.name_any()).collect()
}

async fn three(api: &Api<Pod>) {
    create(api, "a", &json!({"role": "primary"})).await;
    create(api, "b", &json!({"role": "hot", "zone": "x"})).await;
    create(api, "c", &json!({})).await;
}

async fn set_role(api: &Api<Pod>, name: &str, role: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"role": role}}}));
    api.patch(name, &PatchParams::default(), &patch).await.expect("patched");
}

/// Kind, name and role of the next event.
async fn next(
    watch: &mut (impl futures::Stream<Item = kube::Result<WatchEvent<Pod>>> + Unpin),
) -> (&'static str, String) {
    let told =
        |pod: &Pod| format!("{} {}", pod.name_any(), pod.labels().get("role").map_or("", String::as_str));
    match watch.next().await {
        Some(Ok(WatchEvent::Added(pod))) => ("ADDED", told(&pod)),
        Some(Ok(WatchEvent::Modified(pod))) => ("MODIFIED", told(&pod)),
        Some(Ok(WatchEvent::Deleted(pod))) => ("DELETED", told(&pod)),
        Some(Ok(WatchEvent::Bookmark(mark))) => ("BOOKMARK", mark.metadata.resource_version),
        Some(Ok(WatchEvent::Error(status))) => ("ERROR", status.code.to_string()),
        Some(Err(error)) => ("FAILED", error.to_string()),
        None => ("END", String::new()),
    }
}

fn event(kind: &'static str, told: &str) -> (&'static str, String) {
    (kind, told.to_owned())
}

#[tokio::test(start_paused = true)]
async fn selectors_select_as_the_real_ones() {
    let (_, client) = server();
    let api = pods(&client);
    three(&api).await;
    for (selector, wanted) in [
        ("role=hot", vec!["b"]),
        ("role!=hot", vec!["a", "c"]),
        ("role in (hot, primary),zone", vec!["b"]),
        ("role notin (hot)", vec!["a", "c"]),
        ("!role", vec!["c"]),
        ("role", vec!["a", "b"]),
    ] {
        let list = api.list(&ListParams::default().labels(selector)).await.expect("a list");
        assert_eq!(names(list), wanted, "{selector}");
    }
    let one = api.list(&ListParams::default().fields("metadata.name=b,spec.nodeName=")).await;
    assert_eq!(names(one.expect("a list")), ["b"]);
    assert_eq!(refused(api.list(&ListParams::default().fields("spec.hostNetwork=x")).await).0, 400);
    assert_eq!(refused(api.list(&ListParams::default().labels("role in hot")).await).0, 400);
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_revision_and_their_token_expires() {
    let (hub, client) = server();
    let api = pods(&client);
    three(&api).await;
    let first = api.list(&ListParams::default().limit(2)).await.expect("a page");
    assert_eq!(first.metadata.remaining_item_count, Some(1));
    api.delete("c", &DeleteParams::default()).await.expect("gone");
    let token = first.metadata.continue_.clone().expect("more");
    let rest = api.list(&ListParams::default().limit(2).continue_token(&token)).await.expect("a page");
    assert_eq!(
        (names(first), names(rest.items)),
        (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()])
    );
    assert_eq!(rest.metadata.resource_version.as_deref(), Some("1003"));
    hub.with(|state| state.world.compact());
    let expired = api.list(&ListParams::default().limit(2).continue_token(&token)).await;
    assert_eq!(refused(expired), (410, "Expired".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_list_is_as_fresh_as_was_asked_for() {
    let (hub, client) = server();
    let api = pods(&client);
    three(&api).await;
    let at = |revision: &str, matching| ListParams::default().at(revision).matching(matching);
    let exact = api.list(&at("1002", VersionMatch::Exact)).await.expect("history");
    assert_eq!(names(exact), ["a", "b"]);
    assert_eq!(
        names(api.list(&at("1002", VersionMatch::NotOlderThan)).await.expect("newest")),
        ["a", "b", "c"]
    );
    assert_eq!(refused(api.list(&at("2000", VersionMatch::NotOlderThan)).await).0, 504);
    hub.with(|state| {
        state.world.compact();
        state.plan = "r5:stale=2,r6:stale=2".parse::<Plan>().expect("a plan");
    });
    assert_eq!(refused(api.list(&at("1002", VersionMatch::Exact)).await).0, 410);
    assert_eq!(names(api.list(&at("0", VersionMatch::NotOlderThan)).await.expect("stale")), ["a"]);
    let newest = api.list(&ListParams::default()).await.expect("never stale");
    assert_eq!(names(newest), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_enters_and_leaves_its_selection() {
    let (_, client) = server();
    let api = pods(&client);
    let params = WatchParams::default().labels("role=hot").disable_bookmarks();
    let mut watch = api.watch(&params, "1000").await.expect("a watch").boxed();
    three(&api).await;
    assert_eq!(next(&mut watch).await, event("ADDED", "b hot"));
    set_role(&api, "a", "hot").await;
    assert_eq!(next(&mut watch).await, event("ADDED", "a hot"));
    set_role(&api, "b", "primary").await;
    // The former content, at the revision of the change.
    let Some(Ok(WatchEvent::Deleted(left))) = watch.next().await else { panic!("b left the selection") };
    assert_eq!((left.labels()["role"].as_str(), left.resource_version().as_deref()), ("hot", Some("1005")));
    api.delete("a", &DeleteParams::default()).await.expect("gone");
    assert_eq!(next(&mut watch).await, event("MODIFIED", "a hot"), "a Pod is terminating before it is gone");
    assert_eq!(next(&mut watch).await, event("DELETED", "a hot"));
    assert_eq!(next(&mut watch).await, event("END", ""), "after timeoutSeconds");
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_the_compaction_is_told_410_in_its_stream() {
    let (hub, client) = server();
    let api = pods(&client);
    three(&api).await;
    hub.with(|state| state.world.compact());
    let mut watch = api.watch(&WatchParams::default(), "1001").await.expect("a watch").boxed();
    assert_eq!(next(&mut watch).await, event("ERROR", "410"));
    assert_eq!(next(&mut watch).await, event("END", ""));
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_is_sent_bookmarks_and_a_streaming_one_an_end_of_its_list() {
    let (_, client) = server();
    let api = pods(&client);
    create(&api, "a", &json!({"role": "hot"})).await;
    let mut watch = api.watch(&WatchParams::default().initial_events(), "0").await.expect("a watch").boxed();
    assert_eq!(next(&mut watch).await, event("ADDED", "a hot"));
    let Some(Ok(WatchEvent::Bookmark(end))) = watch.next().await else { panic!("the list has an end") };
    assert_eq!(end.metadata.annotations["k8s.io/initial-events-end"], "true");
    assert_eq!(next(&mut watch).await, event("BOOKMARK", "1001"));
}

/// What a kube watcher makes of it: `+` is applied, `-` is deleted, `(` and `)` enclose a list.
async fn heard(hub: &Hub, api: &Api<Pod>, count: usize) -> Vec<String> {
    let told = |event: watcher::Event<Pod>| match event {
        watcher::Event::Init => "(".to_owned(),
        watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => format!("+{}", pod.name_any()),
        watcher::Event::InitDone => ")".to_owned(),
        watcher::Event::Delete(pod) => format!("-{}", pod.name_any()),
    };
    let stream = watcher(api.clone(), watcher::Config::default()).map_ok(told);
    let changes = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        create(api, "b", &json!({})).await;
        api.delete("a", &DeleteParams::default()).await.expect("gone");
        hub.changed.notify_waiters();
    };
    let collect = stream.map(|event| event.unwrap_or_else(|error| format!("!{error}"))).take(count).collect();
    futures::join!(collect, changes).0
}

#[tokio::test(start_paused = true)]
async fn a_kube_watcher_lists_watches_and_lists_again_after_a_gap() {
    for (plan, wanted) in [
        ("", vec!["(", "+a", ")", "+b", "+a", "-a"]),
        ("e1:duplicate", vec!["(", "+a", ")", "+b", "+b", "+a", "-a"]),
        ("e1:drop", vec!["(", "+a", ")", "+a", "-a"]),
        ("e1:close", vec!["(", "+a", ")", "+b", "+a", "-a"]),
        ("e1:lag=1", vec!["(", "+a", ")", "+b", "+a", "-a"]),
        ("e1:gap", vec!["(", "+a", ")", "!", "(", "+b", ")"]),
        ("r1:410", vec!["(", "!", "(", "+a", ")", "+b", "+a", "-a"]),
    ] {
        let (hub, client) = server();
        let api = pods(&client);
        create(&api, "a", &json!({})).await;
        hub.with(|state| state.plan = plan.parse().expect("a plan"));
        let mut heard = heard(&hub, &api, wanted.len()).await;
        for word in heard.iter_mut().filter(|word| word.starts_with('!')) {
            word.truncate(1);
        }
        assert_eq!(heard, wanted, "{plan}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_metadata_watch_and_list_carry_metadata_only() {
    let (_, client) = server();
    let api = pods(&client);
    create(&api, "a", &json!({"role": "hot"})).await;
    let list = api.list_metadata(&ListParams::default()).await.expect("a list");
    assert_eq!(list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a"]);
    let mut watch = api.watch_metadata(&WatchParams::default(), "1000").await.expect("a watch").boxed();
    let Some(Ok(WatchEvent::Added(one))) = watch.next().await else { panic!("it was added") };
    assert_eq!(one.types.expect("types").kind, "PartialObjectMetadata");
}
