//! What goes wrong: applications crash, agents restart and lose their memory, nodes die.

use bps_protocol::{Agent, AgentId, Incarnation, Message, Role};

use crate::arena::Arena;
use crate::mutations::{self, Mutation};
use crate::world::{AGENTS, CURRENT, Packet, World, index, now};

impl World {
    /// One of the faults that may still happen does.
    pub(crate) fn fault(&self, is_possible: bool) -> Option<Self> {
        (is_possible && self.faults_left > 0)
            .then(|| Self { faults_left: self.faults_left - 1, ..self.clone() })
    }

    /// The application has ended: the kernel closes its connections, even if the agent is gone as well.
    pub(crate) fn end_application(&mut self, arena: &Arena, id: AgentId) {
        let Some(agent) = self.at(id).copied().filter(|_| self.is_acting(id)) else { return };
        self.unnoticed[index(id)] = true;
        for to in AGENTS.into_iter().filter(|_| arena.has_certificates) {
            if self.role(to).is_some_and(Role::is_standby) {
                self.send(arena, Packet::Certificate { to, epoch: agent.epoch });
            }
        }
    }

    pub(crate) fn crash(&self, arena: &Arena, id: AgentId) -> Option<Self> {
        let mut world = self.fault(arena.may_crash && self.is_acting(id))?;
        world.end_application(arena, id);
        if arena.has(Mutation::StartsAgainInTenure) {
            world.unnoticed[index(id)] = false;
        } else if !arena.may_notice_late {
            world.notice_end(arena, id);
        }
        Some(world)
    }

    /// All memory is lost and the application is dead.
    pub(crate) fn restart(&self, arena: &Arena, id: AgentId) -> Option<Self> {
        let mut world = self.fault(arena.may_restart && self.at(id).is_some())?;
        world.end_application(arena, id);
        // Whoever has this agent as its peer hears of the end of its own application before it hears the new incarnation.
        for other in AGENTS {
            let has_it = |agent: &Agent| agent.tenure.is_some_and(|tenure| tenure.peer.id == id);
            if world.unnoticed[index(other)] && other != id && world.at(other).is_some_and(has_it) {
                world.notice_end(arena, other);
            }
        }
        world.unnoticed[index(id)] = false;
        let before = *world.at(id)?;
        let mut restarted = Agent::r7_restarted(&now(&arena.timing), id, Incarnation(CURRENT));
        mutations::restarted(arena, &mut restarted, &before);
        world.agents[index(id)] = Some(restarted);
        world.forget_incarnation(arena, id);
        Some(world)
    }

    pub(crate) fn die(&self, arena: &Arena, id: AgentId) -> Option<Self> {
        let mut world = self.fault(arena.may_die && self.at(id).is_some())?;
        world.end_application(arena, id);
        world.unnoticed[index(id)] = false;
        world.agents[index(id)] = None;
        world.net.retain(|packet| !matches!(packet, Packet::Certificate { to, .. } if *to == id));
        world.begin_round(arena);
        Some(world)
    }

    /// What names the incarnation that this agent was until now names an earlier one; its connections are gone.
    fn forget_incarnation(&mut self, arena: &Arena, id: AgentId) {
        let earlier = Incarnation(0);
        let tenures = self.agents.iter_mut().flatten().filter_map(|agent| agent.tenure.as_mut());
        for tenure in tenures.filter(|tenure| tenure.peer.id == id && tenure.peer.witness.is_some()) {
            tenure.peer.witness = Some(earlier);
        }
        for packet in &mut self.net {
            if let Packet::Message { to, message: Message::Handover(handover), .. } = packet
                && *to == id
                && !arena.has(Mutation::ReusesIncarnation)
            {
                handover.echo.incarnation = earlier;
            }
        }
        let survives = arena.has(Mutation::CertificateSurvivesRestart);
        self.net.retain(|packet| survives || !matches!(packet, Packet::Certificate { to, .. } if *to == id));
    }
}
