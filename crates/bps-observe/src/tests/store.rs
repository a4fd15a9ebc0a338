//! What the store believes: watches, answers to own writes, and complete lists.

use jiff::Timestamp;
use serde_json::json;

use super::{at, pod};
use crate::slim::SlimPod;
use crate::store::{CONFIRMATION_DEADLINE, ObjectKey, Outdated, Scope, Source, Store};

/// Incarnation `uid` of the Pod `web-0` at a version.
fn version(uid: &str, version: u64) -> SlimPod {
    named(("shop", "web-0"), (uid, version))
}

fn named((namespace, name): (&str, &str), (uid, version): (&str, u64)) -> SlimPod {
    pod(&json!({"metadata": {
        "namespace": namespace, "name": name, "uid": uid, "resourceVersion": version.to_string(),
    }}))
}

/// Namespace, name, uid and version of everything in the store.
fn content(store: &Store<SlimPod>) -> Vec<String> {
    let text = |pod: &SlimPod| {
        let ObjectKey { namespace, name } = ObjectKey::of(pod);
        let meta = &pod.metadata;
        format!(
            "{namespace}/{name} {} {}",
            meta.uid.as_ref().unwrap(),
            meta.resource_version.as_ref().unwrap()
        )
    };
    store.values().map(|pod| text(pod)).collect()
}

/// Takes a version in and says whether it was new to the store.
fn put(store: &mut Store<SlimPod>, pod: SlimPod, source: Source) -> bool {
    store.put(pod, source, at(0)) != Err(Outdated)
}

fn list(store: &mut Store<SlimPod>, scope: &Scope, (shown, now): (Vec<SlimPod>, Timestamp)) -> Vec<String> {
    store.begin_list(scope.clone());
    for pod in shown {
        let _: Result<_, _> = store.put(pod, Source::Watch, now);
    }
    store.end_list(scope, now).iter().map(|pod| pod.metadata.uid.clone().unwrap()).collect()
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    for newer in [Source::Watch, Source::OwnWrite] {
        for older in [Source::Watch, Source::OwnWrite] {
            let mut store = Store::default();
            assert!(put(&mut store, version("u0", 10), newer));
            // As numbers, not as text: "9" is greater than "10".
            assert!(!put(&mut store, version("u0", 9), older));
            assert_eq!(content(&store), ["shop/web-0 u0 10"]);
            assert!(put(&mut store, version("u0", 11), older));
            assert_eq!(content(&store), ["shop/web-0 u0 11"]);
        }
    }
}

#[test]
fn an_answer_about_a_former_incarnation_never_replaces_its_successor() {
    // The watch was away while one went and the other came, so nothing has told that the first is gone.
    let mut store = Store::default();
    put(&mut store, version("old", 5), Source::Watch);
    assert_eq!(list(&mut store, &Scope(None), (vec![version("new", 8)], at(0))), [""; 0]);
    assert!(!put(&mut store, version("old", 6), Source::OwnWrite));
    assert_eq!(content(&store), ["shop/web-0 new 8"]);
    // Our create was answered before the watch has told of the end of its predecessor.
    let mut store = Store::default();
    put(&mut store, version("old", 5), Source::Watch);
    assert!(put(&mut store, version("new", 8), Source::OwnWrite));
    assert!(!put(&mut store, version("old", 6), Source::Watch));
    assert!(!put(&mut store, version("old", 7), Source::OwnWrite));
    assert_eq!(content(&store), ["shop/web-0 new 8"]);
    assert_eq!(store.remove(&version("old", 7).metadata, at(0)), None);
    assert_eq!(content(&store), ["shop/web-0 new 8"]);
}

#[test]
fn a_watch_that_shows_a_new_incarnation_is_believed() {
    let mut store = Store::default();
    put(&mut store, version("old", 9), Source::Watch);
    // After a restore of etcd versions may begin anew.
    assert!(put(&mut store, version("new", 3), Source::Watch));
    assert_eq!(content(&store), ["shop/web-0 new 3"]);
}

#[test]
fn what_was_seen_to_be_gone_does_not_come_back_by_an_old_answer() {
    let mut store = Store::default();
    put(&mut store, version("u0", 5), Source::Watch);
    assert!(store.remove(&version("u0", 6).metadata, at(0)).is_some());
    assert!(!put(&mut store, version("u0", 7), Source::OwnWrite));
    assert_eq!(content(&store), [""; 0]);
}

