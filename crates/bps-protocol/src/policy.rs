//! When an agent does what the rules permit: the one step function, and the duties of each role.
//!
//! Nothing here makes a step safe: every change of the agent is made by a rule, which may refuse.

mod copies;
mod ending;
mod showing;
mod stance;

use std::time::Duration;

use copies::{Copies, Estate};
use ending::Ending;
pub use showing::Showing;
use stance::Stance;

use super::{
    Agent, AgentId, BootTime, Effect, Epoch, Event, Hold, Message, Moment, Order, Ping, Purpose, Role, Seen,
    Timing, Write,
};

/// A peer counts as alive while its last ping came at most this many periods ago. 2: one may be lost.
const PINGS_MISSED_MAX: u32 = 2;

/// An agent, and what it means to do when.
#[derive(Clone, Debug)]
pub struct Protocol {
    agent: Agent,
    timing: Timing,
    stance: Stance,
    is_peer_fenced: bool,
    switches_over: bool,
    /// Whether it does not enter Peer mode, and leaves it.
    lives_on_writes: bool,
    /// The tenure for which the next keep-alive was asked for early, and whether it is still to come.
    early: (Epoch, bool),
    /// How an application ends that somebody wants to end.
    ending: Ending,
    copies: Copies,
    /// The highest epoch that another agent said to act with.
    rival: Epoch,
    /// The last tenure in which the application was killed because somebody else acts.
    killed: Epoch,
    /// When the present peer was heard last; never, if its last word was a farewell.
    heard: BootTime,
    /// When its last certificate came.
    certified: Option<BootTime>,
    /// The last tenure that it gave a promise to, and when that asked, by its own clock.
    granted: (Epoch, BootTime),
    next_ping: BootTime,
    /// Next request for a promise, or repetition of a handover.
    next_request: BootTime,
    /// Next renewal outside Peer mode.
    next_renewal: BootTime,
    /// Next copy of a write without an answer, or next read of a Lease never seen.
    next_copy: BootTime,
}

impl Protocol {
    /// Begins with an agent that has just started; `timing` must have passed its check.
    pub fn new(agent: Agent, timing: Timing) -> Self {
        let never = BootTime::default();
        Self {
            agent,
            timing,
            stance: Stance::Ready,
            is_peer_fenced: false,
            switches_over: false,
            lives_on_writes: false,
            early: (Epoch::default(), false),
            ending: Ending::default(),
            copies: Copies { is_withheld: false, estate: Estate::None },
            rival: Epoch::default(),
            killed: Epoch::default(),
            heard: never,
            certified: None,
            granted: (Epoch::default(), BootTime::default()),
            next_ping: never,
            next_request: never,
            next_renewal: never,
            next_copy: never,
        }
    }

    /// Hands over only after [`Order::Settle`] has said that the peer has the state of the application.
    #[must_use]
    pub fn keeping_state(self) -> Self {
        Self { copies: Copies { estate: Estate::Known { is_level: false }, ..self.copies }, ..self }
    }

    /// Gives an application that somebody wants to end so long, and not only what is left of the hold: it is renewed meanwhile.
    pub const fn be_patient(&mut self, patience: Duration) {
        self.ending.patience = patience;
    }

    /// Has the active live on writes of the Lease from now on, or on promises again: its machine may be too late for those.
    pub const fn live_on_writes(&mut self, is_wanted: bool) {
        self.lives_on_writes = is_wanted;
    }

    /// The agent as it is.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Has the present tenure write its next keep-alive as soon as possible, once: there is something to tell.
    pub fn renew_early(&mut self) {
        if self.agent.role == Role::Active && self.early.0 != self.agent.epoch {
            self.early = (self.agent.epoch, true);
        }
    }

    /// Has the present tenure write its next keep-alive as soon as possible, each time that this is called: there is news.
    pub fn renew_for_news(&mut self) {
        if self.agent.role == Role::Active {
            self.early = (self.agent.epoch, true);
        }
    }

    /// Whether it acts, and its peer lives and would accept a handover, as far as it has heard.
    pub fn has_successor(&self, now: BootTime) -> bool {
        self.is_peer_alive(&Moment { now, timing: &self.timing })
    }

