//! What the loop does about what the other agents say.

use std::io;

use super::Turn;
use crate::agent::frame::Content;
use crate::agent::world::Machine;
use crate::ha::{AgentId, Event, Message, PromiseRequest};

impl<On: Machine> Turn<'_, On> {
    pub(super) fn heard(&mut self, from: AgentId, content: Content) -> io::Result<()> {
        let messages = match content {
            Content::Protocol(message) => [Some(message), None],
            Content::PromiseWithPing(promise, ping) => {
                [Some(Message::Promise(promise)), Some(Message::Ping(ping))]
            }
            Content::Account(account) => {
                self.chronicle.heard(self.now(), account);
                return Ok(());
            }
        };
        // The application may have ended since the loop looked, and the message be about that.
        if self.body.tenant.has_just_ended()? {
            self.step(Event::ApplicationEnded)?;
        }
        for message in messages.into_iter().flatten() {
            self.aftermath.heard(from, &message);
            if let Message::PromiseRequest(PromiseRequest { epoch, .. }) = message {
                self.asker = self.asker.max(Some((epoch, from)));
            }
            self.step(Event::Received { from, message })?;
        }
        Ok(())
    }
}
