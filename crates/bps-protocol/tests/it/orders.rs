//! What whole agents do about orders, and just after a change of roles.

use std::time::Duration;

use bps_protocol::{
    Agent, AgentId, BootTime, Effect, Epoch, Event, Hold, Incarnation, Lease, Message, Order, Ping, Promise,
    PromiseRequest, Protocol, Replacement, Role, Showing, Timing, Version, Write,
};

use crate::scripts::idle_pair;
use crate::simulation::{Fault, MILLISECOND, SECOND, Simulation, Time};

#[test]
fn an_active_goes_on_by_itself_while_its_peer_is_fenced() {
    let (mut simulation, active, standby) = idle_pair(6);
    simulation.plan(5 * SECOND, Fault::Order(standby, Order::Fence), 100 * SECOND);
    simulation.plan(6 * SECOND, Fault::ApplicationCrashes(active), SECOND);
    // A release and a claim.
    simulation.run_until(6 * SECOND + 60 * MILLISECOND);
    assert_eq!(simulation.acting(), [active]);
}

/// A pair whose applications take so long to stop, and are given that; node numbers of the active and its standby.
fn slow_pair(stops_in: Time, patience: Time) -> (Simulation, usize, usize) {
    let (mut simulation, active, standby) = idle_pair(6);
    (simulation.stops_in, simulation.patience) = (stops_in, Duration::from_nanos(patience));
    be_patient(&mut simulation, patience);
    (simulation, active, standby)
}

fn be_patient(simulation: &mut Simulation, patience: Time) {
    for node in &mut simulation.nodes {
        node.protocol.iter_mut().for_each(|protocol| protocol.be_patient(Duration::from_nanos(patience)));
    }
}

/// How long after 5 s the last application ended, and who acts: the standby soon after that (1), or another one.
fn outcome(mut simulation: Simulation, standby: usize) -> (Time, Vec<usize>) {
    simulation.run_until(40 * SECOND);
    let ended = simulation.ended.last().expect("it ended").0;
    let began = simulation.began.last().expect("somebody acts").0;
    assert!((ended..ended + SECOND).contains(&began), "it was followed at {began}, after {ended}");
    (ended - 5 * SECOND, simulation.acting().iter().map(|node| usize::from(*node == standby)).collect())
}

/// The active is told to end while this is broken.
fn stopped_slowly(
    stops_in: Time,
    patience: Time,
    broken: impl Fn(usize, usize) -> Vec<Fault>,
) -> (Time, Vec<usize>) {
    let (mut simulation, active, standby) = slow_pair(stops_in, patience);
    for fault in broken(active, standby) {
        simulation.plan(5 * SECOND, fault, 100 * SECOND);
    }
    simulation.plan(5 * SECOND, Fault::Order(active, Order::SwitchOver), MILLISECOND);
    outcome(simulation, standby)
}

#[test]
fn an_application_that_somebody_wants_to_end_has_longer_than_its_hold_lasts() {
    let none = |_: usize, _: usize| Vec::new();
    let whole = |ended: Time, seconds: Time| {
        (seconds * SECOND..seconds * SECOND + 200 * MILLISECOND).contains(&ended)
    };
    let (ended, acting) = stopped_slowly(6 * SECOND, 20 * SECOND, none);
    assert!(whole(ended, 6) && acting == [1], "{ended} {acting:?}");
    let (ended, acting) = stopped_slowly(30 * SECOND, 20 * SECOND, none);
    assert!(whole(ended, 20) && acting == [1], "not longer than it is given: {ended} {acting:?}");
    let (ended, acting) = stopped_slowly(30 * SECOND, 0, none);
    assert!(ended < 2 * SECOND && acting == [1], "no longer than its hold: {ended} {acting:?}");
}

#[test]
fn an_application_that_ends_slowly_lives_on_promises_or_on_writes_and_without_both_ends_with_its_hold() {
    let no_api = |active, _| vec![Fault::ApiUnreachable(active)];
    let (ended, acting) = stopped_slowly(6 * SECOND, 20 * SECOND, no_api);
    assert!(ended > 6 * SECOND && acting == [1], "{ended} {acting:?}");
    let no_peer = |active, standby| vec![Fault::Partition(active, standby)];
    let (ended, _) = stopped_slowly(6 * SECOND, 20 * SECOND, no_peer);
    assert!(ended > 6 * SECOND, "{ended}");
    let neither = |active, standby| vec![Fault::ApiUnreachable(active), Fault::Partition(active, standby)];
    let (ended, acting) = stopped_slowly(6 * SECOND, 20 * SECOND, neither);
    assert!(ended < 2 * SECOND && acting == [1], "{ended} {acting:?}");
}