#[test]
fn what_comes_back_into_the_sight_of_the_watch_is_believed() {
    // A watch by label says "gone" when the label goes, and shows the same incarnation when it is set again.
    let mut store = Store::default();
    put(&mut store, version("u0", 5), Source::Watch);
    store.remove(&version("u0", 6).metadata, at(0));
    assert!(put(&mut store, version("u0", 7), Source::Watch));
    assert!(put(&mut store, version("u0", 8), Source::OwnWrite));
    assert_eq!(content(&store), ["shop/web-0 u0 8"]);
}

#[test]
fn what_our_own_deletion_ended_does_not_come_back_by_a_late_event() {
    let mut store = Store::default();
    put(&mut store, version("u0", 5), Source::Watch);
    assert!(store.end(&version("u0", 5), at(0)).is_some());
    assert!(!put(&mut store, version("u0", 6), Source::Watch));
    assert!(!put(&mut store, version("u0", 6), Source::OwnWrite));
    assert_eq!(content(&store), [""; 0]);
    assert!(put(&mut store, version("u1", 8), Source::Watch));
    assert_eq!(content(&store), ["shop/web-0 u1 8"]);
}

#[test]
fn a_list_removes_what_it_does_not_show_in_its_scope_only() {
    let mut store = Store::default();
    for (place, uid) in [(("shop", "a"), "u1"), (("shop", "b"), "u2"), (("bank", "a"), "u3")] {
        put(&mut store, named(place, (uid, 5)), Source::Watch);
    }
    let shop = Scope(Some("shop".into()));
    let shown = vec![named(("shop", "b"), ("u2", 6)), named(("shop", "c"), ("u4", 7))];
    assert_eq!(list(&mut store, &shop, (shown, at(0))), ["u1"]);
    assert_eq!(content(&store), ["bank/a u3 5", "shop/b u2 6", "shop/c u4 7"]);
    assert!(!put(&mut store, named(("shop", "a"), ("u1", 9)), Source::OwnWrite), "it is known to be gone");
    assert_eq!(list(&mut store, &Scope(None), (vec![], at(0))), ["u3", "u2", "u4"]);
    assert_eq!(store.end_list(&shop, at(0)), [], "an end without a beginning removes nothing");
}

#[test]
fn an_older_version_in_a_list_counts_as_shown() {
    let mut store = Store::default();
    put(&mut store, version("u0", 9), Source::OwnWrite);
    assert_eq!(list(&mut store, &Scope(None), (vec![version("u0", 8)], at(0))), [""; 0]);
    assert_eq!(content(&store), ["shop/web-0 u0 9"]);
}

#[test]
fn what_only_our_write_has_shown_outlives_a_list_but_not_the_deadline() {
    let almost = at(0) + CONFIRMATION_DEADLINE - jiff::SignedDuration::from_millis(1);
    let due = at(0) + CONFIRMATION_DEADLINE;
    let mut store = Store::default();
    put(&mut store, version("u0", 5), Source::OwnWrite);
    // A later write of ours confirms nothing and does not move the deadline.
    assert!(store.put(version("u0", 6), Source::OwnWrite, at(30)).is_ok());
    assert_eq!(list(&mut store, &Scope(None), (vec![], almost)), [""; 0]);
    assert!(!store.has_overdue(almost));
    assert_eq!(content(&store), ["shop/web-0 u0 6"]);
    assert!(store.has_overdue(due));
    assert_eq!(list(&mut store, &Scope(None), (vec![], due)), ["u0"]);
    assert!(!store.has_overdue(due));
}

#[test]
fn a_list_after_the_deadline_removes_what_only_our_write_has_shown() {
    let mut store = Store::default();
    put(&mut store, version("u0", 5), Source::OwnWrite);
    assert_eq!(list(&mut store, &Scope(None), (vec![], at(0) + CONFIRMATION_DEADLINE)), ["u0"]);
}

#[test]
fn a_successor_that_only_our_write_has_shown_outlives_a_list_as_well() {
    let mut store = Store::default();
    put(&mut store, version("old", 5), Source::Watch);
    put(&mut store, version("new", 8), Source::OwnWrite);
    assert_eq!(list(&mut store, &Scope(None), (vec![], at(1))), [""; 0]);
    assert_eq!(content(&store), ["shop/web-0 new 8"]);
    assert!(store.has_overdue(at(0) + CONFIRMATION_DEADLINE));
}

#[test]
fn what_the_watch_has_confirmed_is_never_overdue() {
    let mut store = Store::default();
    put(&mut store, version("u0", 6), Source::OwnWrite);
    // An older version confirms as well: the object exists.
    assert!(!put(&mut store, version("u0", 5), Source::Watch));
    assert!(!store.has_overdue(at(0) + CONFIRMATION_DEADLINE));
    assert_eq!(list(&mut store, &Scope(None), (vec![], at(1))), ["u0"]);
}
