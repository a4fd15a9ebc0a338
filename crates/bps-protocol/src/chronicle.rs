//! Keeps the times of a takeover: how a tenure ended here, and how the next one began.
//!
//! Watches the agent from outside and changes nothing.

use std::time::Duration;

use super::{
    Account, Agent, BootTime, Cause, Epoch, Event, Lease, Message, Order, Purpose, TakeoverRecord, Timing,
    Write,
};

/// Longest span that is told. Unit: microseconds, as many as 32 bits hold: more than an hour.
const TOLD_MAX: Duration = Duration::from_micros(u32::MAX as u64);

/// One step of an agent.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// When it was.
    pub now: BootTime,
    /// What happened.
    pub event: &'a Event,
    /// The agent before it.
    pub before: &'a Agent,
    /// The agent after it.
    pub after: &'a Agent,
}

/// The last tenure that ended here, and the one that began last.
#[derive(Clone, Debug, Default)]
pub struct Chronicle {
    parting: Option<Parting>,
    /// The account of the peer, as if it had been noticed here.
    told: Option<Parting>,
    /// When the certificate came that the agent has.
    certified: BootTime,
    /// The claim under way, by the number of its write.
    claim: Option<(u64, Draft)>,
    draft: Option<Draft>,
}

/// How a tenure ended.
#[derive(Clone, Copy, Debug)]
struct Parting {
    epoch: Epoch,
    cause: Cause,
    detected: BootTime,
    /// `None`: its application may still be there.
    fenced: Option<BootTime>,
}

/// A tenure that begins.
#[derive(Clone, Copy, Debug)]
struct Draft {
    epoch: Epoch,
    /// The highest epoch that was known before.
    former: Epoch,
    cause: Cause,
    beginning: BootTime,
    detected: BootTime,
    fenced: BootTime,
    granted: Option<BootTime>,
    promoted: Option<BootTime>,
    published: Option<BootTime>,
}

impl Chronicle {
    /// Takes in a step of the agent.
    pub fn follow(&mut self, turn: &Turn<'_>, timing: &Timing) {
        let Turn { now, event, before, after, .. } = *turn;
        if let Event::Certificate { .. } = event {
            self.certified = now;
        }
        if before.role.is_acting() && (!after.role.is_acting() || before.role != after.role) {
            self.part(turn);
        }
        if let Some(unresolved) = after.unresolved.filter(|unresolved| unresolved.purpose == Purpose::Claim)
            && self.claim.is_none_or(|(number, _)| number != unresolved.write.number)
        {
            self.claim = Some((unresolved.write.number, self.claimed(turn, &unresolved.write, timing)));
        }
        if after.role.is_acting() && !before.role.is_acting() {
            self.begin(turn);
        }
    }

    /// A tenure comes to its end, or has ended.
    fn part(&mut self, turn: &Turn<'_>) {
        let Turn { now, event, before, after } = *turn;
        let cause = match event {
            Event::ApplicationEnded | Event::Ordered(Order::GiveUp) => Cause::ApplicationEnded,
            Event::Ordered(Order::SwitchOver) => Cause::SwitchOver,
            Event::Ordered(Order::Leave) => Cause::PodDeleted,
            Event::Ordered(Order::Fence) => Cause::Fenced,
            Event::Ordered(
                Order::PeerFenced(_)
                | Order::Unfence
                | Order::Withhold
                | Order::Permit
                | Order::Settle { .. },
            )
            | Event::LeaseRead { .. }
            | Event::WriteApplied { .. }
            | Event::WriteConflicted
            | Event::Received { .. }
            | Event::Certificate { .. }
            | Event::Timer => Cause::HoldLost,
        };
        let known = self.parting.filter(|parting| parting.epoch == before.epoch);
        let parting = known.unwrap_or(Parting { epoch: before.epoch, cause, detected: now, fenced: None });
        let fenced = if after.role.is_acting() { parting.fenced } else { Some(now) };
        self.parting = Some(Parting { fenced, ..parting });
    }

    /// The end of the application was seen at this time, before the last of its processes had ended.
    pub fn saw_end(&mut self, at: BootTime) {
        let seen = self.parting.as_mut().filter(|parting| parting.cause == Cause::ApplicationEnded);
        if let Some(parting) = seen {
            parting.detected = parting.detected.min(at);
        }
    }

    /// What the peer is told about the tenure that ended here, if it is the last one.
    pub fn account(&self, now: BootTime, epoch: Epoch) -> Option<Account> {
        let Parting { epoch, cause, detected, fenced } =
            self.parting.filter(|parting| parting.epoch <= epoch && parting.epoch.term == epoch.term)?;
        let ago = |moment| now.since(moment).min(TOLD_MAX);
        Some(Account { epoch, cause, detected_ago: ago(detected), fenced_ago: ago(fenced?) })
    }

    /// The peer told how its tenure ended. It may be late.
    pub fn heard(&mut self, now: BootTime, account: Account) {
        let Account { epoch, cause, detected_ago, fenced_ago } = account;
        let detected = now.before(detected_ago.max(fenced_ago));
        let told = Parting { epoch, cause, detected, fenced: Some(now.before(fenced_ago)) };
        if self.told.is_none_or(|known| known.epoch < epoch) {
            self.told = Some(told);
        }
        let untold = self.draft.as_mut().filter(|draft| draft.cause == Cause::HandedOver);
        if let Some(draft) = untold.filter(|draft| draft.former == epoch) {
            draft.tell(&told);
        }
    }

