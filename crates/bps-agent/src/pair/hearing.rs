//! What the loop does about what the other agents say.

use std::io;

use bps_protocol::{AgentId, Event, Message};
use bps_wire::frame::{Content, Question};
use futures::FutureExt as _;

use super::Turn;
use crate::world::Machine;

/// How many messages are heard in one go. 16: those of two members in two seconds; a flood must not keep the agent.
const HEARD_AT_ONCE_MAX: usize = 16;

impl<On: Machine> Turn<'_, On> {
    /// The application has ended, or something else that may have changed what is due.
    pub(super) fn ended(&mut self, is_application: bool) -> io::Result<()> {
        if !is_application {
            return self.step(Event::Timer);
        }
        self.step_forewarned(Event::ApplicationEnded)
    }

    /// A step that may hand over: the peer may have said farewell while this agent stood still. All else that has come is
    /// heard afterwards.
    pub(super) fn step_forewarned(&mut self, event: Event) -> io::Result<()> {
        let waiting = self.waiting();
        for (from, content) in &waiting {
            self.part(*from, content);
        }
        self.step(event)?;
        waiting.into_iter().try_for_each(|(from, content)| self.heard(from, content))
    }

    /// Whether it is over when all that has come is heard: who leaves may have been handed over to.
    pub(super) fn is_over_for_all_heard(&mut self) -> io::Result<bool> {
        self.waiting().into_iter().try_for_each(|(from, content)| self.heard(from, content))?;
        Ok(self.is_over())
    }

    /// What has come and was not heard yet.
    pub(super) fn waiting(&mut self) -> Vec<(AgentId, Content)> {
        let next = std::iter::from_fn(|| self.body.peers.receive().now_or_never());
        next.take(HEARD_AT_ONCE_MAX).flatten().collect()
    }

    fn part(&mut self, from: AgentId, content: &Content) {
        if let Content::Protocol(Message::Farewell(ping)) = content {
            self.pair.protocol.part(from, *ping);
        }
    }

    /// Who acts with the epoch in question denies that it has ended. Whoever does not says nothing: silence does no harm.
    fn answer(&self, from: AgentId, question: Question) {
        let agent = self.pair.protocol.agent();
        if agent.role.is_acting() && agent.epoch == question.epoch {
            self.body.peers.send(from, Content::Denial(question));
        }
    }

    pub(super) fn heard(&mut self, from: AgentId, content: Content) -> io::Result<()> {
        match content {
            Content::Account(account) => {
                self.chronicle.heard(self.now(), account);
                return Ok(());
            }
            Content::Question(question) => {
                self.answer(from, question);
                return Ok(());
            }
            Content::Denial(question) => {
                self.pair.lifelines.deny(question);
                return Ok(());
            }
            Content::Protocol(_) | Content::PromiseWithPing(..) => {}
        }
        self.part(from, &content);
        // The application may have ended since the loop looked, and the message be about that.
        if self.body.tenant.has_just_ended()? {
            self.step(Event::ApplicationEnded)?;
        }
        for message in content.messages().into_iter().flatten() {
            self.aftermath.heard(from, &message);
            self.succession.heard(from, &message);
            self.step(Event::Received { from, message })?;
        }
        Ok(())
    }
}