/// Its Pod is deleted a second later, and has less time; or what is left of it does not end.
#[test]
fn an_application_that_ends_slowly_is_hastened_by_whoever_has_less_time() {
    for (order, patience, ends_within) in
        [(Order::Leave, 3, 4), (Order::Leave, 30, 20), (Order::GiveUp, 20, 3)]
    {
        let (mut simulation, active, standby) = slow_pair(30 * SECOND, 20 * SECOND);
        simulation.plan(5 * SECOND, Fault::Order(active, Order::SwitchOver), MILLISECOND);
        simulation.run_until(6 * SECOND);
        be_patient(&mut simulation, patience * SECOND);
        simulation.plan(6 * SECOND, Fault::Order(active, order), 100 * SECOND);
        let (ended, acting) = outcome(simulation, standby);
        let latest = ends_within * SECOND + 200 * MILLISECOND;
        assert!(ended <= latest && latest <= ended + 2 * SECOND, "{order:?} {patience}: {ended}");
        // Whoever ends with its hold has lapsed, and may be the one that goes on.
        assert!(acting == [1] || order == Order::GiveUp && acting == [0], "{order:?} {acting:?}");
    }
}

#[test]
fn an_active_that_gives_up_is_followed() {
    let (mut simulation, active, standby) = idle_pair(6);
    simulation.plan(5 * SECOND, Fault::Order(active, Order::GiveUp), MILLISECOND);
    simulation.run_until(6 * SECOND);
    assert_eq!(simulation.acting(), [standby]);
}

#[test]
fn nobody_hands_over_to_a_peer_that_was_fenced_just_before() {
    let (mut simulation, active, standby) = idle_pair(6);
    simulation.plan(5 * SECOND, Fault::Order(standby, Order::Fence), 100 * SECOND);
    // Its last ping is not missing yet.
    simulation.plan(5 * SECOND + 20 * MILLISECOND, Fault::ApplicationCrashes(active), SECOND);
    simulation.run_until(5 * SECOND + 80 * MILLISECOND);
    assert_eq!(simulation.acting(), [active]);
}

#[test]
fn a_release_that_meets_a_change_by_others_is_repeated_on_it() {
    let (mut simulation, active, standby) = idle_pair(9);
    // The standby has promised, and is not heard any more: so the Lease is released.
    simulation.plan(5 * SECOND, Fault::Partition(active, standby), 100 * SECOND);
    let ended = 5 * SECOND + 500 * MILLISECOND;
    simulation.plan(ended - 1, Fault::Order(active, Order::Fence), 100 * SECOND);
    simulation.plan(ended, Fault::ApplicationCrashes(active), SECOND);
    // A request takes 2 ms at least.
    simulation.plan(ended + MILLISECOND, Fault::Annotate, SECOND);
    simulation.run_until(ended + 100 * MILLISECOND);
    assert_eq!(simulation.acting(), [standby]);
}

#[test]
fn a_fenced_standby_promises_all_the_same() {
    let (mut simulation, active, standby) = idle_pair(7);
    simulation.plan(5 * SECOND, Fault::Order(standby, Order::Fence), 100 * SECOND);
    (0..2).for_each(|node| simulation.plan(6 * SECOND, Fault::ApiUnreachable(node), 30 * SECOND));
    simulation.run_until(30 * SECOND);
    assert_eq!(simulation.acting(), [active]);
}

#[test]
fn a_new_active_can_hand_back_after_a_round_trip() {
    let (mut simulation, active, standby) = idle_pair(8);
    simulation.plan(5 * SECOND, Fault::ApplicationCrashes(active), SECOND);
    // The handover, the first request for a promise, and the ping with the promise: 1.2 ms each at most.
    simulation.plan(5 * SECOND + 4 * MILLISECOND, Fault::ApplicationCrashes(standby), SECOND);
    simulation.run_until(5 * SECOND + 6 * MILLISECOND);
    assert_eq!(simulation.acting(), [active]);
}

