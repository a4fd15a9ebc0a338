//! Pairs of which no level copy is to be seen, as one finds them who looks for the first time.

use std::sync::Arc;
use std::time::Duration;

use bps_api::{HAGroup, PairStatus, WITHHELD, keys};
use bps_core::pairing::Forsaken;
use bps_protocol::BootTime;
use bps_wire::uid::format_uid;
use kube_core::ResourceExt as _;

use crate::group::{GroupObjects, see_group};
use crate::testing::{group, lease, objects};

fn at(seconds: u64) -> BootTime {
    BootTime::default() + Duration::from_secs(seconds)
}

/// These Pods, of which Pod 1 is not ready, and the pair of Pods 1 and 2, of which these are level.
fn replicated(pods: &[u32], level: &[u128]) -> GroupObjects {
    let directories: Vec<String> = level.iter().map(|number| format!("{number:032x}")).collect();
    let level_pods: Vec<String> = level.iter().map(|number| format_uid(*number)).collect();
    let annotations = [
        (keys::ANNOTATION_HA_IN_SYNC, &*directories.join(",")),
        (keys::ANNOTATION_HA_IN_SYNC_PODS, &*level_pods.join(",")),
    ];
    objects(pods, lease(&annotations), None)
}

/// A group whose status says this of its pairs.
fn told(pairs: &[(&str, &str)]) -> HAGroup {
    let pair = |(name, state): &(&str, &str)| PairStatus {
        name: (*name).to_owned(),
        state: (*state).to_owned(),
        ..PairStatus::default()
    };
    let mut group = group();
    group.status.get_or_insert_default().pairs = pairs.iter().map(pair).collect();
    group
}

fn forsaken(group: &HAGroup, objects: &GroupObjects, seconds: u64) -> Vec<Option<Forsaken>> {
    let seen = see_group(group, objects, at(seconds));
    assert_eq!(seen.unreadable.len(), 0, "{:?}", seen.unreadable);
    seen.group.pairs.iter().map(|pair| pair.forsaken).collect()
}

#[test]
fn a_pair_is_forsaken_from_the_look_on_that_finds_it_so_until_one_does_not() {
    let untold = told(&[("web-0", "Paired")]);
    let since = |seconds| vec![Some(Forsaken { since: at(seconds), was_told: false })];
    let lost = replicated(&[2], &[1]);
    assert_eq!([7, 9].map(|seconds| forsaken(&untold, &lost, seconds)), [since(7), since(9)]);
    assert_eq!(forsaken(&untold, &replicated(&[1, 2], &[1]), 7), since(7), "unready is as good as gone");
    let freed = objects(&[2], lease(&[]), None);
    for (case, objects) in [("level", replicated(&[2], &[1, 2])), ("a person decided", freed)] {
        assert_eq!(forsaken(&untold, &objects, 7), [None], "{case}");
        // What was told of it does not last longer than it does.
        assert_eq!(forsaken(&told(&[("web-0", WITHHELD)]), &objects, 7), [None], "{case}");
    }
}

#[test]
fn what_was_told_of_one_pair_was_not_told_of_another() {
    let both = |mut objects: GroupObjects| {
        let mut second = objects.leases[0].as_ref().clone();
        second.metadata.name = Some("web-1".to_owned());
        second.annotations_mut().insert(keys::ANNOTATION_HA_PAIR.to_owned(), "1".to_owned());
        objects.leases.insert(0, Arc::new(second));
        objects
    };
    let found = |was_told| Some(Forsaken { since: at(7), was_told });
    let table = [
        (vec![], [false, false]),
        (vec![("web-0", "Alone"), ("web-1", WITHHELD)], [false, true]),
        (vec![("web-0", WITHHELD)], [true, false]),
        (vec![("other-0", WITHHELD), ("web-10", WITHHELD)], [false, false]),
    ];
    for (pairs, expected) in table {
        let seen = forsaken(&told(&pairs), &both(replicated(&[2], &[1])), 7);
        assert_eq!(seen, expected.map(found), "{pairs:?}");
    }
    let mut one = both(replicated(&[2], &[1]));
    one.leases[1] = Arc::new(lease(&[]));
    assert_eq!(forsaken(&told(&[("web-1", WITHHELD)]), &one, 7), [None, found(true)]);
}

/// A group whose specification names shorter times than those that its pairs have gone by.
#[test]
fn whoever_looks_first_waits_for_missing_pairs_as_long_as_the_status_tells() {
    let waits = |told_seconds, outage| {
        let mut group = told(&[("web-0", "Paired")]);
        group.spec.timing.get_or_insert_default().api_outage_seconds = outage;
        group.status.get_or_insert_default().wait_seconds = told_seconds;
        let seen = see_group(&group, &GroupObjects::default(), at(7));
        let untils: Vec<_> = seen.group.lost.iter().map(|lost| lost.until.since(at(7)).as_secs()).collect();
        (untils, seen.told_wait.as_secs())
    };
    assert_eq!(waits(3_721, 0), (vec![3_721], 3_721));
    assert_eq!(waits(61, 0), (vec![61], 61));
    assert_eq!(waits(61, 60), (vec![122], 122), "made before the status told of it");
    let mut over = told(&[]);
    let lost = bps_api::LostPair {
        name: "web-3".into(),
        pods: vec!["web-6".into()],
        in_sync: None,
        in_sync_pods: String::new(),
        is_over: true,
    };
    over.status.get_or_insert_default().lost = vec![lost];
    let seen = see_group(&over, &GroupObjects::default(), at(7));
    assert_eq!(seen.group.lost.iter().map(|lost| lost.until).collect::<Vec<_>>(), [BootTime::default()]);
    assert_eq!(waits(0, 0), (vec![3_780], 3_780), "an operator wrote the status that knew no such times");
}

#[test]
fn a_lease_tells_the_rank_of_its_pair_and_no_number_is_none() {
    let rank = |annotations: &[(&str, &str)]| {
        let seen = see_group(&group(), &objects(&[1, 2], lease(annotations), None), at(7));
        seen.group.pairs.iter().map(|pair| pair.rank).collect::<Vec<_>>()
    };
    assert_eq!(rank(&[(keys::ANNOTATION_RANK, "-3")]), [-3]);
    assert_eq!(rank(&[(keys::ANNOTATION_RANK, "first")]), [0]);
    assert_eq!(rank(&[]), [0]);
}
