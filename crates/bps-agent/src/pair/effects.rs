//! Carries out what a step of the protocol wants: messages, requests to the API server, changes of the application.

use std::io;

use bps_protocol::{Effect, Epoch, Message};
use bps_wire::frame::Content;
use bps_wire::lease::Member;
use futures::FutureExt as _;
use tokio::time::timeout;
use tracing::error;

use super::succession::patience_for_debut;
use super::{Posture, Turn};
use crate::world::Machine;

impl<On: Machine> Turn<'_, On> {
    /// All effects of one step, in their order.
    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) -> io::Result<()> {
        let mut effects = effects.into_iter().peekable();
        while let Some(effect) = effects.next() {
            match effect {
                Effect::Send { to, message } => {
                    let content = match (message, effects.peek()) {
                        (
                            Message::Promise(promise),
                            Some(&Effect::Send { to: also, message: Message::Ping(ping) }),
                        ) if also == to => {
                            effects.next();
                            Content::PromiseWithPing(promise, ping)
                        }
                        _ => message.into(),
                    };
                    // First, so that what it is about is known when it begins.
                    self.tell_end(to, &message);
                    self.body.peers.send(to, content);
                }
                Effect::WriteLease(write) => {
                    self.tell_write(&write);
                    if write.lease.holder == Some(self.pair.protocol.agent().id) {
                        self.aftermath.claims(write.lease.epoch);
                    }
                    let said = self.says_beside(&write);
                    self.pair.store.write(write, self.body.peers.directory(), said);
                }
                Effect::ReadLease => self.pair.store.read(),
                Effect::Activate { epoch, not_before } => {
                    self.body.tenant.wait_until(not_before);
                    self.activate(epoch);
                }
                Effect::Stop { by } => {
                    self.keep_ports();
                    self.body.tenant.stop(self.now(), by)?;
                }
                Effect::StopBy { by } => self.body.tenant.stop_by(self.now(), by)?,
                Effect::Kill => {
                    let (epoch, now) = (self.pair.protocol.agent().epoch, self.now());
                    error!(%epoch, "Killed the application: another Pod acts with a higher epoch");
                    self.body.tenant.metrics().overtaken.inc();
                    self.body.tenant.kill(now)?;
                }
                Effect::StandBy => self.be_standby(),
                Effect::WakeAt(at) => self.timetable.wake_at(at),
            }
        }
        Ok(())
    }
    /// Begins a tenure. The agent shows its address at once, unless another Pod still serves at the one that
    /// is shown.
    fn activate(&mut self, epoch: Epoch) {
        self.take_footing(epoch);
        let (body, pair) = (&mut *self.body, &self.pair);
        let directory = body.peers.directory();
        let address = |id| directory.get(&id).and_then(Member::ip);
        let peer = pair.protocol.agent().tenure.and_then(|tenure| address(tenure.peer.id));
        let own = address(pair.protocol.agent().id);

        // The process may have been stopped since the step began. Its enforcer's timer is set by now, so it
        // may be later.
        let (now, posture) = (body.machine.now(), Posture { epoch, peer });
        if pair.protocol.agent().hold_end() <= now {
            return body.tenant.miss(posture);
        }
        body.tenant.activate(now, posture);

        let patience = patience_for_debut(epoch, self.may_overlap());
        if let (Some(own), Some(patience)) = (own, patience) {
            let listens = timeout(patience, self.body.relay.served(own)).map(drop);
            self.succession.await_debut(Box::pin(listens));
        }
    }
}