#[test]
fn changes_of_the_lease_by_others_in_a_row_cost_no_tenure() {
    let (mut simulation, active, _) = idle_pair(9);
    let began = simulation.began.clone();
    for time in 0..10_000 {
        simulation.plan(5 * SECOND + time * 7 * MILLISECOND, Fault::Annotate, SECOND);
    }
    simulation.run_until(80 * SECOND);
    assert_eq!((simulation.acting(), &simulation.began), (vec![active], &began));
}

/// Nobody asks with a higher epoch while somebody acts, unless an assumption of the protocol does not hold.
#[test]
fn an_active_that_hears_of_a_higher_epoch_ends_its_application_at_once() {
    let [id, peer] = [1, 2].map(AgentId);
    let lease = Lease {
        epoch: Epoch::default(),
        holder: None,
        members: [id, peer],
        pending: None,
        hold: Hold::Api,
        writes: 0,
    };
    let active = || {
        let mut protocol = Protocol::new(Agent::new(id, Incarnation(1)), Timing::default());
        protocol.step(BootTime(1), Event::LeaseRead { lease, version: Version(1) });
        protocol.step(BootTime(2), Event::WriteApplied { number: 1, version: Version(2) });
        assert_eq!(protocol.agent().role, Role::Active);
        protocol
    };
    let kills = |effects: &[Effect]| effects.iter().filter(|effect| matches!(effect, Effect::Kill)).count();
    let asks = |term| {
        let request = PromiseRequest { epoch: Epoch { term, sequence: 0 }, sent: BootTime(3) };
        Event::Received { from: peer, message: Message::PromiseRequest(request) }
    };
    let mut asked = active();
    assert_eq!(kills(&asked.step(BootTime(3), asks(1))), 0, "its own term");
    assert_eq!(kills(&asked.step(BootTime(4), asks(2))), 1);
    assert_eq!(asked.agent().role, Role::Stopping);
    assert_eq!(kills(&asked.step(BootTime(5), asks(2))), 0, "it is told once");
    let mut written = active();
    let taken = Lease { epoch: Epoch { term: 2, sequence: 0 }, holder: Some(peer), writes: 2, ..lease };
    let read = Event::LeaseRead { lease: taken, version: Version(3) };
    assert_eq!(kills(&written.step(BootTime(3), read)), 1);
}

#[test]
fn a_claim_that_is_answered_after_a_fence_starts_nothing_and_is_released() {
    let id = AgentId(1);
    let mut protocol = Protocol::new(Agent::new(id, Incarnation(1)), Timing::default());
    let lease = Lease {
        epoch: Epoch::default(),
        holder: None,
        members: [id, AgentId(2)],
        pending: None,
        hold: Hold::Api,
        writes: 0,
    };
    let version = Version(1);
    let claimed = protocol.step(BootTime(1), Event::LeaseRead { lease, version });
    assert!(claimed.iter().any(|effect| matches!(effect, Effect::WriteLease(_))), "{claimed:?}");
    protocol.step(BootTime(2), Event::Ordered(Order::Fence));

    let later = BootTime(2) + Duration::from_millis(5);
    let effects = protocol.step(later, Event::WriteApplied { number: 1, version: Version(2) });
    let released = effects.iter().find_map(|effect| {
        let Effect::WriteLease(write) = effect else { return None };
        Some((write.base, write.lease.holder))
    });
    assert_eq!(released, Some((Version(2), None)));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Activate { .. })), "{effects:?}");
    assert_eq!(protocol.agent().role, Role::Standby);
}

/// A protocol, and the Lease that nobody holds.
pub(crate) fn standby() -> (Protocol, Event) {
    let protocol = Protocol::new(Agent::new(AgentId(1), Incarnation(1)), Timing::default());
    let lease = Lease {
        epoch: Epoch::default(),
        holder: None,
        members: [AgentId(1), AgentId(2)],
        pending: None,
        hold: Hold::Api,
        writes: 0,
    };
    (protocol, Event::LeaseRead { lease, version: Version(1) })
}

/// Who is to hold the Lease by each write among the effects.
pub(crate) fn written(effects: &[Effect]) -> Vec<Option<AgentId>> {
    let holder = |effect: &Effect| {
        let Effect::WriteLease(write) = effect else { return None };
        Some(write.lease.holder)
    };
    effects.iter().filter_map(holder).collect()
}

