//! What the loop has to do with replicated state: who may claim, when the application may start, and who hears of it.
//!
//! Without replication all of this does nothing.

use std::future::pending;
use std::io;
use std::time::Duration;

use bps_protocol::{AgentId, Epoch, Event, Order, Purpose, Role, Version, Write};
use bps_wire::lease::Record;
use bps_wire::level::Level;
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

use super::{Pair, Turn};
use crate::replicate::Replica;
use crate::replicate::ledger::View;
use crate::replicate::notes::level_annotations;
use crate::store::Annotations;
use crate::world::Machine;

/// How long a tenure waits for a batch that is being carried out before it is given up, so that the other Pod may act. 5 s: a
/// disk that takes longer does not serve an application either.
const HELD_BACK_MAX: Duration = Duration::from_secs(5);

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

/// Whether the state of the tenure is what it may act with.
#[derive(Debug, Default)]
pub(super) struct Footing {
    /// It was so when the tenure began, and nothing was left half done since.
    is_firm: bool,
    /// Until when a batch that is being carried out is waited for.
    held_until: Option<Instant>,
    /// Its claim, or the one that is under way.
    claim: Claim,
}

/// What a claim says of the directories: the same in each copy, whatever has become of the own one since the first.
#[derive(Debug, Default)]
struct Claim {
    number: u64,
    epoch: Epoch,
    says: Annotations,
    /// What its release says, as long as no application was let go.
    undo: Annotations,
}

impl Claim {
    fn new(write: &Write, (before, says): (&Level, Option<Annotations>)) -> Self {
        let (number, epoch) = (write.number, write.lease.epoch);
        let pods = write.lease.members.map(|member| Some(member).filter(|id| *id != AgentId::NOBODY));
        let undo = match (before, &says) {
            (Level::Only(before), Some(_)) => level_annotations(before, pods),
            (Level::Only(_) | Level::Unsaid | Level::Unreadable, _) => Annotations::new(),
        };
        Self { number, epoch, says: says.unwrap_or_default(), undo }
    }

    /// The same after another one: who resumes a tenure that lapsed before it began anything has that one's to take back.
    fn after(self, former: Self, base: Option<Epoch>) -> Self {
        let is_resumed = self.undo.is_empty() && base == Some(former.epoch);
        if is_resumed { Self { undo: former.undo, ..self } } else { self }
    }

    fn says_in(&self, write: &Write) -> Annotations {
        if write.number == self.number {
            self.says.clone()
        } else if write.lease.epoch == self.epoch && write.lease.holder.is_none() {
            self.undo.clone()
        } else {
            Annotations::new()
        }
    }
}

impl Footing {
    /// Until when the application is held back; `None`: it is not.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.held_until
    }

    /// The application may begin: whom the claim left out stays left out, whatever its release says.
    fn finalize_claim(&mut self) {
        self.claim.undo.clear();
    }
}

/// What the protocol was told last of whether it may take over.
#[derive(Debug, Default)]
pub(super) struct Permission {
    is_withheld: bool,
}

