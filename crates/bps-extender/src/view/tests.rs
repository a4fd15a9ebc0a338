//! The sums of nodes: against a plugin of the scheduler, over random histories, and when a scored Pod is settled.

use kube::core::ObjectMeta;
use proptest::prelude::{Just, Strategy, prop_assert_eq, prop_oneof, proptest};
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::balance::{Deviation, balance};

fn view() -> NodeSums {
    let mut view = NodeSums::new(resources(&["cpu", "memory", "example.com/device"]));
    view.see_node(&node("n1", &json!({"cpu": "4", "memory": "8Gi"})));
    view.see_node(&node("n2", &json!({"cpu": "2", "memory": "8Gi", "example.com/device": "4"})));
    view
}

fn resources(names: &[&str]) -> Vec<BalancedResource> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn node(name: &str, allocatable: &Value) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}}))
        .unwrap()
}

/// A Pod of 500 m and 1 GiB with this number and these further fields of its spec and its status.
fn pod(number: usize, node: Option<&str>, status: &Value) -> Pod {
    let resources = json!({"requests": {"cpu": "500m", "memory": "1Gi"}});
    let spec = json!({"containers": [{"name": "web", "resources": resources}], "nodeName": node});
    let metadata =
        json!({"name": format!("web-{number}"), "namespace": "default", "uid": format!("uid-{number}")});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

fn waiting(number: usize) -> Pod {
    pod(number, None, &json!({}))
}

fn on(number: usize, node: &str) -> Pod {
    pod(number, Some(node), &json!({"phase": "Running"}))
}

fn fractions(view: &NodeSums, node: &str) -> Option<Vec<f64>> {
    view.fractions(node, &view.needs(&waiting(99)))
}

#[test]
fn a_pod_is_counted_with_what_is_on_the_node_and_only_for_resources_that_it_has() {
    let mut view = view();
    view.see_pod(&on(1, "n1"));
    view.see_pod(&waiting(2));
    assert_eq!(fractions(&view, "n1"), Some(vec![0.25, 0.25]));
    assert_eq!(fractions(&view, "n2"), Some(vec![0.25, 0.125, 0.0]));
    assert_eq!(fractions(&view, "n3"), None);
}

#[test]
fn a_pod_that_has_ended_or_is_gone_is_not_counted() {
    let mut view = view();
    let empty = fractions(&view, "n1");
    for phase in ["Succeeded", "Failed"] {
        view.see_pod(&on(1, "n1"));
        view.see_pod(&pod(1, Some("n1"), &json!({"phase": phase})));
        assert_eq!(fractions(&view, "n1"), empty, "{phase}");
    }
    view.see_pod(&on(1, "n1"));
    view.forget_pod(&on(1, "n1"));
    assert_eq!(fractions(&view, "n1"), empty);
    view.forget_pod(&on(1, "n1"));
    assert_eq!((fractions(&view, "n1"), view.requested.len()), (empty, 0));
}

#[test]
fn more_than_there_is_counts_as_all_of_it() {
    let mut view = view();
    for number in 0..9 {
        view.see_pod(&on(number, "n2"));
    }
    assert_eq!(fractions(&view, "n2"), Some(vec![1.0, 1.0, 0.0]));
}

#[test]
fn what_a_new_list_does_not_show_is_gone_and_what_it_shows_is_not_counted_twice() {
    let mut view = view();
    assert!(!view.is_ready());
    view.begin_nodes();
    view.begin_pods();
    view.see_pod(&on(1, "n1"));
    view.see_pod(&on(2, "n1"));
    for name in ["n1", "n2"] {
        view.see_node(&node(name, &json!({"cpu": "4", "memory": "8Gi"})));
    }
    view.end_pods();
    view.end_nodes();
    assert!(view.is_ready());

    view.begin_pods();
    view.see_pod(&on(2, "n1"));
    assert_eq!(fractions(&view, "n1"), Some(vec![0.375, 0.375]), "nothing is lost before the list ends");
    view.end_pods();
    assert_eq!(fractions(&view, "n1"), Some(vec![0.25, 0.25]));

    view.begin_nodes();
    view.see_node(&node("n2", &json!({"cpu": "2"})));
    view.end_nodes();
    assert_eq!(fractions(&view, "n1"), None);
    assert_eq!(fractions(&view, "n2"), Some(vec![0.25]), "a node may lose a resource");
    assert!(view.is_ready());
}

fn refused(since: &str) -> Value {
    json!({"conditions": [{"type": "PodScheduled", "status": "False", "lastTransitionTime": since}]})
}

#[test]
fn a_refusal_of_an_earlier_attempt_settles_nothing() {
    let mut view = view();
    let before = pod(1, None, &refused("2026-01-01T00:00:00Z"));
    view.note_scored(&before);
    view.see_pod(&before);
    assert!(!view.is_settled(&waiting(2)), "an edit of its labels, or a list");
    view.see_pod(&pod(1, None, &refused("2026-01-01T00:00:09Z")));
    assert!(view.is_settled(&waiting(2)));
}

#[test]
fn a_scored_pod_that_a_list_does_not_show_is_settled() {
    let mut view = view();
    view.note_scored(&waiting(1));
    view.begin_pods();
    view.end_pods();
    assert!(view.is_settled(&waiting(2)));
}

#[test]
fn nothing_is_collected_between_lists() {
    let mut view = view();
    view.begin_pods();
    view.end_pods();
    for number in 0..9 {
        view.see_pod(&on(number, "n1"));
        view.forget_pod(&on(number, "n1"));
    }
    assert_eq!((view.pods.seen, view.placed.len()), (None, 0));
}

#[test]
fn a_resource_whose_sum_the_scheduler_does_not_keep_is_refused() {
    for name in ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/device"] {
        assert_eq!(name.parse::<BalancedResource>().map(|it| it.to_string()), Ok(name.to_owned()));
    }
    for name in ["pods", "storage", "gpu", ""] {
        let refused = name.parse::<BalancedResource>().unwrap_err().to_string();
        assert!(refused.contains("write cpu, memory"), "{refused}");
    }
}