#[test]
fn a_standby_that_lacks_state_claims_nothing_until_it_is_level() {
    let (mut protocol, read) = standby();
    protocol.step(BootTime(1), Event::Ordered(Order::Withhold));
    assert_eq!(written(&protocol.step(BootTime(2), read)), []);
    let later = BootTime(2) + 10 * Timing::default().watch;
    assert_eq!(written(&protocol.step(later, Event::Timer)), []);
    let permitted = protocol.step(later, Event::Ordered(Order::Permit));
    assert_eq!(written(&permitted), [Some(AgentId(1))]);
}

/// What an active that keeps state does when its application has ended, and then a while later.
fn ended(word: Option<bool>) -> [Vec<Effect>; 2] {
    let (protocol, read) = standby();
    let mut protocol = protocol.keeping_state();
    protocol.step(BootTime(1), read);
    protocol.step(BootTime(2), Event::WriteApplied { number: 1, version: Version(2) });
    assert_eq!(protocol.agent().role, Role::Active);
    let ping = |at| {
        let message = Message::Ping(Ping { incarnation: Incarnation(2), sent: at });
        Event::Received { from: AgentId(2), message }
    };
    protocol.step(BootTime(3), ping(BootTime(3)));
    protocol.step(BootTime(4), Event::WriteApplied { number: 2, version: Version(3) });
    let first = protocol.step(BootTime(5), Event::ApplicationEnded);
    assert_eq!(protocol.agent().role, Role::Ended);
    let second = match word {
        Some(is_level) => protocol.step(BootTime(6), Event::Ordered(Order::Settle { is_level })),
        None => {
            let later = BootTime(5) + Duration::from_secs(1);
            protocol.step(later.before(Duration::from_millis(1)), ping(later));
            protocol.step(later, Event::Timer)
        }
    };
    [first, second]
}

#[test]
fn an_application_with_state_is_handed_over_once_the_peer_has_all_of_it() {
    let is_handover = |effect: &Effect| matches!(effect, Effect::Send { message: Message::Handover(_), .. });
    for (word, is_handed_over) in [(Some(true), true), (Some(false), false), (None, false)] {
        let [first, second] = ended(word);
        assert!(!first.iter().any(is_handover) && written(&first).is_empty(), "{first:?}");
        assert_eq!(second.iter().any(is_handover), is_handed_over, "{word:?} {second:?}");
        let released = if is_handed_over { vec![] } else { vec![None] };
        assert_eq!(written(&second), released, "{word:?} {second:?}");
    }
}

/// Who acts then need not wait for it when it leaves itself.
#[test]
fn who_leaves_says_farewell_as_soon_as_it_does_not_act_any_more_and_goes_on_saying_so() {
    let (mut protocol, read) = standby();
    let claim = write_of(&protocol.step(BootTime(1), read)).expect("it claims");
    protocol.step(BootTime(2), applied(claim));
    let said = |at: BootTime| {
        let message = Message::Farewell(Ping { incarnation: Incarnation(1), sent: at });
        Effect::Send { to: AgentId(2), message }
    };
    let fenced = protocol.step(BootTime(3), Event::Ordered(Order::Fence));
    assert!(!fenced.contains(&said(BootTime(3))), "it acts: {fenced:?}");
    let mut effects = protocol.step(BootTime(4), Event::ApplicationEnded);
    while let Some(write) = write_of(&effects) {
        effects = protocol.step(BootTime(5), applied(write));
    }
    assert_eq!(protocol.agent().role, Role::Standby);
    assert!(effects.contains(&said(BootTime(5))), "{effects:?}");
    let later = BootTime(5) + Timing::default().ping_period;
    assert!(protocol.step(later, Event::Timer).contains(&said(later)));
}

/// The first write among the effects.
fn write_of(effects: &[Effect]) -> Option<Write> {
    let write = |effect: &Effect| {
        let Effect::WriteLease(write) = effect else { return None };
        Some(*write)
    };
    effects.iter().find_map(write)
}

fn applied(write: Write) -> Event {
    Event::WriteApplied { number: write.number, version: Version(write.base.0 + 1) }
}

