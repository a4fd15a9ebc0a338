//! Property: watch events in their order, mixed in any way with answers to own writes, end in what the server has.

use bps_api::keys;
use proptest::prelude::*;
use serde_json::json;

use super::{at, pod};
use crate::slim::SlimPod;
use crate::store::CONFIRMATION_DEADLINE;
use crate::{Cache, Kind, Scope, SetKey, Watched, Written};

const NAMES: [&str; 2] = ["p", "q"];
const SETS: [&str; 2] = ["web", "api"];

/// One change on the server. Creating what exists and changing what does not is no change.
#[derive(Clone, Copy, Debug)]
struct Edit {
    name: usize,
    is_deletion: bool,
    set: usize,
    /// When its answer arrives, if the edit is ours: before this many of the watch's events.
    answered: Option<usize>,
}

/// A version of a Pod on the server, or its end.
#[derive(Clone, Debug)]
enum Fact {
    Is(SlimPod),
    Ended(SlimPod),
}

/// What reaches the cache.
#[derive(Clone, Debug)]
enum Message {
    Seen(Fact),
    /// The watch was away and lists everything anew.
    Listed(Vec<SlimPod>),
    Answered(Fact),
}

/// Every change in order, with the place of its answer; and the state after each.
struct History {
    facts: Vec<(Fact, Option<usize>)>,
    states: Vec<Vec<SlimPod>>,
}

fn history(edits: &[Edit]) -> History {
    let mut alive: [Option<SlimPod>; 2] = [None, None];
    let mut history = History { facts: Vec::new(), states: vec![Vec::new()] };
    for edit in edits {
        let version = history.facts.len() + 1;
        let known = alive[edit.name].take();
        let fact = match (known, edit.is_deletion) {
            (None, true) => continue,
            (Some(old), true) => Fact::Ended(old),
            (known, false) => {
                let uid = known.map_or(format!("u{version}"), |old| old.metadata.uid.unwrap());
                let set = SETS[edit.set];
                let now = pod(&json!({"metadata": {
                    "name": NAMES[edit.name], "uid": uid, "resourceVersion": version.to_string(),
                    "labels": {(keys::LABEL_SET): set},
                }}));
                alive[edit.name] = Some(now.clone());
                Fact::Is(now)
            }
        };
        history.facts.push((fact, edit.answered));
        history.states.push(alive.iter().flatten().cloned().collect());
    }
    history
}

/// The watch's messages, with one gap that ends in a list, and answers put where they arrive.
fn messages(history: &History, gap: std::ops::Range<usize>) -> Vec<Message> {
    let count = history.facts.len();
    let gap = gap.start.min(count)..gap.end.min(count);
    let mut watch: Vec<Message> = Vec::new();
    for (index, (fact, _)) in history.facts.iter().enumerate() {
        if index == gap.start && !gap.is_empty() {
            watch.push(Message::Listed(history.states[gap.end].clone()));
        }
        if !gap.contains(&index) {
            watch.push(Message::Seen(fact.clone()));
        }
    }
    let mut all = Vec::new();
    for index in 0..=watch.len() {
        let is_here = |place: &usize| (*place).min(watch.len()) == index;
        let here = history.facts.iter().filter(|(_, place)| place.as_ref().is_some_and(is_here));
        all.extend(here.map(|(fact, _)| Message::Answered(fact.clone())));
        all.extend(watch.get(index).cloned());
    }
    all
}

fn take_in(cache: &mut Cache, message: Message) {
    match message {
        Message::Seen(Fact::Is(pod)) => drop(pod.seen(cache, at(0))),
        Message::Seen(Fact::Ended(pod)) => drop(pod.lost(cache, at(0))),
        Message::Listed(pods) => {
            cache.begin_list(Kind::Pods, &Scope(None));
            for pod in pods {
                pod.seen(cache, at(0));
            }
            cache.end_list(Kind::Pods, &Scope(None), at(0));
        }
        Message::Answered(Fact::Is(pod)) => cache.wrote(Written::Pod(Box::new(pod)), at(0)),
        Message::Answered(Fact::Ended(pod)) => cache.wrote(Written::PodGone(Box::new(pod)), at(0)),
    }
}

/// Name, uid, version and set of every Pod.
fn facts<'p>(pods: impl IntoIterator<Item = &'p SlimPod>) -> Vec<[String; 4]> {
    let mut facts: Vec<[String; 4]> = pods
        .into_iter()
        .map(|pod| {
            let meta = &pod.metadata;
            let set = meta.labels.as_ref().unwrap()[keys::LABEL_SET].clone();
            [
                meta.name.clone().unwrap(),
                meta.uid.clone().unwrap(),
                meta.resource_version.clone().unwrap(),
                set,
            ]
        })
        .collect();
    facts.sort();
    facts
}

/// What the index finds, set by set.
fn indexed(cache: &Cache) -> Vec<[String; 4]> {
    let of = |name: &str| {
        let key = SetKey { namespace: "shop".into(), name: name.into() };
        let found = facts(cache.pods_of(&key).map(AsRef::as_ref));
        assert!(found.iter().all(|fact| fact[3] == name), "the index of {name} holds {found:?}");
        found
    };
    let mut all: Vec<[String; 4]> = SETS.iter().flat_map(|name| of(name)).collect();
    all.sort();
    all
}

fn edit() -> impl Strategy<Value = Edit> {
    (0..2_usize, prop::bool::weighted(0.3), 0..2_usize, prop::option::of(0..12_usize))
        .prop_map(|(name, is_deletion, set, answered)| Edit { name, is_deletion, set, answered })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_events_and_answers_ends_in_what_the_server_has(
        edits in prop::collection::vec(edit(), 1..12),
        gap in (0..12_usize, 0..6_usize),
    ) {
        let history = history(&edits);
        let mut cache = Cache::default();
        for message in messages(&history, gap.0..gap.0 + gap.1) {
            take_in(&mut cache, message);
            prop_assert_eq!(indexed(&cache), facts(cache.pods.values().map(AsRef::as_ref)));
        }
        let truth = history.states.last().expect("there is a state before the first edit");
        let due = at(0) + CONFIRMATION_DEADLINE;
        if cache.has_overdue(due) {
            cache.begin_list(Kind::Pods, &Scope(None));
            for pod in truth.clone() {
                pod.seen(&mut cache, due);
            }
            cache.end_list(Kind::Pods, &Scope(None), due);
        }
        prop_assert_eq!(facts(cache.pods.values().map(AsRef::as_ref)), facts(truth));
        prop_assert_eq!(indexed(&cache), facts(truth));
    }
}