#[test]
fn a_scored_pod_is_settled_when_it_has_a_node_is_refused_ends_or_is_gone() {
    let refused = refused("2026-01-01T00:00:00Z");
    let ends: [fn(&mut NodeSums, &Value); 4] = [
        |view, _| view.see_pod(&on(1, "n1")),
        |view, refused| view.see_pod(&pod(1, None, refused)),
        |view, _| view.see_pod(&pod(1, None, &json!({"phase": "Failed"}))),
        |view, _| view.forget_pod(&waiting(1)),
    ];
    for end in ends {
        let mut view = view();
        assert!(view.is_settled(&waiting(2)), "nothing was scored");
        view.see_pod(&waiting(1));
        view.note_scored(&waiting(1));
        assert!(!view.is_settled(&waiting(2)));
        assert!(view.is_settled(&waiting(1)), "it is scored again");
        view.see_pod(&on(3, "n1"));
        assert!(!view.is_settled(&waiting(2)), "another Pod says nothing of it");
        end(&mut view, &refused);
        assert!(view.is_settled(&waiting(2)));
    }
}

#[test]
fn a_pod_that_was_placed_before_it_is_noted_is_settled() {
    let mut view = view();
    view.see_pod(&on(1, "n1"));
    view.note_scored(&waiting(1));
    assert!(view.is_settled(&waiting(2)));
}