#[test]
fn an_active_hands_over_to_a_peer_whose_ping_came_before_it_was_admitted() {
    let (mut protocol, read) = standby();
    let [vacant, joining] = [AgentId(2), AgentId(3)];
    let mut effects = protocol.step(BootTime(1), read);
    while let Some(write) = write_of(&effects) {
        effects = protocol.step(BootTime(1), applied(write));
    }
    // Longer than a peer is thought to live without a ping.
    let now = BootTime(1) + Duration::from_secs(1);
    let seen = protocol.agent().seen.expect("it has read the Lease");
    let lease = Lease { pending: Some(Replacement { leaving: vacant, joining }), ..seen.lease };
    let read = Event::LeaseRead { lease, version: Version(seen.version.0 + 1) };
    let admission = write_of(&protocol.step(now, read)).expect("it admits");
    let request = PromiseRequest { epoch: protocol.agent().epoch, sent: now };
    let ping = Ping { incarnation: Incarnation(7), sent: BootTime(5) };
    for message in [Message::Promise(Promise { request }), Message::Ping(ping)] {
        protocol.step(now, Event::Received { from: joining, message });
    }
    protocol.step(now, applied(admission));
    let ended = protocol.step(now, Event::ApplicationEnded);
    let is_handover = |effect: &Effect| matches!(effect, Effect::Send { to, message: Message::Handover(_) } if *to == joining);
    assert!(ended.iter().any(is_handover), "{ended:?}");
}

/// Until its ping has arrived, an active whose application ends would release the Lease and go on by itself.
#[test]
fn who_promised_before_it_read_the_lease_pings_as_soon_as_it_has() {
    let (mut protocol, _) = standby();
    let active = AgentId(2);
    let started = BootTime(1);
    let effects = protocol.step(started, Event::Timer);
    assert!(effects.contains(&Effect::ReadLease), "{effects:?}");
    let request = PromiseRequest { epoch: Epoch { term: 1, sequence: 0 }, sent: BootTime(9) };
    let asked = Event::Received { from: active, message: Message::PromiseRequest(request) };
    let promise = Effect::Send { to: active, message: Message::Promise(Promise { request }) };
    let effects = protocol.step(started + Duration::from_millis(2), asked);
    assert!(effects.contains(&promise), "{effects:?}");
    assert!(!effects.contains(&Effect::ReadLease), "it is on its way: {effects:?}");

    let read = started + Duration::from_millis(4);
    let (_, Event::LeaseRead { lease, version }) = standby() else { panic!("it is a read") };
    let lease = Lease { epoch: request.epoch, holder: Some(active), ..lease };
    let effects = protocol.step(read, Event::LeaseRead { lease, version });
    let ping = Message::Ping(Ping { incarnation: Incarnation(1), sent: read });
    assert!(effects.contains(&Effect::Send { to: active, message: ping }), "{effects:?}");
}

#[test]
fn who_inherits_claims_and_is_shown_at_once_and_begins_when_all_of_a_container_has_ended() {
    let (mut protocol, read) = standby();
    let Event::LeaseRead { lease, version } = read else { panic!("it is a read") };
    let epoch = Epoch { term: 3, sequence: 0 };
    let lease = Lease { epoch, holder: Some(AgentId(2)), ..lease };
    protocol.step(BootTime(1), Event::LeaseRead { lease, version });
    let now = BootTime(1) + Duration::from_millis(5);
    assert_eq!(protocol.showing(), None);
    let claim = write_of(&protocol.step(now, Event::Certificate { epoch })).expect("it claims");
    let last = epoch;
    let epoch = Epoch { term: 4, sequence: 0 };
    assert_eq!(claim.lease.epoch, epoch);
    assert_eq!(protocol.showing(), Some(Showing { epoch, follows: Some(last) }));

    let effects = protocol.step(now + Duration::from_millis(2), applied(claim));
    let not_before = now + Timing::default().certificate_wait;
    assert!(effects.contains(&Effect::Activate { epoch, not_before }), "{effects:?}");
    assert_eq!(protocol.showing(), Some(Showing { epoch, follows: None }));
}

