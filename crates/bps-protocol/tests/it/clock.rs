//! Time in the model: now never changes; a tick of a clock moves everything its owners remember away from now.

use bps_protocol::{Agent, AgentId, BootTime, Message, Peer, Role, Seen, Tenure, Unresolved};

use crate::arena::Arena;
use crate::mutations::Mutation;
use crate::world::{AGENTS, NOW, OPERATOR, Packet, World, index, now};

impl World {
    /// One clock goes on by a tick, unless it would get two ahead of another.
    pub(crate) fn tick(&self, arena: &Arena, clock: usize) -> Option<Self> {
        if self.ticked[clock] || !self.has_owner(arena, clock) {
            return None;
        }
        let mut world = self.clone();
        world.ticked[clock] = true;
        world.begin_round(arena);
        for id in AGENTS.into_iter().filter(|id| arena.clocks[index(*id)] == clock) {
            world.tick_agent(arena, id);
        }
        if arena.clocks[OPERATOR] == clock && world.lease.pending.is_some() {
            pass(&mut world.unwritten_since, oldest(arena.timing.operator_wait.max(arena.timing.lone_wait)));
        }
        Some(world)
    }

    fn has_owner(&self, arena: &Arena, clock: usize) -> bool {
        let exists =
            |owner: usize| if owner == OPERATOR { arena.has_operator } else { self.agents[owner].is_some() };
        (0..4).any(|owner| arena.clocks[owner] == clock && exists(owner))
    }

    pub(crate) fn begin_round(&mut self, arena: &Arena) {
        let running = [0, 1, 2, 3].map(|clock| self.has_owner(arena, clock));
        for (ticked, runs) in self.ticked.iter_mut().zip(running) {
            *ticked &= runs;
        }
        if self.ticked == running {
            self.ticked = [false; 4];
        }
    }

    fn tick_agent(&mut self, arena: &Arena, id: AgentId) {
        let is_member = self.lease.members.contains(&id);
        let Some(agent) = &mut self.agents[index(id)] else { return };
        age(agent, arena, is_member);
        self.age_packets(arena, id);
        self.enforce(arena, id);
    }

    /// R1, as the supervisor sees to it: what has not ended by itself when the hold ends is killed.
    fn enforce(&mut self, arena: &Arena, id: AgentId) {
        let timing = arena.timing;
        let Some(agent) = &mut self.agents[index(id)] else { return };
        let is_late = arena.has(Mutation::StopsAtExpiry);
        let timing =
            if is_late { bps_protocol::Timing { stop: std::time::Duration::ZERO, ..timing } } else { timing };
        let was_stopping = agent.role == Role::Stopping;
        agent.r1_enforce(&now(&timing));
        let is_over = agent.hold_end() <= NOW && (!is_late || was_stopping);
        if agent.role.is_acting() && is_over {
            self.end_application(arena, id);
            self.notice_end(arena, id);
        }
    }

    /// A packet gets older for the one whose clock it carries; one that is too old to mean anything is gone.
    fn age_packets(&mut self, arena: &Arena, id: AgentId) {
        let hold = arena.timing.hold;
        let keeps = arena.has(Mutation::PeerHoldFromAnswer) || arena.has(Mutation::HoldFromReceipt);
        let is_alive = |sent: &mut BootTime| {
            pass(sent, oldest(hold));
            NOW < *sent + hold || keeps
        };
        self.net.retain_mut(|packet| match packet {
            Packet::Message { from, message: Message::PromiseRequest(request), .. } if *from == id => {
                is_alive(&mut request.sent)
            }
            Packet::Message { to, message: Message::Promise(promise), .. } if *to == id => {
                is_alive(&mut promise.request.sent)
            }
            Packet::Message { to, message: Message::Handover(handover), .. } if *to == id => {
                is_alive(&mut handover.echo.sent)
            }
            Packet::Answer { to, unresolved, .. } if *to == id => {
                pass(&mut unresolved.sent, oldest_write(arena));
                true
            }
            Packet::Message { .. }
            | Packet::Certificate { .. }
            | Packet::Write { .. }
            | Packet::Answer { .. } => true,
        });
    }
}

fn oldest(span: std::time::Duration) -> BootTime {
    BootTime(NOW.0 - u64::try_from(span.as_nanos()).expect("spans of the model are short"))
}

/// A write that is older gives neither hold nor grace.
fn oldest_write(arena: &Arena) -> BootTime {
    let hold = arena.timing.api_hold.max(arena.timing.lone_hold);
    oldest(if arena.has_grace() { arena.timing.grace.max(hold) } else { hold })
}

/// One tick passes since this moment; how long ago something very old was does not matter.
fn pass(moment: &mut BootTime, oldest: BootTime) {
    *moment = BootTime(moment.0 - 1).max(oldest);
}

/// One tick passes until this end; an end that is over is over for good.
fn approach(end: &mut BootTime) {
    *end = BootTime(end.0.saturating_sub(1));
    if *end <= NOW {
        *end = BootTime(0);
    }
}

/// Every field is named, so that a new one cannot be forgotten.
fn age(agent: &mut Agent, arena: &Arena, is_member: bool) {
    let Agent {
        id: _,
        incarnation: _,
        role: _,
        epoch: _,
        tenure,
        promise_end,
        is_certified: _,
        seen,
        unresolved,
        last_write: _,
    } = agent;
    approach(promise_end);
    if let Some(Tenure { api_hold_end, grace_end, peer, joining }) = tenure {
        approach(api_hold_end);
        if arena.has_grace() {
            approach(grace_end);
        }
        for Peer { id: _, hold_end, ping: _, witness: _ } in
            [Some(peer), joining.as_mut()].into_iter().flatten()
        {
            approach(hold_end);
        }
    }
    if let Some(Seen { lease: _, version: _, since }) = seen
        && is_member
    {
        pass(since, oldest(arena.timing.api_watch));
    }
    if let Some(Unresolved { write: _, purpose: _, sent }) = unresolved {
        pass(sent, oldest_write(arena));
    }
}
