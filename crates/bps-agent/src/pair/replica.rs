//! What the loop has to do with replicated state: who may claim, when the application may start, and who hears of it.
//!
//! Without replication all of this does nothing.

use std::future::pending;
use std::io;

use bps_protocol::{AgentId, Epoch, Event, Order, Purpose, Role, Version, Write};
use bps_wire::lease::Record;
use bps_wire::level::Level;
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

use super::eligibility::{SeatFound, StateFound};
use super::state_claim::StateClaim;
use super::{Pair, Turn};
use crate::replicate::Replica;
use crate::replicate::ledger::View;
use crate::store::Annotations;
use crate::world::Machine;

/// What the replication tells the loop.
pub(super) enum Word {
    /// Nothing is received any more: what was held back may start.
    Shut,
    /// Something is still being received.
    Overdue,
    /// Whether the standby has what an application that ended has left.
    Settled(bool),
    /// The own disk fails in this tenure, and the standby has everything.
    Resigns(Epoch),
}

/// Waits for the next word. May be dropped and called again.
pub(super) async fn word(replica: &mut Option<Replica>, held_until: Option<Instant>) -> Word {
    let Some(Replica { door, settled, resigned, .. }) = replica else { return pending().await };
    let is_held_back = held_until.is_some();
    let overdue = async { sleep_until(held_until.unwrap_or_else(Instant::now)).await };
    tokio::select! {
        biased;
        () = door.shut(), if is_held_back => Word::Shut,
        () = overdue, if is_held_back => Word::Overdue,
        Some(is_level) = settled.recv() => Word::Settled(is_level),
        Some(epoch) = resigned.recv() => Word::Resigns(epoch),
    }
}

impl Pair {
    /// Ends receiving; whether nothing is being received now.
    pub(super) fn is_state_shut(&self) -> bool {
        self.replica.as_ref().is_none_or(|replica| {
            replica.door.close();
            replica.door.is_shut()
        })
    }

    /// Receives from whoever acts, once the own application has ended.
    pub(super) fn open_state(&self) {
        if let Some(replica) = &self.replica {
            replica.door.open(self.protocol.agent().epoch);
        }
    }
}

