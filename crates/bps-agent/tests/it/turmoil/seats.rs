//! A Pod that is the standby of two actives: the real loops of its two seats on one machine, with one socket, one
//! enforcer and the turnstile between them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bps_api::keys;
use bps_protocol::AgentId;
use bps_protocol::testing::short;
use bps_wire::uid::format_uid;
use serde_json::json;
use tokio::sync::watch;
use turmoil::{Builder, Sim};

use crate::turmoil::agent::{Pod, member};
use crate::turmoil::api::Hub;
use crate::turmoil::machine::{Computer, Flaw};
use crate::turmoil::record::{Journal, Span, check, spans};
use crate::turmoil::script::Script;
use crate::turmoil::server::{self, API};
use crate::turmoil::world::EPOCH_SECONDS;

/// Both actives, the Pod that stands by for them, and a spare.
const NAMES: [&str; 4] = ["a", "b", "s", "c"];
const SHARED: usize = 2;
const SPARE: usize = 3;
/// The pair of each active.
const PAIRS: [&str; 2] = ["web-0", "web-1"];
const SECOND: Duration = Duration::from_secs(1);
/// When the first fault happens: both pairs live on promises by then.
const FAULT_AT: Duration = Duration::from_secs(3);
/// How long a takeover takes at most, and what follows from it: twice T, a start that fails, and some attempts.
const SETTLES_IN: Duration = Duration::from_secs(8);
/// When a standby has certainly sent its claim: T, and some more.
const CLAIMS_IN: Duration = Duration::from_secs(3);
/// Seeds: obedient and stubborn applications, and hosts that take turns in different orders.
const SEEDS: std::ops::Range<u64> = 1..13;

/// Both pairs on three machines.
struct Fleet {
    sim: Sim<'static>,
    hub: Hub,
    journal: Journal,
    pods: Vec<Arc<Pod>>,
    addresses: [IpAddr; NAMES.len()],
}

impl Fleet {
    fn new(seed: u64, flaw: Flaw) -> Self {
        let mut sim = Builder::new()
            .rng_seed(seed)
            .epoch(UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS.unsigned_abs()))
            .simulation_duration(120 * SECOND)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(2))
            .udp_capacity(4_096)
            .tcp_capacity(1_024)
            .build();
        let addresses = NAMES.map(|name| sim.lookup(name));
        let members = [0, 1, SHARED].map(|index| member(NAMES[index], addresses[index]));
        // The active is the first member of its Lease, so that it begins.
        let members_of = [0, 1].map(|pair| [members[pair].clone(), members[SHARED].clone()]);
        let hub = server::cluster_of(&[(PAIRS[0], &members_of[0]), (PAIRS[1], &members_of[1])]);
        let (served, late) = (hub.clone(), watch::channel(Duration::ZERO).1);
        sim.host(API, move || server::serve(served.clone(), late.clone()));
        // Plain Pods with exact clocks.
        let Script { skews: [skew, ..], habits: [habits, ..], .. } = Script::quiet();
        let journal = Journal::default();
        let seats: [&[&'static str]; NAMES.len()] = [&PAIRS[..1], &PAIRS[1..], &PAIRS, &PAIRS[1..]];
        let pods = NAMES.into_iter().zip(seats).enumerate().map(|(index, (name, pairs))| {
            let own = seed.wrapping_mul(NAMES.len() as u64).wrapping_add(index as u64);
            let computer = Computer::new(name, own, (skew, flaw), journal.clone());
            let pod = Pod::of(computer, addresses[index], habits, &short(), pairs);
            let started = pod.clone();
            sim.host(name, move || started.clone().live());
            pod
        });
        let pods = pods.collect();
        Self { sim, hub, journal, pods, addresses }
    }

    fn run_until(&mut self, until: Duration) {
        while self.sim.elapsed() < until {
            self.sim.step().expect("no agent ends with an error");
        }
    }

    /// Nothing runs in a Pod any more, and nothing tells.
    fn lose(&mut self, index: usize) {
        self.pods[index].computer.cut_off(self.sim.elapsed());
        self.sim.crash(NAMES[index]);
    }

    fn return_of(&mut self, index: usize) {
        self.sim.bounce(NAMES[index]);
    }

    /// The operator asks for the spare in the place of the shared Pod in the second pair.
    fn replace(&self) {
        let joining = member(NAMES[SPARE], self.addresses[SPARE]);
        let leaving = format_uid(self.pods[SHARED].id().0);
        let pending = json!({"leaving": leaving, "joining": joining}).to_string();
        server::annotate_of(&self.hub, PAIRS[1], keys::ANNOTATION_HA_PENDING, Some(pending));
    }

    fn holder(&self, pair: usize) -> Option<usize> {
        let holder: AgentId = server::lease_of(&self.hub, PAIRS[pair]).lease.holder?;
        self.pods.iter().position(|pod| pod.id() == holder)
    }

    /// The spans in which each machine's applications acted.
    fn spans_of(&self, index: usize) -> Vec<Span> {
        spans(&self.journal.entries()).into_iter().filter(|span| span.node == NAMES[index]).collect()
    }

    /// Machines on which an application acts now.
    fn acting(&self) -> Vec<&'static str> {
        let all = spans(&self.journal.entries());
        let mut acting: Vec<_> = all.iter().filter(|span| span.to.is_none()).map(|span| span.node).collect();
        acting.sort_unstable();
        acting
    }

    fn told(&self) -> String {
        self.journal.entries().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    /// Whether on no machine two applications ever act at the same time.
    fn is_apart(&self) -> Result<(), String> {
        (0..NAMES.len()).try_for_each(|index| {
            let mut spans = self.spans_of(index);
            // Epochs of two pairs have nothing to do with each other.
            spans.iter_mut().zip(1..).for_each(|(span, epoch)| span.epoch = epoch);
            check(&spans)
        })
    }

    fn assert_acting(&self, seed: u64, expected: &[&str]) {
        assert_eq!(self.acting(), expected, "seed {seed}:\n{}", self.told());
    }

    fn assert_apart(&self, seed: u64) {
        assert_eq!(self.is_apart(), Ok(()), "seed {seed}:\n{}", self.told());
    }
}

