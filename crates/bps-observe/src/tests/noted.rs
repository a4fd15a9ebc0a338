//! What the operator notes of Pods by its own clock, whatever the clocks of their nodes say.

use std::collections::BTreeMap;

use bps_core::model::{EarlyEnds, Lifecycle, PodName, PodView, Reason, Recent, Role, Uid};
use serde_json::{Value, json};

use super::{at, condition, ended, merge, ready_pod, running, set, template, text};
use crate::cache::Noted;
use crate::slim::{SlimNode, SlimPod};
use crate::{Cache, Deleted, Kind, Scope, SetKey, TakenBack, Watched, Written, observe};

fn key() -> SetKey {
    SetKey { namespace: "shop".into(), name: "web".into() }
}

fn uid() -> Uid {
    Uid("u0".into())
}

/// A cache with the set and nothing else.
fn cache() -> Cache {
    let mut cache = Cache::default();
    set(json!({"template": template()})).seen(&mut cache, at(0));
    let node = json!({"metadata": {"name": "n1"}, "status": {"conditions": [condition("Ready", "True", 1)]}});
    serde_json::from_value::<SlimNode>(node).unwrap().seen(&mut cache, at(0));
    cache
}

/// The Pod at a version, changed like this.
fn version(number: i64, changes: &Value) -> SlimPod {
    let mut body = serde_json::to_value(ready_pod(5)).unwrap();
    merge(&mut body, &json!({"metadata": {"resourceVersion": number.to_string()}}));
    merge(&mut body, changes);
    serde_json::from_value(body).unwrap()
}

/// Runs, and is ready or not since a moment of its node's clock.
fn runs(number: i64, ready: &str, since: i64) -> SlimPod {
    let statuses = json!([running(since - 1, ready == "True")]);
    let conditions = json!([condition("Ready", ready, since)]);
    version(number, &json!({"status": {"conditions": conditions, "containerStatuses": statuses}}))
}

/// Waits at its gate.
fn at_gate(number: i64) -> SlimPod {
    let gate = json!({"name": "bps-gate", "state": {"running": {"startedAt": text(4)}}});
    version(
        number,
        &json!({"spec": {"initContainers": [{"name": "bps-gate"}]}, "status": {
            "phase": "Pending", "conditions": [condition("Ready", "False", 1)],
            "containerStatuses": null, "initContainerStatuses": [gate],
        }}),
    )
}

/// The Pod as decisions see it so many seconds after the beginning.
fn view(cache: &Cache, seconds: i64) -> PodView {
    let observation = observe(cache, &key(), at(seconds)).expect("the set is there");
    observation.snapshot.pods.into_iter().next().expect("the Pod is there")
}

fn unready(since: i64) -> Lifecycle {
    Lifecycle::Unready { since: at(since) }
}

/// A failover would wait for a clock that is ahead, and a deadline would have passed by one that is behind.
#[test]
fn a_pod_is_unready_since_it_was_seen_to_stop_whatever_its_nodes_clock_says() {
    for node in [-360, 0, 60] {
        let mut cache = cache();
        runs(11, "True", node + 5).seen(&mut cache, at(5));
        runs(12, "False", node + 20).seen(&mut cache, at(21));
        assert_eq!(view(&cache, 22).lifecycle, unready(21), "{node}");
        assert_eq!(
            view(&cache, 22).stopped,
            Some(at(node + 20)),
            "for the report of how long it took to notice"
        );
        runs(13, "False", node + 20).seen(&mut cache, at(80));
        assert_eq!(view(&cache, 90).lifecycle, unready(21), "{node}: nothing has changed");
        runs(14, "True", node + 100).seen(&mut cache, at(100));
        assert_eq!(view(&cache, 101).lifecycle, Lifecycle::Ready { since: at(node + 100) });
        cache.wrote(Written::Pod(Box::new(runs(15, "False", node + 110))), at(111));
        runs(15, "False", node + 110).seen(&mut cache, at(112));
        assert_eq!(view(&cache, 113).lifecycle, unready(111), "{node}: our own write showed it first");
    }
}

#[test]
fn a_pod_that_was_unready_when_it_was_first_seen_is_so_since_its_record_or_since_then() {
    for (recorded, since) in [(20, 20), (90, 30)] {
        let mut cache = cache();
        runs(11, "False", recorded).seen(&mut cache, at(30));
        // Also when it is looked at later: what is waited for must come nearer.
        assert_eq!([30, 50, 95].map(|now| view(&cache, now).lifecycle), [unready(since); 3]);
    }
}