#[test]
fn clients_are_not_led_to_who_must_not_act() {
    for order in [Order::Fence, Order::Withhold] {
        let (mut protocol, read) = standby();
        let Event::LeaseRead { lease, version } = read else { panic!("it is a read") };
        let lease = Lease { holder: Some(AgentId(2)), ..lease };
        protocol.step(BootTime(1), Event::LeaseRead { lease, version });
        protocol.step(BootTime(2), Event::Ordered(order));
        let effects = protocol.step(BootTime(3), Event::Certificate { epoch: lease.epoch });
        assert_eq!((written(&effects), protocol.showing()), (vec![], None), "{order:?}");
    }
}

#[test]
fn the_first_member_of_a_new_pair_begins_and_the_second_only_if_it_does_not() {
    let members = [AgentId(1), AgentId(2)];
    let epoch = Epoch::default();
    let lease = Lease { epoch, holder: None, members, pending: None, hold: Hold::Api, writes: 0 };
    let claims_of = |id: AgentId, lease: Lease, after: Duration| {
        let mut protocol = Protocol::new(Agent::new(id, Incarnation(1)), Timing::default());
        let seen = protocol.step(BootTime(1), Event::LeaseRead { lease, version: Version(1) });
        let later = protocol.step(BootTime(1) + after, Event::Timer);
        [seen, later].map(|effects| effects.iter().any(|effect| matches!(effect, Effect::WriteLease(_))))
    };
    let (short, long) = (Timing::default().second_copy / 2, Timing::default().renew_period);
    assert_eq!(claims_of(members[0], lease, short), [true, false]);
    assert_eq!(claims_of(members[1], lease, short), [false, false]);
    assert_eq!(claims_of(members[1], lease, long), [false, true]);
    // Somebody has acted in it before: whoever can shall act.
    assert_eq!(claims_of(members[1], Lease { writes: 1, ..lease }, short), [true, false]);
}

#[test]
fn nobody_takes_over_on_a_lease_that_forgot_a_term() {
    let id = AgentId(1);
    let claims = |holder: Option<AgentId>, hold: Hold, term: u32| {
        let known = Epoch { term: 3, sequence: 1 };
        let agent = Agent { epoch: known, ..Agent::new(id, Incarnation(1)) };
        let mut protocol = Protocol::new(agent, Timing::default());
        let epoch = Epoch { term, sequence: 0 };
        let lease = Lease { epoch, holder, members: [id, AgentId(2)], pending: None, hold, writes: 1 };
        let read = Event::LeaseRead { lease, version: Version(1) };
        let mut effects = protocol.step(BootTime(1), read);
        // Longer than anybody may act by it.
        effects.extend(protocol.step(BootTime(1) + Duration::from_secs(61), Event::Timer));
        effects.iter().any(|effect| matches!(effect, Effect::WriteLease(_)))
    };
    let peer = Some(AgentId(2));
    let grounds = [(None, Hold::Api), (peer, Hold::Peer), (peer, Hold::Api), (Some(id), Hold::Api)];
    for (holder, hold) in grounds {
        assert!(!claims(holder, hold, 2), "{holder:?} {hold:?}");
        assert!(claims(holder, hold, 3), "{holder:?} {hold:?}");
    }
}

#[test]
fn copies_of_a_request_bind_a_standby_once() {
    let (id, peer) = (AgentId(1), AgentId(2));
    let mut protocol = Protocol::new(Agent::new(id, Incarnation(1)), Timing::default());
    let epoch = Epoch { term: 1, sequence: 0 };
    let request = |sent: u64| {
        let message = Message::PromiseRequest(PromiseRequest { epoch, sent: BootTime(sent) });
        Event::Received { from: peer, message }
    };
    let mut is_promised = |now: BootTime, sent: u64| {
        let effects = protocol.step(now, request(sent));
        let is_promise =
            |effect: &Effect| matches!(effect, Effect::Send { message: Message::Promise(_), .. });
        (effects.iter().any(is_promise), protocol.agent().promise_end)
    };
    let (first, watch) = (BootTime(0) + Duration::from_secs(1), Timing::default().watch);
    assert_eq!(is_promised(first, 70), (true, first + watch));
    let later = first + watch / 2;
    assert_eq!(is_promised(later, 70), (false, first + watch), "a copy");
    assert_eq!(is_promised(later, 69), (false, first + watch), "a copy of an earlier one");
    assert_eq!(is_promised(later, 71), (true, later + watch));
}
