//! Makes before it breaks, where the group wants that: in a planned handover the old application goes on until the new one
//! serves.
//!
//! After every handover the new active shows its address when its application listens: until then the old Pod serves its
//! clients, by the old application or by its agent, which relays to the new one.
//!
//! The rules of the protocol are what they were. To them the application ends at the moment of the order, and the peer
//! acts as after any handover: that two act meanwhile is what the group asked for. Failures take another way, in which
//! the application has certainly ended first.

use std::fmt;
use std::io;
use std::time::Duration;

use bps_api::HandoverOrder;
use bps_protocol::{BootTime, Effect, Epoch, Event, Order, Protocol, Role};
use bps_wire::lease::Member;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Posture, Turn};
use crate::relay::LINGER;
use crate::relay::aim::Aim;
use crate::tenant::LINGER_MAX;
use crate::world::Machine;

/// How long an application that took over from another agent is waited for before clients are led to it. 1 s: that agent
/// relays for [`LINGER`], the other half of which nodes may need to follow.
const DEBUT_MAX: Duration = Duration::from_secs(1);

/// Something that is waited for once.
#[derive(Default)]
pub(super) enum Awaited {
    /// There is nothing to wait for.
    #[default]
    Nothing,
    /// This ends when it has come.
    Coming(BoxFuture<'static, ()>),
    /// It has come.
    Come,
}

impl fmt::Debug for Awaited {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Coming(_) => "Coming",
            Self::Come => "Come",
        })
    }
}

impl Awaited {
    /// Waits until it has come, which is told once. May be dropped and called again.
    pub(super) async fn come(&mut self) {
        match self {
            Self::Coming(coming) => coming.await,
            Self::Nothing | Self::Come => std::future::pending().await,
        }
        *self = Self::Come;
    }
}

/// Whether somebody wants this, so that there is time.
fn is_planned(event: Event) -> bool {
    matches!(event, Event::Ordered(Order::SwitchOver | Order::Fence | Order::Leave))
}

/// Whether the event leads to a handover at once if the application ends with it.
fn hands_over(protocol: &Protocol, now: BootTime, event: Event) -> bool {
    let mut trial = protocol.clone();
    drop(trial.step(now, event));
    if trial.agent().role != Role::Stopping {
        return false;
    }
    drop(trial.step(now, Event::ApplicationEnded));
    trial.agent().role == Role::HandedOver
}

impl<On: Machine> Turn<'_, On> {
    /// Whether the group wants it, and nothing that both applications would need is only for one of them.
    fn may_overlap(&self) -> bool {
        let order = self.body.handover.unwrap_or(self.orders.1.handover);
        order == HandoverOrder::MakeBeforeBreak && self.has_room_for_two()
    }

    fn has_room_for_two(&self) -> bool {
        self.pair.replica.is_none() && !self.body.tenant.runs_in_standby()
    }

    /// Says when what the Lease asks for is not done.
    pub(super) fn heed_order(&self, order: HandoverOrder) {
        let is_news = order != self.orders.1.handover && order == HandoverOrder::MakeBeforeBreak;
        if is_news && !self.has_room_for_two() {
            warn!(
                "Ignored handover MakeBeforeBreak: the state of the application is replicated, or it runs in both roles"
            );
        }
    }

    /// Whether the application goes on after the handover that this event leads to.
    pub(super) fn is_outlasted(&self, now: BootTime, event: Event) -> bool {
        is_planned(event)
            && self.may_overlap()
            && self.body.tenant.is_promoted()
            && hands_over(&self.pair.protocol, now, event)
    }

    /// The protocol is told at once that the application has ended; what it wants then follows what it wanted before.
    pub(super) fn let_linger(&mut self, now: BootTime, effects: &mut Vec<Effect>) {
        info!("Let the application go on until its successor serves");
        self.keep_ports();
        self.body.tenant.linger(now);
        effects.retain(|effect| !matches!(effect, Effect::Stop { .. } | Effect::Kill));
        effects.extend(self.pair.protocol.step(now, Event::ApplicationEnded));
    }

    /// Looks whether the successor serves, as soon as it says that it acts.
    pub(super) fn watch_successor(&mut self) {
        if !self.body.tenant.is_lingering() {
            self.successor = Awaited::Nothing;
        } else if matches!(self.successor, Awaited::Nothing) {
            let known = (self.pair.protocol.agent(), self.asker);
            let time = (self.now(), self.body.timing.watch);
            let Aim { active, .. } = Aim::of(known, self.body.peers.directory(), time);
            let served = active.map(|active| self.body.relay.served(active));
            self.successor = served.map_or(Awaited::Nothing, Awaited::Coming);
        }
    }

    /// The successor serves. The rules of the nodes lead clients here for a while yet.
    pub(super) fn relieve(&mut self) -> io::Result<()> {
        info!("The successor serves");
        self.body.tenant.relieve(self.now() + LINGER);
        self.step(Event::Timer)
    }

    /// A tenure begins. Who has an address to show shows it at once, unless somebody still serves at the one that is shown.
    pub(super) fn activate(&mut self, epoch: Epoch) {
        self.take_footing(epoch);
        let (body, pair) = (&mut *self.body, &self.pair);
        let directory = body.peers.directory();
        let address = |id| directory.get(&id).and_then(Member::ip);
        let peer = pair.protocol.agent().tenure.and_then(|tenure| address(tenure.peer.id));
        let own = address(pair.protocol.agent().id);
        // The process may have been stopped since the step began. Its enforcer's timer is set by now, so it may be later.
        let (now, posture) = (body.machine.now(), Posture { epoch, peer });
        if pair.protocol.agent().hold_end() <= now {
            return body.tenant.miss(posture);
        }
        body.tenant.activate(now, posture);
        if let (Some(own), Some(patience)) = (own, self.patience(epoch)) {
            let listens = timeout(patience, self.body.relay.served(own)).map(drop);
            self.debut = Awaited::Coming(Box::pin(listens));
        }
    }

    /// For how long clients are served elsewhere if the application of this tenure does not listen.
    fn patience(&self, epoch: Epoch) -> Option<Duration> {
        epoch.is_delegated().then_some(if self.may_overlap() { LINGER_MAX } else { DEBUT_MAX })
    }

    /// Has clients led here, or not any more.
    pub(super) fn show(&mut self) {
        if self.pair.protocol.agent().role != Role::Active {
            self.debut = Awaited::Nothing;
        }
        let is_early = matches!(self.debut, Awaited::Coming(_));
        let showing = self.pair.protocol.showing().filter(|showing| !(showing.has_begun() && is_early));
        self.pair.showing.send_if_modified(|shown| std::mem::replace(shown, showing) != showing);
    }
}