    /// What follows from an event that happens now. Total: every event has an answer in every state.
    pub fn step(&mut self, now: BootTime, event: Event) -> Vec<Effect> {
        let timing = self.timing;
        let at = Moment { now, timing: &timing };
        let mut effects = Vec::new();
        let (before, peer) = (self.agent.role, self.peer());
        // Time has passed first: an answer that comes when the hold is over must not revive it.
        self.agent.r1_enforce(&at);
        self.take(&at, event, &mut effects);
        self.agent.r1_enforce(&at);
        if self.agent.role == Role::Active && !before.is_acting() {
            self.begin(&at);
        } else if self.peer() != peer {
            // Its last ping may have come before it was the peer. Who never pinged gets no handover in any case.
            self.heard = at.now;
        }
        let met = self.agent.role;
        self.do_duties(&at, &mut effects);
        self.agent.r1_enforce(&at);
        let after = self.agent.role;
        effects.extend(self.change(before, met));
        effects.extend(self.change(met, after));
        effects.extend(self.ending.moved(&self.agent));
        effects.extend(self.kill());
        effects.push(Effect::WakeAt(self.wake(&at)));
        effects
    }

    /// What a change of role means for the application.
    fn change(&mut self, before: Role, after: Role) -> Option<Effect> {
        let not_before = self.certified.map_or(BootTime::default(), |at| at + self.timing.certificate_wait);
        match (before.is_acting(), after) {
            (false, Role::Active) => Some(Effect::Activate { epoch: self.agent.epoch, not_before }),
            (true, Role::Stopping) if before == Role::Active => {
                Some(Effect::Stop { by: self.ending.begun(&self.agent) })
            }
            _ if after.is_standby() && !before.is_standby() => Some(Effect::StandBy),
            _ => None,
        }
    }

    /// Two act: an assumption of the protocol does not hold, such as that of the clocks or of the network between the Pods. What is
    /// known to be wrong gets no time to end in order.
    fn kill(&mut self) -> Option<Effect> {
        let is_due = self.agent.role.is_acting() && self.is_overtaken() && self.killed != self.agent.epoch;
        is_due.then(|| {
            self.killed = self.agent.epoch;
            Effect::Kill
        })
    }

    /// Whether somebody acts, or did, with a higher epoch, by the Lease or by its own word.
    fn is_overtaken(&self) -> bool {
        let written = self.agent.seen.map(|seen| seen.lease.epoch);
        self.agent.epoch < written.unwrap_or_default().max(self.rival)
    }

