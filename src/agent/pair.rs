//! The loop of an agent in a pair: carries what happens to the protocol, and carries out what the protocol wants.
//!
//! Decides nothing about who may act. Never waits for the API server, a peer or a disk: all that takes time happens in
//! other tasks, and this one only sleeps until something has happened.

use std::io;

use futures::StreamExt as _;
use rustix::process::Signal;
use tokio::sync::watch;
use tracing::{error, info};

use super::clock::{self, Alarm};
use super::init;
use super::marks::{State, word};
use super::peer::Peers;
use super::store::{Report, Store};
use super::tenant::Tenant;
use crate::ha::{AgentId, BootTime, Effect, Epoch, Event, Message, Order, Protocol, Role, Timing};
use crate::runtime::shutdown::Shutdown;

/// The protocol and all that it acts on.
#[derive(Debug)]
pub struct Pair {
    /// Who may act.
    pub protocol: Protocol,
    /// The times of the group.
    pub timing: Timing,
    /// The application.
    pub tenant: Tenant,
    /// The other agents.
    pub peers: Peers,
    /// The Lease.
    pub store: Store,
    /// Wakes the loop.
    pub alarm: Alarm,
    /// Role and epoch, for whoever shows them.
    pub states: watch::Sender<State>,
    /// The epoch that it acts with, for whoever publishes it.
    pub acting: watch::Sender<Option<Epoch>>,
}

/// What the loop keeps for itself.
struct Turn {
    pair: Pair,
    wake_at: BootTime,
    /// When it ends even if it could not hand over.
    leave_by: Option<BootTime>,
}

impl Pair {
    /// Runs until it is asked to end and has handed over, released the Lease, or could do neither in time.
    ///
    /// Call it on the main thread, see [`super::tree::Tree::start`].
    ///
    /// # Errors
    /// What the kernel refused. The application ends with this value.
    pub async fn run(self, shutdown: &Shutdown) -> io::Result<()> {
        let mut signals = init::passed_on()?;
        let mut turn = Turn { pair: self, wake_at: BootTime::default(), leave_by: None };
        turn.step(Event::Timer)?;
        while !turn.is_over() {
            let is_leaving = turn.leave_by.is_some();
            let Pair { tenant, alarm, store, peers, .. } = &mut turn.pair;
            tokio::select! {
                // The end of the application comes before all that may have been said because of it. Then the time,
                // because a hold that is over must not be mistaken for one that an answer still extends. Messages are
                // last: no flood of them keeps the agent from anything else.
                biased;
                ended = tenant.ended() => {
                    ended?;
                    turn.step(Event::ApplicationEnded)?;
                }
                rung = alarm.rung() => {
                    rung?;
                    turn.pair.tenant.go_on(clock::now())?;
                    turn.step(Event::Timer)?;
                }
                Some(signal) = signals.next() => turn.signalled(signal)?,
                () = shutdown.requested(), if !is_leaving => turn.leave()?,
                Some(report) = store.reports.recv() => turn.reported(report)?,
                said = peers.receive() => if let Some((from, message)) = said {
                    turn.heard(from, message)?;
                },
            }
        }
        Ok(())
    }
}

impl Turn {
    fn signalled(&mut self, signal: Signal) -> io::Result<()> {
        if [Signal::TERM, Signal::INT].contains(&signal) {
            info!(reason = if signal == Signal::TERM { "SIGTERM" } else { "SIGINT" }, "Received signal");
            return self.leave();
        }
        self.pair.tenant.pass(signal)
    }

    /// Stops acting for good, by a handover if there is a peer. Leaving again changes nothing.
    fn leave(&mut self) -> io::Result<()> {
        if self.leave_by.is_none() {
            // A hold for the application to end in, and as long again to repeat the handover or the release.
            self.leave_by = Some(clock::now() + 2 * self.pair.timing.hold);
            self.step(Event::Ordered(Order::Fence))?;
        }
        Ok(())
    }

