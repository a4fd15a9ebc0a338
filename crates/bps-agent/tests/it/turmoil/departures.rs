//! Both Pods of the pair are deleted, one soon after the other: nothing of the pair may be left waiting.

use std::time::Duration;

use bps_protocol::Lease;

use crate::turmoil::scene::lease_after;
use crate::turmoil::script::{End, Fault, Planned, Script};

/// When the first Pod is deleted.
const AT: Duration = Duration::from_secs(1);
/// When both have left: the longest time that an agent stays to hand over and to relay, and a second.
const AFTER: Duration = Duration::from_secs(9);
const MILLISECOND: Duration = Duration::from_millis(1);
/// Longest times that messages take.
const NEAR: Duration = Duration::from_millis(2);
const FAR: Duration = Duration::from_millis(30);
/// How much later the second Pod is deleted. Unit: milliseconds. Around a round trip (50), how long who leaves answers, and
/// how long a standby that was heard counts as alive (620).
const APART: [u64; 8] = [0, 1, 20, 49, 90, 150, 400, 700];
/// Seeds: obedient and stubborn applications, either Pod the first active.
const SEEDS: std::ops::Range<u64> = 1..5;

/// Nobody holds the Lease after this: the operator would have to wait for W, as somebody might act.
fn is_released(seed: u64, latency: Duration, faults: &[Planned]) {
    let script = Script { faults: faults.to_vec(), latency, ..Script::quiet() };
    let (lease, entries) = lease_after(seed, &script, AFTER).expect("no agent ends with an error");
    let Lease { holder, epoch, .. } = lease;
    assert!(epoch.term > 0, "nobody ever acted");
    let left = entries.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(holder, None, "seed {seed}, {faults:?}:\n{left}");
}

fn deleted(first: usize, apart: u64) -> [Planned; 2] {
    let planned = |at, pod| Planned { at, fault: Fault::Deleted(pod), lasts: Duration::from_secs(60) };
    [planned(AT, first), planned(AT + Duration::from_millis(apart), 1 - first)]
}

fn stalled(at: Duration, pod: usize) -> Planned {
    Planned { at, fault: Fault::Stall(pod), lasts: Duration::from_millis(200) }
}

#[test]
fn two_that_are_deleted_one_after_the_other_leave_no_holder() {
    for seed in SEEDS {
        for apart in APART {
            for first in [0, 1] {
                is_released(seed, NEAR, &deleted(first, apart));
            }
        }
    }
}

/// An application ends while its agent stands still, and so does whoever was to act instead.
#[test]
fn who_stood_still_hears_that_its_peer_has_left_before_it_hands_over() {
    for seed in SEEDS {
        for apart in [10, 30, 60] {
            for first in [0, 1] {
                let [one, other] = deleted(first, apart);
                is_released(seed, NEAR, &[one, stalled(AT + MILLISECOND, first), other]);
            }
        }
    }
}

/// A handover crosses the farewell of a standby that stands still afterwards.
#[test]
fn who_leaves_hears_a_handover_that_came_while_it_stood_still() {
    for seed in SEEDS {
        for apart in [70, 90] {
            for first in [0, 1] {
                let [one, other] = deleted(first, apart);
                is_released(seed, FAR, &[one, other, stalled(other.at + MILLISECOND, 1 - first)]);
            }
        }
    }
}

/// The API server is slow, so that a hold ends before its tenure can be released: that of who was handed over to just before,
/// or of an active whose standby left a while ago.
#[test]
fn an_active_that_lapses_as_it_leaves_releases_what_names_its_tenure() {
    for (apart, slow_from) in [(125, 0), (200, 0), (1_250, 1_190), (1_300, 1_240)] {
        for seed in SEEDS {
            for first in [0, 1] {
                let [one, other] = deleted(first, apart);
                let slow = |pod| Planned {
                    at: AT + slow_from * MILLISECOND,
                    fault: Fault::Held(End::Pod(pod), End::Api),
                    lasts: 2_500 * MILLISECOND,
                };
                is_released(seed, NEAR, &[one, slow(0), slow(1), other]);
            }
        }
    }
}