impl<On: Machine> Turn<'_, On> {
    pub(super) fn replicated(&mut self, word: Word) -> io::Result<()> {
        match word {
            Word::Shut => {
                let is_usable = self.pair.replica.as_ref().is_none_or(Replica::is_usable);
                if !self.eligibility.shut(is_usable) {
                    error!("Does not act: the state directory is not what it was when the Lease was claimed");
                }
                self.go_on_or_give_up()
            }
            Word::Overdue => {
                error!("Does not act: the last batch of the state is still being carried out");
                self.eligibility.be_overdue();
                if let Some(replica) = &self.pair.replica {
                    replica.door.distrust();
                }
                self.go_on_or_give_up()
            }
            Word::Settled(is_level) => self.step_forewarned(Event::Ordered(Order::Settle { is_level })),
            Word::Resigns(epoch) => self.resign(epoch),
        }
    }

    /// Gives the role up because the own disk fails: no barrier is kept here any more, and a standby with a good disk has
    /// everything that was acknowledged. Not by a handover, which promises that it has everything that was written, too.
    fn resign(&mut self, epoch: Epoch) -> io::Result<()> {
        let (now, agent) = (self.now(), self.pair.protocol.agent());
        let is_of_tenure = agent.role == Role::Active && agent.epoch == epoch;
        if !is_of_tenure || !self.pair.protocol.has_successor(now) {
            return Ok(());
        }
        if !self.pair.replica.as_mut().is_some_and(|replica| replica.resignation.gives_up(Instant::now())) {
            return Ok(());
        }
        error!(
            "Gives the role up: the disk of the state directory fails, and the standby has everything; check the volume"
        );
        self.step(Event::Ordered(Order::GiveUp))
    }

    fn go_on_or_give_up(&mut self) -> io::Result<()> {
        self.eligibility.let_go();
        // The hold may be over: a whole container may have stood still.
        self.step(Event::Timer)?;
        let is_acting = self.pair.protocol.agent().role == Role::Active;
        if !self.eligibility.confirm(is_acting) {
            self.step(Event::Ordered(Order::GiveUp))?;
        }
        self.body.tenant.let_go(self.now())?;
        // What was let go may have a time of its own to begin.
        self.step(Event::Timer)
    }

    /// A tenure begins: ends receiving, and holds the application back unless it may start with what is there. What was
    /// received while the claim was on its way may have changed that.
    pub(super) fn take_footing(&mut self, epoch: Epoch) {
        let is_shut = self.pair.is_state_shut();
        // Who hands over knows that this directory is level, maybe by a version of the Lease that was not read here yet.
        let may_succeed = self.pair.replica.as_ref().is_none_or(Replica::may_succeed);
        let is_unsaid = !epoch.is_delegated() && *self.lease.level() == Level::Unsaid;
        if let Some(replica) = self.pair.replica.as_ref().filter(|_| is_unsaid) {
            replica.begin_anew();
        }
        let may_act = if epoch.is_delegated() { may_succeed } else { self.may_take() };
        let is_held_back = self.eligibility.begin(Instant::now(), StateFound { is_shut, may_act });
        self.body.tenant.hold_back(is_held_back);
    }

    /// There is no tenure: state may come in, and nothing is held back.
    pub(super) fn be_standby(&mut self) {
        self.pair.open_state();
        self.eligibility.stand_by();
        self.body.tenant.hold_back(false);
        self.stand_by();
    }

    pub(super) fn know(&self, record: &Record) {
        if let Some(replica) = &self.pair.replica {
            replica.know(record);
        }
    }

    /// Takes over what a version of the Lease says of the state directories, unless a later one was read.
    pub(super) fn know_level(&mut self, version: Version, members: [AgentId; 2], level: Level) {
        if self.lease.learn_level(version, level) {
            let own = self.pair.protocol.agent().id;
            let is_kept = self.pair.replica.as_ref().is_some_and(|replica| replica.kept().is_some());
            self.eligibility.judge(own, members, SeatFound { may_take: self.may_take(), is_kept });
            self.show_readiness();
        }
    }

    /// Rollouts stop at a Pod that is not ready, as they would if a kubelet saw the application crash.
    pub(super) fn show_readiness(&self) {
        let is_looping = self.body.tenant.is_crash_looping(self.now());
        self.body.health.set_ready(self.eligibility.is_able() && !is_looping);
    }

    /// Whether the application may act with what is in the state directory now, by what the Lease says.
    pub(super) fn may_take(&self) -> bool {
        self.pair.replica.as_ref().is_none_or(|replica| replica.may_take(self.lease.level()))
    }

    /// Whether it may claim the role of its own accord.
    fn may_claim(&self) -> bool {
        let steps_back =
            self.pair.replica.as_ref().is_some_and(|replica| replica.resignation.steps_back(Instant::now()));
        self.may_take() && !steps_back
    }

    /// The order that the protocol needs before its next step; `None`: it has it already.
    pub(super) fn permit(&mut self) -> Option<Order> {
        let order = self.eligibility.permit(self.may_claim())?;
        if order == Order::Withhold {
            warn!(
                "Will not take over: the state directory lacks acknowledged writes until the active has sent them, or its disk failed \
                 just now; if the active is lost for good, remove the annotation ha-in-sync of the Lease to act without them"
            );
        }
        Some(order)
    }

    /// What a write says of the directories.
    ///
    /// A claim leaves that of whoever acted out if that one is not there any more: to do so by a write of its own would have
    /// everybody wait for that. A release takes it back if no application was let go meanwhile.
    pub(super) fn says_of_directories(&mut self, write: &Write) -> Annotations {
        let agent = self.pair.protocol.agent();
        match agent.unresolved.map(|unresolved| unresolved.purpose) {
            Some(Purpose::Claim) if !self.eligibility.has_claimed(write) => {
                let is_bereaved = agent.is_bereaved() && self.lease.is_level_of(write.base);
                let replica = self.pair.replica.as_ref().filter(|_| is_bereaved);
                let says = replica.and_then(|replica| replica.leaves_out(self.lease.level()));
                let base = agent.seen.map(|seen| seen.lease.epoch);
                self.eligibility.claim(StateClaim::new(write, self.lease.level(), says), base);
            }
            Some(Purpose::Claim | Purpose::Renew | Purpose::Admit | Purpose::Release) | None => {}
        }
        self.eligibility.says_in(write)
    }

    /// Whether a switchover could succeed.
    pub(super) fn may_switch_over(&self) -> bool {
        self.pair.replica.as_ref().is_none_or(|replica| {
            let may = replica.may_switch_over(self.lease.level());
            if !may {
                warn!("Does not switch over yet: the state directory of the standby is not level");
            }
            may
        })
    }

    /// Shows the replication what the protocol knows now.
    pub(super) fn show_replica(&self, before: Role) {
        let Some(replica) = &self.pair.replica else { return };
        let agent = self.pair.protocol.agent();
        // What is half done or still being changed is nobody's state: it is neither sent nor called level.
        let is_settled = self.eligibility.is_firm() && replica.door.is_shut();
        let is_tenure = is_settled && matches!(agent.role, Role::Active | Role::Stopping | Role::Ended);
        let seen = agent.seen.filter(|seen| seen.lease.holder == Some(agent.id));
        replica.show(View {
            acting: is_tenure.then_some(agent.epoch),
            version: agent.seen.map(|seen| seen.version).unwrap_or_default(),
            is_written: seen.is_some_and(|seen| seen.lease.epoch == agent.epoch),
            level: self.lease.level().clone(),
            peer: agent.tenure.map(|tenure| tenure.peer.id),
        });
        if agent.role == Role::Ended && before != Role::Ended {
            replica.settle();
        }
    }
}
