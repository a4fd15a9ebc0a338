//! What the counts amount to as a model of redundancy, and when a promised one is not held.

use bps_api::status::{Condition, ConditionStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::model::{
    Lifecycle, ObjectState, Outcome, Part, PodName, PodView, Reason, RedundancyPromise, Refusal, Role,
};
use crate::status::testing::*;

const CRASHED: Lifecycle = Lifecycle::Unready { since: jiff::Timestamp::UNIX_EPOCH };

const NO_REDUNDANCY: Option<RedundancyPromise> = Some(RedundancyPromise::NoRedundancy);
const N_WAY_ACTIVE: Option<RedundancyPromise> = Some(RedundancyPromise::NWayActive);
const N_PLUS_M: Option<RedundancyPromise> = Some(RedundancyPromise::NPlusM);
const TWO_N: Option<RedundancyPromise> = Some(RedundancyPromise::TwoN);

#[test]
fn the_counts_amount_to_a_model_and_its_spares() {
    let cases = [
        (None, [1, 0, 0], "no redundancy"),
        (None, [1, 0, 2], "no redundancy, 2 cold spares"),
        (None, [3, 0, 0], "N-way active x 3"),
        (None, [3, 0, 1], "N-way active x 3, 1 cold spare"),
        (None, [1, 1, 0], "N+M 1+1"),
        (None, [3, 2, 1], "N+M 3+2, 1 cold spare"),
        (None, [0, 0, 0], "no primaries"),
        (None, [0, 1, 2], "no primaries, 1 spare, 2 cold spares"),
        (NO_REDUNDANCY, [1, 0, 1], "no redundancy, 1 cold spare"),
        (NO_REDUNDANCY, [3, 0, 2], "no redundancy, 2 cold spares"),
        (N_WAY_ACTIVE, [3, 0, 0], "N-way active x 3"),
        (N_WAY_ACTIVE, [3, 2, 1], "N-way active x 3, 2 spares, 1 cold spare"),
        (N_WAY_ACTIVE, [1, 0, 0], "no redundancy"),
        (N_WAY_ACTIVE, [1, 1, 0], "N+M 1+1"),
        (N_PLUS_M, [2, 1, 1], "N+M 2+1, 1 cold spare"),
    ];
    for (promise, counts, expected) in cases {
        let mut case = new(counts, vec![]);
        case.snapshot.desired.promise = promise;
        assert_eq!(case.compute().redundancy, expected, "{promise:?} {counts:?}");
    }
}

#[test]
fn the_counts_of_pairs_amount_to_2n_as_far_as_there_are_standbys() {
    let cases = [
        ([1, 1, 0], "2N x 1"),
        ([3, 4, 0], "2N x 3, 1 spare"),
        ([2, 4, 1], "2N x 2, 2 spares, 1 cold spare"),
        ([3, 2, 0], "2N x 2, 1 primary without a standby"),
        ([4, 2, 1], "2N x 2, 2 primaries without a standby, 1 cold spare"),
        ([2, 0, 1], "no redundancy, 1 cold spare"),
        ([0, 2, 0], "no primaries, 2 spares"),
    ];
    for (counts, expected) in cases {
        for promise in [None, TWO_N] {
            let mut case = new(counts, vec![]);
            case.snapshot.group = Some(ObjectState::Current);
            case.snapshot.desired.promise = promise;
            assert_eq!(case.compute().redundancy, expected, "{promise:?} {counts:?}");
        }
    }
}

#[test]
fn the_counts_of_shared_standbys_amount_to_n_plus_m_as_far_as_there_are_places() {
    let cases = [
        ([4, 2, 0], "N+M 4+2 with standbys", false),
        ([3, 2, 1], "N+M 3+2 with standbys, 1 cold spare", false),
        ([2, 3, 0], "N+M 2+2 with standbys, 1 spare", false),
        ([5, 2, 0], "N+M 5+2 with standbys, 1 primary without one", true),
        ([2, 0, 1], "no redundancy, 1 cold spare", true),
    ];
    for (counts, expected, is_short) in cases {
        let mut case = new(counts, vec![]);
        (case.snapshot.group, case.snapshot.desired.standby_for) = (Some(ObjectState::Current), 2);
        case.snapshot.desired.promise = N_PLUS_M;
        let status = case.compute();
        assert_eq!(status.redundancy, expected, "{counts:?}");
        assert_eq!(said(&status, "Degraded").reason == "RedundancyLost", is_short, "{counts:?}");
    }
}

#[test]
fn a_standby_of_several_primaries_holds_the_promise_while_it_could_follow_each() {
    let standby_of = |peers: &[&str]| {
        let peers = peers.iter().map(|peer| PodName((*peer).to_owned())).collect();
        PodView { part: Part::Standby { peers }, ..available("web-c", Role::Hot) }
    };
    let active = |name: &str, peer: Option<&str>| {
        let peer = peer.map(|peer| PodName(peer.to_owned()));
        PodView { part: Part::Active { peer }, ..available(name, Role::Primary) }
    };
    let case = |pods: Vec<PodView>| {
        let mut case = paired(was_complete(N_PLUS_M, [2, 1, 0], pods));
        case.snapshot.desired.standby_for = 2;
        case
    };
    let followed = || [active("web-a", Some("web-c")), active("web-b", Some("web-c"))];
    let [one, two] = followed();
    let whole = case(vec![one, two, standby_of(&["web-a", "web-b"])]);
    assert_eq!(gist(&whole).1, "-AsExpected");
    let [one, _] = followed();
    let lacking = case(vec![one, active("web-b", None), standby_of(&["web-a"])]);
    assert_eq!(gist(&lacking).1, "+RedundancyLost");
    let [one, two] = followed();
    let mut lagging = case(vec![one, two, standby_of(&["web-a", "web-b"])]);
    lagging.snapshot.level = Some(std::collections::BTreeSet::new());
    assert_eq!(gist(&lagging).1, "+RedundancyLost");
}

/// A set that was complete before, with these Pods now.
fn was_complete(promise: Option<RedundancyPromise>, wanted: [usize; 3], pods: Vec<PodView>) -> Case {
    let mut case = seen(wanted, pods);
    case.snapshot.desired.promise = promise;
    case
}

/// The same as a new set.
fn is_new(promise: Option<RedundancyPromise>, wanted: [usize; 3], pods: Vec<PodView>) -> Case {
    let mut case = new(wanted, pods);
    case.snapshot.desired.promise = promise;
    case
}

/// The Pods of pairs, all available: `web-primary-0` and `web-hot-0` are the first one.
fn pairs(count: usize) -> Vec<PodView> {
    let peer = |role: Role, index: usize| Some(PodName(format!("web-{role}-{index}")));
    let pair = |index: usize| {
        let [active, standby] =
            [Role::Primary, Role::Hot].map(|role| available(&format!("web-{role}-{index}"), role));
        [
            PodView { part: Part::Active { peer: peer(Role::Hot, index) }, ..active },
            PodView {
                part: Part::Standby { peers: peer(Role::Primary, index).into_iter().collect() },
                ..standby
            },
        ]
    };
    (0..count).flat_map(pair).collect()
}

/// A set of pairs that promises a standby for each primary.
fn paired(mut case: Case) -> Case {
    case.snapshot.group = Some(ObjectState::Current);
    case
}

/// The phrase, and the reason of Degraded, a minus for `False`.
fn gist(case: &Case) -> (String, String) {
    let status = case.compute();
    let degraded = said(&status, "Degraded");
    let sign = if degraded.status == ConditionStatus::True { '+' } else { '-' };
    (status.state.clone(), format!("{sign}{}", degraded.reason))
}

/// Every case with its phrase and the reason of Degraded.
type Expected = (&'static str, Case, &'static str, &'static str);

fn with(mut case: Case, change: fn(&mut Case)) -> Case {
    change(&mut case);
    case
}

fn primary(name: &str, lifecycle: Lifecycle) -> PodView {
    pod(name, Role::Primary, lifecycle)
}

#[rustfmt::skip]
fn of_peers() -> Vec<Expected> {
    let two_of_three = || vec![primary("web-a", CRASHED), available("web-b", Role::Primary), available("web-c", Role::Primary)];
    let one_of_three = || vec![primary("web-a", CRASHED), primary("web-b", CRASHED), available("web-c", Role::Primary)];
    vec![
        ("nothing is promised, and the hot backup is lost", was_complete(None, [1, 1, 0], full([1, 0, 0])),
            "Refilling", "-AsExpected"),
        ("no redundancy is promised, and nothing is there", was_complete(NO_REDUNDANCY, [1, 0, 1], vec![]),
            "FailingOver", "-AsExpected"),
        ("N+M, complete", was_complete(N_PLUS_M, [2, 1, 0], full([2, 1, 0])),
            "Ready", "-AsExpected"),
        ("N+M, one of two hot backups is lost", was_complete(N_PLUS_M, [2, 2, 0], full([2, 1, 0])),
            "Refilling", "-AsExpected"),
        ("N+M, the only hot backup is lost", was_complete(N_PLUS_M, [2, 1, 0], full([2, 0, 0])),
            "Degraded: RedundancyLost", "+RedundancyLost"),
        ("N+M, the only hot backup crashed", was_complete(N_PLUS_M, [1, 1, 0], vec![
                available("web-a", Role::Primary), pod("web-b", Role::Hot, CRASHED),
            ]),
            "Degraded: RedundancyLost", "+RedundancyLost"),
        ("N+M, a primary is lost and the hot backup took its place",
            was_complete(N_PLUS_M, [2, 1, 0], vec![available("web-a", Role::Primary), primary("web-b", Lifecycle::Starting)]),
            "FailingOver", "+RedundancyLost"),
        ("N+M, a rollout replaces the hot backup",
            was_complete(N_PLUS_M, [1, 1, 0], full([1, 0, 0]).into_iter().map(outdated).collect()),
            "RollingOut", "+RedundancyLost"),
        ("N+M, not while the first Pods start", is_new(N_PLUS_M, [1, 1, 0], full([1, 0, 0])).next_pass(),
            "Starting", "-AsExpected"),
        ("N+M, no primary is wanted", was_complete(N_PLUS_M, [0, 1, 0], vec![]),
            "Refilling", "-AsExpected"),
        ("N-way active, one of three is lost", was_complete(N_WAY_ACTIVE, [3, 0, 0], two_of_three()),
            "FailingOver", "+PodUnready"),
        ("N-way active, two of three are lost", was_complete(N_WAY_ACTIVE, [3, 0, 0], one_of_three()),
            "FailingOver", "+RedundancyLost"),
        ("N-way active, two of three are lost, and nothing replaces them",
            was_complete(N_WAY_ACTIVE, [3, 0, 0], one_of_three()).hold(Reason::NoReadyBackup, "web-a"),
            "FailingOver", "+RedundancyLost"),
        ("N-way active, one of three is lost, and nothing replaces it",
            was_complete(N_WAY_ACTIVE, [3, 0, 0], two_of_three()).hold(Reason::NoReadyBackup, "web-a"),
            "Degraded: NoReadyBackup", "+NoReadyBackup"),
        ("N+M, the only hot backup is lost after one never came for so long that the start stalled", with(
                is_new(N_PLUS_M, [1, 2, 0], full([1, 0, 0])).next_pass(), |case| case.snapshot.now = at(1_000)),
            "Degraded: RedundancyLost", "+RedundancyLost"),
        ("N-way active of one", was_complete(N_WAY_ACTIVE, [1, 0, 0], full([1, 0, 0])),
            "Degraded: RedundancyLost", "+RedundancyLost"),
        ("N-way active of none", was_complete(N_WAY_ACTIVE, [0, 0, 0], vec![]),
            "Ready", "-AsExpected"),
        ("a quota says why", was_complete(N_PLUS_M, [1, 1, 0], full([1, 0, 0])).result(
                create("web-b", Role::Hot, Reason::PodMissing), Outcome::Failed(Refusal::QuotaExceeded)),
            "Refused: QuotaExceeded", "+QuotaExceeded"),
        ("paused", with(was_complete(N_PLUS_M, [1, 1, 0], full([1, 0, 0])), |case| case.snapshot.desired.paused = true),
            "Paused", "+RedundancyLost"),
        ("a rollout that stalls", with(
                was_complete(N_PLUS_M, [1, 1, 0], full([1, 0, 0]).into_iter().map(outdated).collect()).next_pass(),
                |case| case.snapshot.now = at(1_000)),
            "Degraded: RedundancyLost", "+RedundancyLost"),
    ]
}

#[rustfmt::skip]
fn of_pairs() -> Vec<Expected> {
    let spare_in_place_of_standby = || {
        let mut pods = pairs(1);
        pods[0].part = Part::Active { peer: None };
        pods[1].part = Part::None;
        pods
    };
    let level = |case: Case, names: &[&str]| {
        let names = names.iter().map(|name| PodName((*name).to_owned())).collect();
        let mut case = paired(case);
        case.snapshot.level = Some(names);
        case
    };
    vec![
        ("2N, complete", paired(was_complete(TWO_N, [2, 2, 0], pairs(2))),
            "Ready", "-AsExpected"),
        ("2N, a standby is lost", paired(was_complete(TWO_N, [2, 2, 0], pairs(2)[..3].to_vec())),
            "Degraded: RedundancyLost", "+RedundancyLost"),
        ("2N, a hot backup is no standby", paired(was_complete(TWO_N, [1, 1, 0], spare_in_place_of_standby())),
            "Degraded: RedundancyLost", "+RedundancyLost"),
        ("2N, each standby is in sync", level(was_complete(TWO_N, [1, 1, 0], pairs(1)), &["web-primary-0"]),
            "Ready", "-AsExpected"),
        ("2N, a standby is not in sync", level(was_complete(TWO_N, [1, 1, 0], pairs(1)), &[]),
            "Degraded: RedundancyLost", "+RedundancyLost"),
        ("2N, not while the first Pods start", paired(is_new(TWO_N, [2, 2, 0], pairs(2)[..3].to_vec())),
            "Starting", "-AsExpected"),
        ("2N, fewer hot backups than primaries", paired(was_complete(TWO_N, [2, 1, 0], pairs(2)[..3].to_vec())),
            "Degraded: RedundancyLost", "+RedundancyLost"),
        ("2N, the same while the first Pods start", paired(is_new(TWO_N, [2, 1, 0], vec![])),
            "Starting", "+RedundancyLost"),
        ("2N, no primary is wanted", paired(was_complete(TWO_N, [0, 0, 0], vec![])),
            "Ready", "-AsExpected"),
    ]
}

#[test]
fn a_promise_that_is_not_held_is_reported_unless_something_says_why_or_the_first_pods_start() {
    for (name, case, phrase, reason) in of_peers().into_iter().chain(of_pairs()) {
        assert_eq!(gist(&case), (phrase.to_owned(), reason.to_owned()), "{name}");
    }
}

#[test]
fn a_set_that_is_paused_while_it_starts_says_the_same_again() {
    let starting = is_new(N_PLUS_M, [1, 1, 0], full([1, 0, 0])).next_pass();
    let paused = with(starting, |case| case.snapshot.desired.paused = true);
    let first = paused.compute();
    assert_eq!(gist(&paused), ("Paused".to_owned(), "+RedundancyLost".to_owned()));
    assert_eq!(paused.next_pass().compute(), first);
}

#[test]
fn the_condition_says_what_is_missing_and_what_to_do() {
    let repair = "the condition Ready names the unready Pods; if they stay so, check their logs and nodes";
    let cases = [
        (
            was_complete(N_WAY_ACTIVE, [1, 0, 0], full([1, 0, 0])),
            "NWayActive promises that other primaries serve on, but spec.replicas is 1: write 2 or more; if an autoscaler \
             writes it, raise its minimum"
                .to_owned(),
        ),
        (
            was_complete(N_WAY_ACTIVE, [3, 0, 0], full([1, 0, 0])),
            format!(
                "NWayActive promises that other primaries serve on, but only 1 of 3 primaries is ready: {repair}"
            ),
        ),
        (
            was_complete(N_PLUS_M, [1, 2, 0], full([1, 0, 0])),
            format!(
                "NPlusM promises a hot backup that takes the place of a lost primary, but 0 of 2 hot backups are ready: \
                 {repair}, or write coldBackups, which fill such a gap sooner than new Pods"
            ),
        ),
        (
            paired(was_complete(TWO_N, [3, 1, 0], pairs(3)[..4].to_vec())),
            "TwoN promises a standby for each primary, but spec.hotBackups (1) is less than spec.replicas (3): write 3 \
             hotBackups or more; if an autoscaler writes replicas, as many as its maximum"
                .to_owned(),
        ),
        (
            paired(was_complete(TWO_N, [3, 3, 0], pairs(2))),
            format!("TwoN promises a standby for each primary, but only 2 of 3 primaries are ready: {repair}"),
        ),
        (
            paired(was_complete(TWO_N, [3, 3, 0], pairs(3)[..5].to_vec())),
            "TwoN promises a standby for each primary, but 1 of 3 primaries is without one that could take over: the \
             operator pairs it with a hot backup; if that lasts, see the conditions of HAGroup web"
                .to_owned(),
        ),
    ];
    for (case, message) in cases {
        let expected = Condition {
            r#type: "Degraded".to_owned(),
            status: ConditionStatus::True,
            reason: "RedundancyLost".to_owned(),
            message,
            last_transition_time: Time(at(10)),
            observed_generation: GENERATION,
        };
        assert_eq!(*said(&case.compute(), "Degraded"), expected);
    }
}