    /// What a claim is based on.
    fn claimed(&self, turn: &Turn<'_>, write: &Write, timing: &Timing) -> Draft {
        let Turn { now, before, after, .. } = *turn;
        let former = before.epoch.max(after.epoch);
        let draft = |cause, beginning| Draft {
            cause,
            beginning,
            detected: now,
            fenced: now,
            ..Draft::of(write.lease.epoch, former, now)
        };
        let mut ended = [self.parting, self.told].into_iter().flatten();
        let ended = ended.find(|parting| parting.epoch == former && parting.fenced.is_some());
        let lease: Option<Lease> = after.seen.map(|seen| seen.lease);
        let heard = after.seen.map_or(now, |seen| seen.since).max(after.promise_end.before(timing.watch));
        if let Some(ended) = ended {
            let mut draft = draft(ended.cause, now);
            draft.tell(&ended);
            return draft;
        }
        if after.is_certified {
            let certified = self.certified.min(now);
            return Draft {
                detected: certified,
                fenced: certified,
                ..draft(Cause::CertificateOfDeath, certified)
            };
        }
        match lease.map(|lease| lease.holder) {
            Some(None) | None => draft(Cause::Released, now),
            Some(Some(holder)) if holder == after.id => draft(Cause::Resumed, now),
            Some(Some(_)) => draft(Cause::LeaseExpired, heard.min(now)),
        }
    }

    fn begin(&mut self, turn: &Turn<'_>) {
        let Turn { now, event, before, after, .. } = *turn;
        let claim = self.claim.take().map(|(_, draft)| draft).filter(|draft| draft.epoch == after.epoch);
        let mut draft = claim.unwrap_or_else(|| Draft::of(after.epoch, before.epoch, now));
        if let (Event::Received { message: Message::Handover(_), .. }, Some(told)) = (event, self.told)
            && told.epoch == former_of(after.epoch).unwrap_or(before.epoch)
        {
            draft.former = told.epoch;
            draft.tell(&told);
        }
        draft.granted = Some(now);
        draft.put_in_order(now);
        self.draft = Some(draft);
    }

    /// The application of this tenure runs in active mode.
    pub fn promoted(&mut self, epoch: Epoch, at: BootTime) {
        if let Some(draft) = self.draft.as_mut().filter(|draft| draft.epoch == epoch) {
            draft.promoted.get_or_insert(at);
        }
    }

    /// Everybody can find the active of this tenure.
    pub fn published(&mut self, epoch: Epoch, at: BootTime) {
        if let Some(draft) = self.draft.as_mut().filter(|draft| draft.epoch == epoch) {
            draft.published.get_or_insert(at);
        }
    }

    /// The takeover that a write of the Lease is about.
    pub fn record(&self, write: &Write) -> Option<TakeoverRecord> {
        let claim = self.claim.filter(|(number, _)| *number == write.number).map(|(_, draft)| draft);
        let draft = claim.or(self.draft).filter(|draft| draft.epoch == write.lease.epoch);
        draft.map(|draft| draft.record())
    }

    /// The present tenure, or the last one.
    pub fn last(&self) -> Option<TakeoverRecord> {
        self.draft.map(|draft| draft.record())
    }
}

/// The epoch whose active delegated this one.
fn former_of(epoch: Epoch) -> Option<Epoch> {
    Some(Epoch { sequence: epoch.sequence.checked_sub(1)?, ..epoch })
}

impl Draft {
    fn of(epoch: Epoch, former: Epoch, now: BootTime) -> Self {
        let former = former_of(epoch).unwrap_or(former);
        let (granted, promoted, published) = (None, None, None);
        let cause = Cause::HandedOver;
        Self {
            epoch,
            former,
            cause,
            beginning: now,
            detected: now,
            fenced: now,
            granted,
            promoted,
            published,
        }
    }

    fn tell(&mut self, ended: &Parting) {
        self.cause = ended.cause;
        (self.beginning, self.detected) = (ended.detected, ended.detected);
        self.fenced = ended.fenced.unwrap_or(self.fenced);
        if let Some(granted) = self.granted {
            self.put_in_order(granted);
        }
    }

    /// What was told arrived a little later than it was; nothing of it came after the role was granted.
    fn put_in_order(&mut self, granted: BootTime) {
        self.fenced = self.fenced.min(granted);
        self.detected = self.detected.min(self.fenced);
        self.beginning = self.beginning.min(self.detected);
    }

    fn record(&self) -> TakeoverRecord {
        let after = |moment: BootTime| moment.since(self.beginning).min(TOLD_MAX);
        TakeoverRecord {
            epoch: self.epoch,
            cause: self.cause,
            detected: after(self.detected),
            fenced: after(self.fenced),
            granted: self.granted.map(after),
            promoted: self.promoted.map(after),
            published: self.published.map(after),
        }
    }
}

#[cfg(test)]
mod tests;