/// A case of `tests/rbra`, whose scores are those of plugins of kube-scheduler itself.
#[derive(Deserialize)]
struct Case {
    name: String,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    incoming: Pod,
    resources: Vec<String>,
    expected: BTreeMap<String, Expected>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Expected {
    population: u8,
    literal: u8,
}

#[test]
fn scores_are_those_of_a_plugin_that_has_the_sums_of_the_scheduler() {
    let path = bps_testkit::files::repository().join("tests/rbra/scores.json");
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(cases.len() > 30, "{} cases", cases.len());
    for case in cases {
        // Others have no sum in the scheduler, so that they do not count.
        let mut view = NodeSums::new(case.resources.iter().filter_map(|name| name.parse().ok()).collect());
        for node in &case.nodes {
            view.see_node(node);
        }
        for (number, pod) in case.pods.into_iter().enumerate() {
            view.see_pod(&Pod {
                metadata: ObjectMeta { uid: Some(number.to_string()), ..pod.metadata },
                ..pod
            });
        }
        let score = |node: &Node| {
            let fractions = view.fractions(&node.name_any(), &view.needs(&case.incoming)).unwrap();
            let score = |deviation| balance(&fractions, deviation);
            let found =
                Expected { population: score(Deviation::Population), literal: score(Deviation::Literal) };
            (node.name_any(), found)
        };
        let found: BTreeMap<String, Expected> = case.nodes.iter().map(score).collect();
        assert_eq!(found, case.expected, "{}", case.name);
    }
}

/// What a watch may show.
#[derive(Clone, Debug)]
enum Shown {
    On(usize, &'static str),
    Ended(usize),
    Gone(usize),
    Relisted,
}

fn shown() -> impl Strategy<Value = Shown> {
    let (pods, nodes) = (0..6_usize, prop_oneof![Just("n1"), Just("n2")]);
    prop_oneof![
        4 => (pods.clone(), nodes).prop_map(|(pod, node)| Shown::On(pod, node)),
        1 => pods.clone().prop_map(Shown::Ended),
        1 => pods.prop_map(Shown::Gone),
        1 => Just(Shown::Relisted),
    ]
}

proptest! {
    #[test]
    fn the_sums_are_those_of_the_pods_that_are_there(history in proptest::collection::vec(shown(), 0..40)) {
        let mut view = view();
        let mut there: BTreeMap<usize, &str> = BTreeMap::new();
        for event in history {
            match event {
                Shown::On(number, node) => {
                    view.see_pod(&on(number, node));
                    there.insert(number, node);
                }
                Shown::Ended(number) => {
                    view.see_pod(&pod(number, there.get(&number).copied(), &json!({"phase": "Succeeded"})));
                    there.remove(&number);
                }
                Shown::Gone(number) => {
                    view.forget_pod(&waiting(number));
                    there.remove(&number);
                }
                Shown::Relisted => {
                    view.begin_pods();
                    for (number, node) in &there {
                        view.see_pod(&on(*number, node));
                    }
                    view.end_pods();
                }
            }
        }
        for name in ["n1", "n2"] {
            let count = there.values().filter(|node| **node == name).count() as u64;
            let found = view.requested.get(name).cloned();
            let wanted = (count > 0).then(|| Needs(vec![count * 500, count << 30, 0]));
            prop_assert_eq!(found, wanted, "{}", name);
        }
    }
}

/// A view that has listed nodes and Pods.
fn listed() -> NodeSums {
    let mut view = view();
    view.begin_nodes();
    view.see_node(&node("n1", &json!({"cpu": "4"})));
    view.end_nodes();
    view.begin_pods();
    view.end_pods();
    view
}

#[test]
fn sums_are_stale_once_a_watch_has_failed_for_longer_than_the_bound() {
    let failed = Instant::now();
    let (bound, later) = (failed + STALE_AFTER, failed + STALE_AFTER + Duration::from_millis(1));
    assert_eq!(view().state(later), ViewState::Unlisted);

    let mut view = listed();
    view.fail_pods(failed);
    view.fail_pods(bound);
    assert!(view.doubts_pods() && !view.doubts_nodes());
    assert_eq!((view.state(bound), view.state(later)), (ViewState::Current, ViewState::Stale));

    view.see_node(&node("n1", &json!({"cpu": "4"})));
    assert_eq!(view.state(later), ViewState::Stale, "the other watch says nothing of it");
    view.forget_pod(&waiting(1));
    assert_eq!(view.state(later), ViewState::Current);
    assert!(!view.doubts_pods());
}

#[test]
fn a_list_under_way_is_no_proof_until_it_has_ended() {
    let failed = Instant::now();
    let later = failed + 2 * STALE_AFTER;
    let mut view = listed();
    view.fail_nodes(failed);
    view.begin_nodes();
    view.see_node(&node("n1", &json!({"cpu": "4"})));
    assert_eq!(view.state(later), ViewState::Stale);
    assert!(!view.doubts_nodes(), "it goes on until it has ended");
    view.end_nodes();
    assert_eq!(view.state(later), ViewState::Current);
}