    fn take(&mut self, at: &Moment<'_>, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::LeaseRead { lease, version } => {
                let number = self.agent.last_write;
                self.agent.read(at, lease, version);
                if self.agent.last_write != number {
                    self.next_copy = at.now;
                }
            }
            Event::WriteApplied { number, version } => self.agent.answered(at, number, version),
            Event::WriteConflicted => effects.push(Effect::ReadLease),
            Event::Received { from, message } => effects.extend(self.receive(at, from, message)),
            Event::ApplicationEnded => {
                self.agent.r1_application_ended(at);
                self.switches_over = false;
                self.next_request = at.now;
                self.copies.end(at);
            }
            Event::Certificate { epoch } => {
                self.agent.r3_certificate(at, epoch);
                self.certified = Some(at.now);
            }
            Event::Timer => {}
            Event::Ordered(Order::SwitchOver) => self.switches_over = self.is_peer_alive(at),
            Event::Ordered(Order::GiveUp) => {
                self.agent.r1_stop();
                self.ending.give_up();
            }
            Event::Ordered(Order::Fence) => self.fence(at, Stance::Fenced),
            Event::Ordered(Order::Unfence) => self.fence(at, Stance::Ready),
            Event::Ordered(Order::Leave) => {
                self.ending.hasten(at, &self.agent);
                self.fence(at, Stance::Leaving);
            }
            Event::Ordered(Order::PeerFenced(is_fenced)) => self.is_peer_fenced = is_fenced,
            Event::Ordered(Order::Withhold) => self.copies.is_withheld = true,
            Event::Ordered(Order::Permit) => self.copies.is_withheld = false,
            Event::Ordered(Order::Settle { is_level }) => self.copies.settle(is_level),
        }
    }

    /// The peer would accept no handover from now on. May be told before the end of an application that it came after, which
    /// a ping must not, see [`Agent::r1_application_ended`].
    pub fn part(&mut self, from: AgentId, farewell: Ping) {
        let peer = self.agent.tenure.map(|tenure| tenure.peer).filter(|peer| peer.id == from);
        // It may be late, and the peer have come back since.
        if peer.is_some_and(|peer| peer.ping.is_none_or(|known| known.is_before(&farewell))) {
            self.heard = BootTime::default();
        }
    }

    fn receive(&mut self, at: &Moment<'_>, from: AgentId, message: Message) -> Option<Effect> {
        match message {
            Message::Ping(ping) => {
                self.agent.hear(from, ping);
                if self.agent.tenure.is_some_and(|tenure| tenure.peer.id == from) {
                    self.heard = at.now;
                }
                None
            }
            Message::PromiseRequest(request) => {
                let asked = (request.epoch, request.sent);
                self.rival = self.rival.max(request.epoch);
                // A copy must not bind this agent once more: whoever asked may have failed since.
                let promise = (self.granted < asked).then(|| self.agent.r2_grant(at, request)).flatten()?;
                // A new active can hand over to whom it has heard, and not before. Later a ping that is soon due goes with
                // the promise: neither side need wake up for it.
                let is_soon_due = self.next_ping <= at.now + at.timing.promise_period;
                let is_new = self.granted.0 != request.epoch;
                self.granted = asked;
                if is_new || is_soon_due {
                    self.next_ping = at.now;
                }
                Some(Effect::Send { to: from, message: Message::Promise(promise) })
            }
            Message::Promise(promise) => {
                self.agent.r2_promised(at, from, promise);
                None
            }
            Message::Farewell(ping) => {
                self.part(from, ping);
                None
            }
            Message::Handover(handover) => {
                // Also if it is fenced: then only it can release what was delegated.
                self.agent.r4_accept(at, from, handover);
                None
            }
        }
    }

    /// A new tenure asks for promises and sees to it that it is written down, both at once, unless its claim or the handover
    /// was under way when it was fenced: then no application is started, so that there is none any more.
    fn begin(&mut self, at: &Moment<'_>) {
        // What an earlier tenure left says nothing about this one.
        self.copies.begin();
        if self.is_fenced() {
            self.agent.r1_application_ended(at);
            return;
        }
        self.next_request = at.now;
        // A claim has written it, and is as good as a renewal.
        if self.agent.seen.is_none_or(|seen| seen.lease.epoch != self.agent.epoch) {
            self.next_renewal = at.now;
        }
        self.heard = at.now;
    }

    /// The other member of the tenure, if there is one.
    fn peer(&self) -> Option<AgentId> {
        self.agent.tenure.map(|tenure| tenure.peer.id)
    }

    /// Whether the peer has said farewell and is not fenced: its promises end with its agent, which may be soon. An API server
    /// that is slow at that moment costs less if the active lives on writes before.
    fn is_peer_leaving(&self) -> bool {
        !self.is_peer_fenced && self.heard == BootTime::default()
    }

    fn is_peer_alive(&self, at: &Moment<'_>) -> bool {
        self.agent.role == Role::Active && self.would_peer_accept(at)
    }

    fn would_peer_accept(&self, at: &Moment<'_>) -> bool {
        !self.is_peer_fenced && at.now.since(self.heard) <= at.timing.ping_period * PINGS_MISSED_MAX
    }
}

/// The duties of each role.
impl Protocol {
    fn do_duties(&mut self, at: &Moment<'_>, effects: &mut Vec<Effect>) {
        match self.agent.role {
            Role::Active => self.act(at, effects),
            Role::Stopping => self.stop(at, effects),
            Role::Ended => self.pass_on(at, effects),
            Role::Standby | Role::Lapsed | Role::HandedOver => self.stand_by(at, effects),
        }
    }