#[test]
fn a_pod_that_takes_one_active_over_leaves_the_other_which_goes_on() {
    for seed in SEEDS {
        let mut fleet = Fleet::new(seed, Flaw::default());
        fleet.run_until(FAULT_AT);
        fleet.assert_acting(seed, &["a", "b"]);
        fleet.lose(0);
        fleet.run_until(FAULT_AT + SETTLES_IN);
        fleet.assert_acting(seed, &["b", "s"]);
        assert_eq!([0, 1].map(|pair| fleet.holder(pair)), [Some(SHARED), Some(1)]);

        // The other active crashes: its standby is busy, so it acts again itself.
        fleet.pods[1].computer.end_application(fleet.sim.elapsed());
        fleet.run_until(FAULT_AT + 2 * SETTLES_IN);
        fleet.assert_acting(seed, &["b", "s"]);

        // A spare takes the place of the busy standby, and stands by for the other active from then on.
        fleet.replace();
        fleet.run_until(FAULT_AT + 3 * SETTLES_IN);
        let members = server::lease_of(&fleet.hub, PAIRS[1]).lease.members;
        assert_eq!(members, [1, SPARE].map(|index| fleet.pods[index].id()), "seed {seed}:\n{}", fleet.told());
        fleet.lose(1);
        fleet.run_until(FAULT_AT + 4 * SETTLES_IN);
        fleet.assert_acting(seed, &["c", "s"]);
        fleet.assert_apart(seed);
    }
}

#[test]
fn if_both_actives_are_lost_at_once_one_is_taken_over_and_the_other_one_waits_for_its_return() {
    for seed in SEEDS {
        let mut fleet = Fleet::new(seed, Flaw::default());
        fleet.run_until(FAULT_AT);
        fleet.lose(0);
        fleet.lose(1);
        fleet.run_until(FAULT_AT + SETTLES_IN);
        fleet.assert_acting(seed, &["s"]);
        let taken: Vec<usize> = (0..2).filter(|pair| fleet.holder(*pair) == Some(SHARED)).collect();
        assert_eq!(taken.len(), 1, "seed {seed}:\n{}", fleet.told());

        let other = 1 - taken[0];
        fleet.return_of(other);
        fleet.run_until(FAULT_AT + 2 * SETTLES_IN);
        let mut expected = vec![NAMES[other], "s"];
        expected.sort_unstable();
        fleet.assert_acting(seed, &expected);
        fleet.assert_apart(seed);
    }
}