impl Permission {
    /// What to tell it now. The own directory may have got another number since the Lease was read, so that this is asked
    /// before each step.
    pub(super) fn changed(&mut self, may_take: bool) -> Option<Order> {
        if may_take != self.is_withheld {
            return None;
        }
        self.is_withheld = !may_take;
        if may_take {
            return Some(Order::Permit);
        }
        warn!(
            "Will not take over: the state directory lacks acknowledged writes until the active has sent them, or its disk failed \
             just now; if the active is lost for good, remove the annotation ha-in-sync of the Lease to act without them"
        );
        Some(Order::Withhold)
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
                self.footing.is_firm &= self.pair.replica.as_ref().is_none_or(Replica::is_usable);
                if !self.footing.is_firm {
                    error!("Does not act: the state directory is not what it was when the Lease was claimed");
                }
                self.go_on_or_give_up()
            }
            Word::Overdue => {
                error!("Does not act: the last batch of the state is still being carried out");
                self.footing.is_firm = false;
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
        self.footing.held_until = None;
        // The hold may be over: a whole container may have stood still.
        self.step(Event::Timer)?;
        let may_begin = self.pair.protocol.agent().role == Role::Active;
        match self.footing.is_firm {
            true if may_begin => self.footing.finalize_claim(),
            true => {}
            false => self.step(Event::Ordered(Order::GiveUp))?,
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
        let is_unsaid = !epoch.is_delegated() && self.level.1 == Level::Unsaid;
        if let Some(replica) = self.pair.replica.as_ref().filter(|_| is_unsaid) {
            replica.begin_anew();
        }
        let is_firm = if epoch.is_delegated() { may_succeed } else { self.may_take() };
        let is_held_back = !(is_shut && is_firm);
        self.body.tenant.hold_back(is_held_back);
        if !is_held_back {
            self.footing.finalize_claim();
        }
        self.footing.is_firm = is_firm;
        self.footing.held_until = is_held_back.then(|| Instant::now() + HELD_BACK_MAX);
    }

    /// There is no tenure: state may come in, and nothing is held back.
    pub(super) fn be_standby(&mut self) {
        self.pair.open_state();
        self.footing = Footing { claim: std::mem::take(&mut self.footing.claim), ..Footing::default() };
        self.body.tenant.hold_back(false);
        self.stand_by();
    }

    pub(super) fn know(&self, record: &Record) {
        if let Some(replica) = &self.pair.replica {
            replica.know(record);
        }
    }

    /// Takes over what a version of the Lease says of the state directories, unless a later one was read.
    pub(super) fn know_level(&mut self, version: Version, (members, level): ([AgentId; 2], Level)) {
        if version < self.level.0 {
            return;
        }
        self.level = (version, level);
        let may_take = self.may_take();
        // A rollout that waits for readiness leaves the other Pod alone until this one could take its place.
        // One that lacks something and has nobody to get it from stands in nobody's way: it may be for the Pod that has it
        // that the rollout waits.
        let is_member = members.contains(&self.pair.protocol.agent().id);
        let is_by_itself = members.contains(&AgentId::NOBODY);
        self.is_able = is_member && (may_take || is_by_itself);
        self.show_readiness();
    }

    /// Rollouts stop at a Pod that is not ready, as they would if a kubelet saw the application crash.
    pub(super) fn show_readiness(&self) {
        let is_looping = self.body.tenant.is_crash_looping(self.now());
        self.body.health.set_ready(self.is_able && !is_looping);
    }

    /// Whether the application may act with what is in the state directory now, by what the Lease says.
    pub(super) fn may_take(&self) -> bool {
        self.pair.replica.as_ref().is_none_or(|replica| replica.may_take(&self.level.1))
    }

    /// Whether it may claim the role of its own accord.
    pub(super) fn may_claim(&self) -> bool {
        let steps_back =
            self.pair.replica.as_ref().is_some_and(|replica| replica.resignation.steps_back(Instant::now()));
        self.may_take() && !steps_back
    }

    /// What a write says of the directories.
    ///
    /// A claim leaves that of whoever acted out if that one is not there any more: to do so by a write of its own would have
    /// everybody wait for that. A release takes it back if no application was let go meanwhile.
    pub(super) fn says_of_directories(&mut self, write: &Write) -> Annotations {
        let agent = self.pair.protocol.agent();
        match agent.unresolved.map(|unresolved| unresolved.purpose) {
            Some(Purpose::Claim) if self.footing.claim.number != write.number => {
                let (version, level) = &self.level;
                let is_bereaved = agent.is_bereaved() && *version == write.base;
                let replica = self.pair.replica.as_ref().filter(|_| is_bereaved);
                let says = replica.and_then(|replica| replica.leaves_out(level));
                let base = agent.seen.map(|seen| seen.lease.epoch);
                let claim = Claim::new(write, (level, says));
                self.footing.claim = claim.after(std::mem::take(&mut self.footing.claim), base);
            }
            Some(Purpose::Claim | Purpose::Renew | Purpose::Admit | Purpose::Release) | None => {}
        }
        self.footing.claim.says_in(write)
    }

    /// Whether a switchover could succeed.
    pub(super) fn may_switch_over(&self) -> bool {
        self.pair.replica.as_ref().is_none_or(|replica| {
            let may = replica.may_switch_over(&self.level.1);
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
        let is_settled = self.footing.is_firm && replica.door.is_shut();
        let is_tenure = is_settled && matches!(agent.role, Role::Active | Role::Stopping | Role::Ended);
        let seen = agent.seen.filter(|seen| seen.lease.holder == Some(agent.id));
        replica.show(View {
            acting: is_tenure.then_some(agent.epoch),
            version: agent.seen.map(|seen| seen.version).unwrap_or_default(),
            is_written: seen.is_some_and(|seen| seen.lease.epoch == agent.epoch),
            level: self.level.1.clone(),
            peer: agent.tenure.map(|tenure| tenure.peer.id),
        });
        if agent.role == Role::Ended && before != Role::Ended {
            replica.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use bps_protocol::{Hold, Lease};
    use bps_wire::level::DirectoryId;

    use super::*;
    use crate::replicate::directory::StateDirectory;
    use crate::replicate::gate::{PromoteWhen, may_take};

    #[test]
    fn a_directory_that_gets_another_number_may_not_take_over_until_the_lease_calls_it_level() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(folder.path()).unwrap();
        let mut permission = Permission::default();
        let mut told =
            |level: &Level| permission.changed(may_take(PromoteWhen::InSync, level, directory.id()));
        let of_both = Level::Only([directory.id()].into());
        assert_eq!(told(&of_both), None);
        let renewed = directory.renew().unwrap();
        assert_eq!(told(&of_both), Some(Order::Withhold));
        assert_eq!(told(&of_both), None, "once");
        assert_eq!(told(&Level::Only([renewed].into())), Some(Order::Permit));
    }

    #[test]
    fn each_copy_of_a_claim_says_the_same_and_only_its_release_takes_that_back() {
        let [own, other] = [1, 2].map(DirectoryId);
        let lease = Lease {
            epoch: Epoch { term: 4, sequence: 0 },
            holder: Some(AgentId(7)),
            members: [AgentId(7), AgentId(8)],
            pending: None,
            hold: Hold::Api,
            writes: 3,
        };
        let write = |number, lease| Write { number, base: Version(9), lease };
        let says = level_annotations(&[own].into(), [Some(AgentId(7)), None]);
        let before = Level::Only([own, other].into());
        let mut claim = Claim::new(&write(5, lease), (&before, Some(says.clone())));
        let release = |number, lease| write(number, Lease { holder: None, ..lease });
        let undone = level_annotations(&[own, other].into(), [Some(AgentId(7)), Some(AgentId(8))]);
        assert_eq!(claim.says_in(&write(5, lease)), says);
        assert_eq!(claim.says_in(&release(6, lease)), undone);
        let delegated = Lease { epoch: Epoch { sequence: 1, ..lease.epoch }, ..lease };
        for other in [write(6, lease), release(7, delegated)] {
            assert_eq!(claim.says_in(&other), Annotations::new(), "{other:?}");
        }
        // The application was started.
        claim.undo.clear();
        assert_eq!(claim.says_in(&release(6, lease)), Annotations::new());
        let silent = || Claim::new(&write(8, lease), (&before, None));
        assert_eq!(silent().says_in(&release(9, lease)), Annotations::new(), "it left nobody out");

        // A tenure that lapsed before it began anything is resumed by another claim.
        let epoch = Epoch { term: 3, sequence: 0 };
        let lapsed = || Claim::new(&write(7, Lease { epoch, ..lease }), (&before, Some(says.clone())));
        let said = |base| silent().after(lapsed(), base).says_in(&release(9, lease));
        assert_eq!(
            [said(Some(epoch)), said(Some(lease.epoch)), said(None)],
            [undone, Annotations::new(), Annotations::new()]
        );
    }
}