    /// Whether it was asked to end and owes nobody anything any more.
    fn is_over(&self) -> bool {
        let Some(leave_by) = self.leave_by else { return false };
        let agent = self.pair.protocol.agent();
        let is_settled = match agent.role {
            Role::Standby | Role::Lapsed => agent.unresolved.is_none(),
            Role::HandedOver | Role::Active | Role::Stopping | Role::Ended => false,
        };
        self.pair.tenant.is_gone() && (is_settled || leave_by <= clock::now())
    }

    fn reported(&mut self, report: Report) -> io::Result<()> {
        match report {
            Report::Read(record) if self.pair.peers.know(&record) => {
                self.step(Event::LeaseRead { lease: record.lease, version: record.version })
            }
            Report::Read(_) => {
                error!("Ignored a Lease that was made anew: delete the Pods of the pair, too");
                Ok(())
            }
            Report::Applied { number, version } => self.step(Event::WriteApplied { number, version }),
            Report::Conflicted => self.step(Event::WriteConflicted),
        }
    }

    fn heard(&mut self, from: AgentId, message: Message) -> io::Result<()> {
        // The application may have ended since the loop looked, and the message be about that.
        if self.pair.tenant.has_just_ended()? {
            self.step(Event::ApplicationEnded)?;
        }
        self.step(Event::Received { from, message })
    }

    fn step(&mut self, event: Event) -> io::Result<()> {
        let now = clock::now();
        let pair = &mut self.pair;
        let (before, unresolved) = (pair.protocol.agent().role, pair.protocol.agent().unresolved);
        for effect in pair.protocol.step(now, event) {
            self.carry_out(effect)?;
        }
        let due = self.pair.tenant.due();
        self.pair.alarm.set(due.map_or(self.wake_at, |due| due.min(self.wake_at)))?;
        let (role, epoch) = (self.pair.protocol.agent().role, self.pair.protocol.agent().epoch);
        if role != before {
            let (reason, is_answer) = cause(&event);
            let sent = unresolved.filter(|_| is_answer).map(|unresolved| unresolved.sent);
            let elapsed = clock::now().since(sent.unwrap_or(now));
            let elapsed_ms = format_args!("{:.3}", elapsed.as_secs_f64() * 1_000.0);
            info!(role = word(role), %epoch, reason, %elapsed_ms, "Changed role");
        }
        let state = State { role, epoch };
        self.pair.states.send_if_modified(|shown| std::mem::replace(shown, state) != state);
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect) -> io::Result<()> {
        let pair = &mut self.pair;
        match effect {
            Effect::Send { to, message } => pair.peers.send(to, message),
            Effect::WriteLease(write) => pair.store.write(write, pair.peers.directory()),
            Effect::ReadLease => pair.store.read(),
            Effect::Activate { epoch } => {
                let peer = pair.protocol.agent().tenure.map(|tenure| tenure.peer.id);
                let peer = peer.and_then(|peer| pair.peers.directory().get(&peer));
                pair.tenant.activate(clock::now(), epoch, peer.map(|peer| peer.address.ip()));
                pair.acting.send_replace(Some(epoch));
            }
            Effect::Stop { by } => {
                pair.acting.send_replace(None);
                pair.tenant.stop(clock::now(), by)?;
            }
            // In standby mode the application does not run.
            Effect::StandBy => drop(pair.acting.send_replace(None)),
            Effect::WakeAt(at) => self.wake_at = at,
        }
        Ok(())
    }
}

/// The word for an event in logs, and whether it may be the answer to a write.
fn cause(event: &Event) -> (&'static str, bool) {
    match event {
        Event::LeaseRead { .. } => ("LeaseRead", true),
        Event::WriteApplied { .. } => ("WriteApplied", true),
        Event::WriteConflicted => ("WriteConflicted", false),
        Event::Received { message: Message::Handover(_), .. } => ("Handover", false),
        Event::Received { message: Message::PromiseRequest(_), .. } => ("PromiseRequest", false),
        Event::Received { message: Message::Ping(_) | Message::Promise(_), .. } => ("Message", false),
        Event::ApplicationEnded => ("ApplicationEnded", false),
        Event::Certificate { .. } => ("Certificate", false),
        Event::Timer => ("Timer", false),
        Event::Ordered(_) => ("Ordered", false),
    }
}
