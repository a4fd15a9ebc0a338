//! What may be broken on purpose, and how it is told.

use bps_api::keys;
use jiff::SignedDuration;
use kube::ResourceExt as _;

use super::prospects::scene;
use crate::drill::{Drill, DrillOutcome, Fault, permitted};
use crate::scene::Scene;

fn primary() -> Fault {
    Fault::Pod("web-2".to_owned())
}

fn cordon(node: &str) -> Fault {
    Fault::Cordon(node.to_owned())
}

fn refused(scene: &Scene, fault: &Fault) -> String {
    permitted(scene, fault).expect_err("it is refused").to_string()
}

#[test]
fn what_a_set_at_rest_outlives_may_be_tried() {
    let deleted = permitted(&scene(), &primary()).expect("a hot backup takes over");
    assert_eq!(deleted.tiers.primary, ["web-3"]);
    let cordoned = permitted(&scene(), &cordon("node-2")).expect("the primary leaves it");
    assert_eq!(cordoned.losses, ["node node-2 is cordoned"]);
}

#[test]
fn nothing_is_broken_that_is_not_repaired() {
    let mut paused = scene();
    paused.set.spec.paused = true;
    assert_eq!(refused(&paused, &primary()), "web is paused: end that by `kubectl bps resume bps/web`");

    let mut short = scene();
    short.objects.pods.truncate(1);
    assert_eq!(
        refused(&short, &primary()),
        "web is not at rest: `kubectl bps plan bps/web` says what it waits for"
    );

    // Its own node takes no new Pod, and no other one has room for the one that would have to be made.
    let mut full = scene();
    full.set.spec.hot_backups = 0;
    full.objects.pods.truncate(1);
    for node in full.nodes.iter_mut().flatten() {
        node.status.get_or_insert_default().allocatable = None;
        node.spec.get_or_insert_default().unschedulable = Some(node.name_any() == "node-2");
    }
    assert_eq!(
        refused(&full, &primary()),
        "web would not outlive this: `kubectl bps whatif bps/web --pod web-2` shows how"
    );

    let blind = Scene { requested: None, ..scene() };
    assert!(refused(&blind, &primary()).starts_with("a drill needs to list nodes"));
}

#[test]
fn what_changes_nothing_is_not_tried() {
    assert_eq!(
        refused(&scene(), &cordon("node-3")),
        "--cordon node-3 would change nothing for web: there is nothing to try"
    );
    let mut cordoned = scene();
    for node in cordoned.nodes.iter_mut().flatten() {
        node.spec.get_or_insert_default().unschedulable = Some(true);
    }
    assert_eq!(refused(&cordoned, &cordon("node-2")), "node node-2 is cordoned already");
    assert!(refused(&scene(), &cordon("node-9")).starts_with("no node is called \"node-9\""));
}

#[test]
fn one_drill_at_a_time_and_the_last_one_is_told() {
    let began = scene().taken;
    let going = Drill {
        fault: "Pod web-2 is deleted".to_owned(),
        began,
        until: Some(began + SignedDuration::from_secs(60)),
        outcome: None,
    };
    let mut scene = scene();
    let text = serde_json::to_string(&going).expect("JSON");
    scene.set.annotations_mut().insert(keys::ANNOTATION_DRILL.to_owned(), text);
    assert_eq!(Drill::of(&scene.set), Some(going.clone()));
    assert!(refused(&scene, &primary()).starts_with("another drill goes on until "));
    assert!(going.words(began).ends_with("Pod web-2 is deleted; it goes on"));

    // A program that was killed leaves its note, and a later drill is free to begin.
    let later = began + SignedDuration::from_secs(61);
    assert!(going.words(later).ends_with("; its program has ended and undone nothing"));
    scene.taken = later;
    assert!(permitted(&scene, &primary()).is_ok());

    let outcome = DrillOutcome { survived: true, as_foretold: true, short_for_seconds: 0.25, seconds: 3.0 };
    let over = Drill { until: None, outcome: Some(outcome), ..going };
    let told = "Pod web-2 is deleted; outlived, as foretold after 3.0 s, fewer primaries for 0.25 s";
    assert!(over.words(later).ends_with(told), "{}", over.words(later));
}