#[test]
fn a_pod_that_was_ready_while_the_watch_was_away_is_unready_since_it_is_seen_again() {
    let mut cache = cache();
    runs(11, "True", 5).seen(&mut cache, at(5));
    runs(12, "False", 20).seen(&mut cache, at(20));
    runs(19, "False", 250).seen(&mut cache, at(300));
    assert_eq!(view(&cache, 301).lifecycle, unready(300));
}

#[test]
fn a_pod_that_crashes_again_before_it_was_ready_is_unready_since_the_first_time() {
    let crashed = |number: i64, status: Value| {
        let conditions = json!([condition("Ready", "False", 20)]);
        version(number, &json!({"status": {"conditions": conditions, "containerStatuses": [status]}}))
    };
    let mut restarted = running(26, false);
    restarted["restartCount"] = json!(1);
    let mut cache = cache();
    ready_pod(5).seen(&mut cache, at(5));
    // The container's end is shown before the condition follows.
    version(11, &json!({"status": {"containerStatuses": [ended(19, 1)]}})).seen(&mut cache, at(20));
    for (number, status) in [(12, ended(19, 1)), (13, restarted), (14, ended(40, 1))] {
        crashed(number, status).seen(&mut cache, at(number * 10));
        assert_eq!(view(&cache, 200).lifecycle, unready(20), "version {number}");
    }
}

#[test]
fn tickets_are_known_from_the_first_one_on_as_long_as_they_go_on() {
    let mut noted = Noted::default();
    let mut tried = |pod: &str, next: i64, now: i64| noted.tried_ticket(Uid(pod.into()), at(next), at(now));
    tried("a", 2, 0);
    tried("b", 3, 1);
    tried("a", 5, 2);
    // Somebody else's is as good as any to forget by.
    tried("c", 304, 302);
    let known = |noted: &Noted, pod: &str| {
        noted.tickets_to(&Uid(pod.into())).map(|tickets| (tickets.first, tickets.next))
    };
    assert_eq!(["a", "b"].map(|pod| known(&noted, pod)), [Some((at(0), at(5))), Some((at(1), at(3)))]);
    noted.tried_ticket(Uid("c".into()), at(305), at(303));
    assert_eq!(["a", "b"].map(|pod| known(&noted, pod)), [Some((at(0), at(5))), None]);
    noted.tried_ticket(Uid("b".into()), at(306), at(304));
    assert_eq!(known(&noted, "b"), Some((at(304), at(306))), "it was asked by nobody for minutes");
}

#[test]
fn tickets_to_a_pod_are_forgotten_when_it_runs() {
    let mut cache = cache();
    at_gate(11).seen(&mut cache, at(5));
    cache.hold_tickets(uid(), at(12), at(10));
    at_gate(12).seen(&mut cache, at(11));
    cache.hold_tickets(uid(), at(14), at(12));
    let asked = view(&cache, 13);
    assert_eq!((asked.first_ticket, asked.next_ticket), (Some(at(10)), Some(at(14))));
    runs(13, "False", 2).seen(&mut cache, at(15));
    let running = view(&cache, 15);
    assert_eq!((running.is_running, running.first_ticket, running.next_ticket), (true, None, None));
}

#[test]
fn what_is_noted_of_a_pod_ends_with_it() {
    let noted = || {
        let mut cache = cache();
        runs(11, "True", 5).seen(&mut cache, at(5));
        runs(12, "False", 20).seen(&mut cache, at(20));
        cache.hold_tickets(uid(), at(23), at(21));
        assert_eq!((view(&cache, 22).lifecycle, view(&cache, 22).first_ticket), (unready(20), Some(at(21))));
        cache
    };
    let mut gone = noted();
    runs(12, "False", 20).lost(&mut gone, at(30));
    let mut ended = noted();
    ended.wrote(Written::PodGone(Box::new(runs(12, "False", 20))), at(30));
    let mut unlisted = noted();
    unlisted.begin_list(Kind::Pods, &Scope(None));
    unlisted.end_list(Kind::Pods, &Scope(None), at(30));
    let mut replaced = noted();
    let mut successor = runs(13, "True", 25);
    successor.metadata.uid = Some("u1".into());
    successor.seen(&mut replaced, at(30));
    for (case, cache) in [("gone", gone), ("ended", ended), ("unlisted", unlisted), ("replaced", replaced)] {
        assert_eq!(cache.noted, Noted::default(), "{case}");
    }
}