    fn act(&mut self, at: &Moment<'_>, effects: &mut Vec<Effect>) {
        let is_overtaken = self.is_overtaken();
        let is_wanted = self.is_fenced() || self.switches_over;
        if !is_overtaken && !is_wanted {
            self.live_on(at, effects);
            return;
        }
        if !is_overtaken {
            self.ending.plan(at, &self.agent);
        }
        self.agent.r1_stop();
    }

    /// The application is being ended. One that somebody wants to end has its hold renewed meanwhile.
    fn stop(&mut self, at: &Moment<'_>, effects: &mut Vec<Effect>) {
        if self.ending.needs_hold(at, &self.agent) && !self.is_overtaken() {
            self.live_on(at, effects);
        } else {
            self.repeat_write(at, effects);
        }
    }

    /// Keeps its hold, by promises and by writes; an active admits a new peer as well.
    fn live_on(&mut self, at: &Moment<'_>, effects: &mut Vec<Effect>) {
        if self.next_request <= at.now {
            self.next_request = at.now + at.timing.promise_period;
            if let Some(request) = self.agent.r2_request(at) {
                let message = Message::PromiseRequest(request);
                effects.extend(self.agent.r2_promisers().map(|to| Effect::Send { to, message }));
            }
        }
        self.repeat_write(at, effects);
        let write = self.agent.r6_admit(at).or_else(|| self.renew(at));
        effects.extend(write.map(|write| self.written(at, write)));
    }

    /// Lives in Peer mode while promises keep coming; outside it, and with an epoch that is not written yet, writes.
    fn renew(&mut self, at: &Moment<'_>) -> Option<Write> {
        let (seen, tenure) = (self.agent.seen?, self.agent.tenure?);
        let promised = tenure.peer.hold_end.since(at.now);
        let is_on_writes = self.lives_on_writes || self.is_peer_leaving();
        // It goes in half-way between a fresh promise and the margin, so that it does not go in and out.
        let is_well_promised = !is_on_writes && promised > (at.timing.hold + at.timing.peer_margin) / 2;
        let is_ill_promised = is_on_writes || promised <= at.timing.peer_margin;
        let is_written = seen.lease.epoch == self.agent.epoch && seen.lease.holder == Some(self.agent.id);
        let is_in_peer_mode = is_written && seen.lease.hold == Hold::Peer;
        let is_early = self.early == (self.agent.epoch, true);
        let is_grace_used = tenure.grace_end.since(at.now) + at.timing.keep_alive_period <= at.timing.grace;
        let period = at.timing.lone_renew_period();
        let lasts = is_written && !is_early && seen.lease.is_lone();
        let is_hold_used = !lasts || tenure.api_hold_end.since(at.now) + period <= at.timing.lone_hold;
        let hold = match (is_in_peer_mode, is_well_promised) {
            (true, _) if is_ill_promised => Hold::Api,
            (true, _) if is_grace_used || is_early => Hold::Peer,
            (true, _) => return None,
            (false, true) => Hold::Peer,
            (false, false) if is_hold_used && self.next_renewal <= at.now => Hold::Api,
            (false, false) => return None,
        };
        let write = self.agent.r2_renew(at, hold)?;
        // Outside Peer mode, and on the way into it, a write tells as well.
        self.early.1 = false;
        Some(write)
    }

    /// Hands over to a living peer that has the state, else releases, so that anybody may take over at once.
    fn pass_on(&mut self, at: &Moment<'_>, effects: &mut Vec<Effect>) {
        let is_peer_alive = self.would_peer_accept(at);
        match self.copies.estate {
            Estate::Unknown { until } if is_peer_alive && at.now < until => return,
            Estate::None | Estate::Known { is_level: true } if is_peer_alive => self.hand_over(at, effects),
            Estate::None | Estate::Unknown { .. } | Estate::Known { .. } => {}
        }
        if self.agent.role == Role::Ended {
            self.repeat_write(at, effects);
            let write = self.agent.r5_release(at);
            effects.extend(write.map(|write| self.written(at, write)));
        }
    }

