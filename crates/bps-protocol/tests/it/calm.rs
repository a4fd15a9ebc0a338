//! C: from every reachable world, when nothing fails any more, the pair settles on exactly one active and keeps it.

use bps_protocol::{AgentId, Hold, Role};

use crate::arena::Arena;
use crate::steps::Step;
use crate::world::{AGENTS, World, index};

impl World {
    /// One fair schedule: in every round all packets arrive, every agent does what the rules permit, every clock ticks.
    pub(crate) fn converges(&self, arena: &Arena, forward: bool) -> bool {
        let calm = Arena {
            most_terms: 100,
            most_delegations: 100,
            packets: 32,
            faults: 0,
            has_api: true,
            ..arena.clone()
        };
        let lives = |id: AgentId| self.at(id).is_some();
        let is_joined = self.lease.pending.is_some_and(|replacement| lives(replacement.joining));
        if !self.lease.members.into_iter().any(lives) && !is_joined {
            return true; // Nobody is left to take over.
        }
        let ticks = |span: std::time::Duration| span.as_nanos();
        let watch = ticks(arena.timing.watch.max(arena.timing.api_watch));
        let settles = watch.max(ticks(arena.timing.operator_wait)) + 2 * watch + 2;
        let mut world = Self { faults_left: 0, ..self.clone() };
        for round in 0..settles + watch {
            world = world.calm_round(&calm, forward);
            if round >= settles && world.acting() != 1 {
                return false;
            }
        }
        true
    }

    fn calm_round(self, arena: &Arena, forward: bool) -> Self {
        let mut order = AGENTS;
        if !forward {
            order.reverse();
        }
        let mut world = self.delivered(arena);
        for id in order {
            for step in [Step::Notice(id), Step::Read(id), Step::Repeat(id)] {
                world.go(arena, &step);
            }
            for step in world.duties(arena, id, order) {
                world.go(arena, &step);
            }
            world = world.delivered(arena);
        }
        world.go(arena, &Step::OperatorForces);
        for clock in 0..4 {
            world.go(arena, &Step::Tick(clock));
        }
        world
    }

    /// What an agent does of its own accord when nothing fails, in this order.
    pub(crate) fn duties(&self, arena: &Arena, id: AgentId, order: [AgentId; 3]) -> Vec<Step> {
        let Some(agent) = &self.agents[index(id)] else { return Vec::new() };
        match agent.role {
            Role::Active => {
                let is_promised = agent
                    .tenure
                    .is_some_and(|tenure| crate::world::NOW + arena.timing.stop < tenure.peer.hold_end);
                let hold = if is_promised && arena.has_peer_mode { Hold::Peer } else { Hold::Api };
                let asks = order.into_iter().filter(|to| *to != id).map(|to| Step::Ask(id, to));
                asks.chain([Step::Admit(id), Step::Renew(id, hold)]).collect()
            }
            Role::Stopping => vec![Step::End(id), Step::Notice(id)],
            Role::Ended => vec![Step::HandOver(id)],
            Role::Standby | Role::Lapsed | Role::HandedOver => vec![Step::Claim(id)],
        }
    }

    fn go(&mut self, arena: &Arena, step: &Step) {
        if let Some(next) = self.step(arena, step) {
            *self = next;
        }
    }

    fn delivered(mut self, arena: &Arena) -> Self {
        while let Some(packet) = self.net.first().cloned() {
            self = self.step(arena, &Step::Deliver(packet.clone())).unwrap_or_else(|| self.without(&packet));
        }
        self
    }
}