#[test]
fn wake_ups_in_vain_are_counted_until_one_is_not_and_forgotten_after_ten_minutes() {
    let mut cache = cache();
    let recent = |cache: &Cache, seconds| observe(cache, &key(), at(seconds)).unwrap().snapshot.recent;
    for (role, seconds) in [(Role::Primary, 10), (Role::Hot, 300)] {
        cache.deleted_pod(
            &key(),
            &PodName("web-9".into()),
            None,
            Deleted { role, reason: Reason::WakeTimedOut },
            at(seconds),
        );
    }
    let hot = BTreeMap::from([(Role::Hot, Reason::WakeTimedOut)]);
    assert_eq!(recent(&cache, 301), Recent { timeouts_in_a_row: 2, deleted: hot, early_ends: None });
    assert_eq!(recent(&cache, 899), Recent { timeouts_in_a_row: 2, ..Recent::default() });
    assert_eq!(recent(&cache, 900), Recent::default());
    let look_by = |seconds| observe(&cache, &key(), at(seconds)).unwrap().snapshot.look_by;
    assert_eq!([301, 899, 900].map(look_by), [Some(at(900)), Some(at(900)), None]);

    at_gate(11).seen(&mut cache, at(400));
    assert_eq!(recent(&cache, 401).timeouts_in_a_row, 2);
    let gate = json!({"name": "bps-gate", "state": {"terminated": {"exitCode": 0, "finishedAt": text(402)}}});
    let through = json!({"spec": {"initContainers": [{"name": "bps-gate"}]}, "status": {"initContainerStatuses": [gate]}});
    version(12, &through).seen(&mut cache, at(403));
    assert_eq!(recent(&cache, 404).timeouts_in_a_row, 0);
    // Asked before that one ran, and given up after.
    let deleted = Deleted { role: Role::Primary, reason: Reason::WakeTimedOut };
    cache.deleted_pod(&key(), &PodName("web-0".into()), None, deleted, at(405));
    assert_eq!(recent(&cache, 406).timeouts_in_a_row, 0);
}

#[test]
fn what_was_noted_of_a_set_ends_with_it() {
    let mut cache = cache();
    let deleted = Deleted { role: Role::Primary, reason: Reason::WakeTimedOut };
    cache.deleted_pod(&key(), &PodName("web-0".into()), None, deleted, at(1));
    let gone = set(json!({"template": template()}));
    gone.lost(&mut cache, at(2));
    assert_eq!(cache.noted, Noted::default());
}

#[test]
fn pods_that_end_early_wait_longer_each_time_until_one_works() {
    let mut cache = cache();
    let ends =
        |cache: &Cache, seconds| observe(cache, &key(), at(seconds)).unwrap().snapshot.recent.early_ends;
    let rejected = json!({"status": {
        "phase": "Failed", "reason": "SysctlForbidden", "message": "forbidden sysctl",
        "conditions": null, "containerStatuses": null,
    }});
    let deleted = Deleted { role: Role::Primary, reason: Reason::PodFinished };
    let end = |cache: &mut Cache, number: i64, seconds: i64| {
        version(number, &rejected).seen(cache, at(seconds));
        cache.deleted_pod(&key(), &PodName("web-0".into()), None, deleted, at(seconds));
    };
    let expected = |until: &[i64]| {
        let until = until.iter().map(|seconds| at(*seconds)).collect();
        Some(EarlyEnds { until, words: "SysctlForbidden: forbidden sysctl".into() })
    };
    end(&mut cache, 11, 1);
    assert_eq!(ends(&cache, 2), expected(&[21]));
    end(&mut cache, 12, 2);
    assert_eq!(ends(&cache, 2), expected(&[21, 21]), "within the pause");
    // The watch is quicker than the answer.
    let gone = version(12, &rejected);
    gone.lost(&mut cache, at(3));
    cache.deleted_pod(&key(), &PodName("web-0".into()), Some(&gone), deleted, at(3));
    assert_eq!(ends(&cache, 3), expected(&[21, 21, 21]));
    end(&mut cache, 13, 22);
    assert_eq!(ends(&cache, 22), expected(&[62]));
    assert_eq!(ends(&cache, 62 + 600), None, "long ago");
    let look_by = |seconds| observe(&cache, &key(), at(seconds)).unwrap().snapshot.look_by;
    assert_eq!([61, 661, 662].map(look_by), [Some(at(662)), Some(at(662)), None]);
    runs(14, "True", 30).seen(&mut cache, at(31));
    assert_eq!(ends(&cache, 31), None);
}

#[test]
fn pods_that_are_deleted_again_at_once_are_made_again_later() {
    let mut cache = cache();
    let taken_back = TakenBack { set: key(), words: "admission changed a label".into() };
    cache.wrote(Written::TakenBack(taken_back.clone()), at(1));
    let ends = observe(&cache, &key(), at(2)).unwrap().snapshot.recent.early_ends;
    assert_eq!(ends, Some(EarlyEnds { until: vec![at(21)], words: taken_back.words }));
}