    fn hand_over(&mut self, at: &Moment<'_>, effects: &mut Vec<Effect>) {
        if let Some((to, handover)) = self.agent.r4_hand_over(at) {
            self.next_request = at.now + at.timing.round_trip;
            effects.push(Effect::Send { to, message: Message::Handover(handover) });
        }
    }

    fn stand_by(&mut self, at: &Moment<'_>, effects: &mut Vec<Effect>) {
        if self.agent.role == Role::HandedOver && self.next_request <= at.now {
            self.hand_over(at, effects);
        }
        self.ping(at, effects);
        self.repeat_write(at, effects);
        let may_act = !self.is_fenced() && !self.copies.is_withheld && !self.lets_first_begin(at);
        if may_act || self.is_to_clear() {
            let write = self.agent.r3_claim(at);
            effects.extend(write.map(|write| self.written(at, write)));
        }
    }

    /// The first member of a new pair begins, so that not both claim at once; the second does if it sees nothing of that.
    fn lets_first_begin(&self, at: &Moment<'_>) -> bool {
        self.agent.seen.is_some_and(|Seen { lease, since, .. }| {
            let is_new = lease.writes == 0 && lease.holder.is_none();
            is_new && lease.members[1] == self.agent.id && at.now < since + at.timing.renew_period
        })
    }

    fn ping(&mut self, at: &Moment<'_>, effects: &mut Vec<Effect>) {
        let Some(seen) = self.agent.seen else {
            // A ping that is due stays due: who was promised something waits for it.
            if self.next_copy <= at.now {
                self.next_copy = at.now + at.timing.request_timeout;
                effects.push(Effect::ReadLease);
            }
            return;
        };
        if at.now < self.next_ping {
            return;
        }
        self.next_ping = at.now + at.timing.ping_period;
        let ping = Ping { incarnation: self.agent.incarnation, sent: at.now };
        // It would not accept a handover; so its peer must not try one, and releases the Lease instead.
        let message = if self.is_fenced() { Message::Farewell(ping) } else { Message::Ping(ping) };
        effects.extend(self.others(&seen).map(|to| Effect::Send { to, message }));
    }

    fn others(&self, seen: &Seen) -> impl Iterator<Item = AgentId> + use<> {
        let id = self.agent.id;
        seen.lease.members.into_iter().filter(move |member| *member != id && *member != AgentId::NOBODY)
    }

    fn repeat_write(&mut self, at: &Moment<'_>, effects: &mut Vec<Effect>) {
        let write = self.agent.r3_repeat().filter(|_| self.next_copy <= at.now);
        effects.extend(write.map(|write| self.written(at, write)));
    }

    fn written(&mut self, at: &Moment<'_>, write: Write) -> Effect {
        // Nothing acts until a claim is answered, or a release, which a claim follows.
        let is_urgent = self.agent.unresolved.is_some_and(|unresolved| {
            let is_first = unresolved.sent == at.now;
            is_first && matches!(unresolved.purpose, Purpose::Claim | Purpose::Release)
        });
        let pause = if is_urgent { at.timing.second_copy } else { at.timing.request_timeout };
        self.next_copy = at.now + pause;
        self.next_renewal = at.now + at.timing.renew_period;
        Effect::WriteLease(write)
    }

    /// The next time at which there is something to do; at most a ping's period away.
    fn wake(&self, at: &Moment<'_>) -> BootTime {
        let agent = &self.agent;
        let stop = agent.hold_end().before(at.timing.stop);
        let watch = agent.seen.map(|seen| seen.since + at.timing.api_watch);
        let margin = agent.tenure.map(|tenure| tenure.peer.hold_end.before(at.timing.peer_margin));
        let ends = [Some(stop), Some(agent.hold_end()), Some(agent.promise_end), watch, margin];
        let own =
            [self.next_ping, self.next_request, self.next_renewal, self.next_copy, self.copies.settle_by()];
        let latest = at.now + at.timing.ping_period;
        let times = ends.into_iter().flatten().chain(own).filter(|time| at.now < *time);
        times.fold(latest, BootTime::min)
    }
}