#[test]
fn a_pod_that_gave_one_role_back_takes_the_other_active_over() {
    for seed in SEEDS {
        let mut fleet = Fleet::new(seed, Flaw::default());
        fleet.run_until(FAULT_AT);
        fleet.lose(0);
        fleet.run_until(FAULT_AT + SETTLES_IN);
        fleet.return_of(0);
        fleet.run_until(FAULT_AT + 2 * SETTLES_IN);
        fleet.assert_acting(seed, &["b", "s"]);
        // Its application crashes, and the role goes back by a handover.
        fleet.pods[SHARED].computer.end_application(fleet.sim.elapsed());
        fleet.run_until(FAULT_AT + 3 * SETTLES_IN);
        fleet.assert_acting(seed, &["a", "b"]);
        fleet.lose(1);
        fleet.run_until(FAULT_AT + 4 * SETTLES_IN);
        fleet.assert_acting(seed, &["a", "s"]);
        fleet.assert_apart(seed);
    }
}

#[test]
fn a_pod_whose_lease_is_deleted_while_its_claim_is_under_way_takes_the_other_active_over() {
    for seed in SEEDS {
        let mut fleet = Fleet::new(seed, Flaw::default());
        fleet.run_until(FAULT_AT);
        fleet.lose(0);
        // The claim is sent to an API server that is away, and so not answered.
        fleet.sim.crash(API);
        fleet.run_until(FAULT_AT + CLAIMS_IN);
        server::delete_of(&fleet.hub, PAIRS[0]);
        fleet.sim.bounce(API);
        let deleted = fleet.sim.elapsed();
        fleet.run_until(deleted + SETTLES_IN);
        fleet.assert_acting(seed, &["b"]);
        fleet.lose(1);
        fleet.run_until(deleted + 2 * SETTLES_IN);
        fleet.assert_acting(seed, &["s"]);
        assert_eq!(fleet.holder(1), Some(SHARED));
        fleet.assert_apart(seed);
    }
}

#[test]
fn a_pod_with_two_seats_that_is_restarted_or_asked_to_end_serves_both_pairs_again() {
    for seed in SEEDS {
        let mut fleet = Fleet::new(seed, Flaw::default());
        fleet.run_until(FAULT_AT);
        fleet.lose(0);
        fleet.run_until(FAULT_AT + SETTLES_IN);
        fleet.assert_acting(seed, &["b", "s"]);
        // A new container begins without memory, and its application ended with the one before.
        fleet.lose(SHARED);
        fleet.return_of(SHARED);
        fleet.run_until(FAULT_AT + 2 * SETTLES_IN);
        fleet.assert_acting(seed, &["b", "s"]);
        assert_eq!([0, 1].map(|pair| fleet.holder(pair)), [Some(SHARED), Some(1)]);

        fleet.return_of(0);
        fleet.run_until(FAULT_AT + 3 * SETTLES_IN);
        fleet.assert_acting(seed, &["b", "s"]);
        // Asked to end, it hands the role over and its promise to the other active binds it no longer than before.
        fleet.pods[SHARED].ask_to_end();
        fleet.run_until(FAULT_AT + 4 * SETTLES_IN);
        fleet.assert_acting(seed, &["a", "b"]);
        assert!(fleet.told().contains("[Left, Left]"), "seed {seed}:\n{}", fleet.told());

        fleet.return_of(SHARED);
        fleet.run_until(FAULT_AT + 5 * SETTLES_IN);
        fleet.lose(1);
        fleet.run_until(FAULT_AT + 6 * SETTLES_IN);
        fleet.assert_acting(seed, &["a", "s"]);
        fleet.assert_apart(seed);
    }
}

/// The check can fail: without the turnstile both actives are taken over at once.
#[test]
fn seats_that_do_not_ask_act_beside_each_other() {
    let flaw = Flaw { lacks_turnstile: true, ..Flaw::default() };
    let mut fleet = Fleet::new(SEEDS.start, flaw);
    fleet.run_until(FAULT_AT);
    fleet.lose(0);
    fleet.lose(1);
    fleet.run_until(FAULT_AT + SETTLES_IN);
    assert!(fleet.is_apart().is_err(), "{}", fleet.told());
}
