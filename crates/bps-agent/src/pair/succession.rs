//! Decides to which Pod clients are led while the role passes from one to the other.
//!
//! Pure, but for the futures that it awaits. Never decides which agent may act.

use std::fmt;
use std::time::Duration;

use bps_protocol::{
    Agent, AgentId, BootTime, Epoch, Event, Message, Moment, Order, PromiseRequest, Protocol, Role, Showing,
};
use bps_wire::lease::Directory;
use futures::future::BoxFuture;

use crate::relay::aim::Aim;
use crate::tenant::LINGER_MAX;

/// How long an application that took over from another agent is waited for before clients are led to it. 1 s:
/// that agent relays for [`crate::relay::LINGER`], the other half of which nodes may need to follow.
const DEBUT_MAX: Duration = Duration::from_secs(1);

/// The events that the loop awaits of both Pods.
#[derive(Debug, Default)]
pub(super) struct Succession {
    /// The agent that asked for a promise last, and the epoch that it acts with.
    asker: Option<(Epoch, AgentId)>,
    /// Ends when the successor of an application that goes on serves.
    successor: Awaited,
    /// Ends when the own application listens, before its address is shown.
    debut: Awaited,
}

/// An event that was awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasCome {
    /// The successor serves.
    Successor,
    /// The own application listens, or has had its time to.
    Debut,
}

/// An event that is awaited once.
#[derive(Default)]
enum Awaited {
    /// No event is awaited.
    #[default]
    Nothing,
    /// The future ends with the event.
    Coming(BoxFuture<'static, ()>),
    /// The event has come.
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
    /// Waits for the event, which is reported once. May be dropped and called again.
    async fn come(&mut self) {
        match self {
            Self::Coming(coming) => coming.await,
            Self::Nothing | Self::Come => std::future::pending().await,
        }
        *self = Self::Come;
    }
}

impl Succession {
    /// Waits for the next event; each is reported once. May be dropped and called again.
    pub(super) async fn come(&mut self) -> HasCome {
        let Self { successor, debut, .. } = self;
        tokio::select! {
            // Both may come at once, and the order must not depend on chance.
            biased;
            () = successor.come() => HasCome::Successor,
            () = debut.come() => HasCome::Debut,
        }
    }

    /// Notes a message of another agent.
    pub(super) fn heard(&mut self, from: AgentId, message: &Message) {
        if let Message::PromiseRequest(PromiseRequest { epoch, .. }) = message {
            self.asker = self.asker.max(Some((*epoch, from)));
        }
    }

    /// The Pods to relay to and from, as far as this agent knows.
    pub(super) fn aim(&self, agent: &Agent, directory: &Directory, at: &Moment<'_>) -> Aim {
        Aim::of((agent, self.asker), directory, (at.now, at.timing.watch))
    }

    /// Whether to find a successor: an application goes on until its successor serves, and none is watched
    /// yet.
    pub(super) fn seeks_successor(&mut self, is_lingering: bool) -> bool {
        if !is_lingering {
            self.successor = Awaited::Nothing;
        }
        is_lingering && matches!(self.successor, Awaited::Nothing)
    }

    /// Awaits a successor; the future ends when it serves.
    pub(super) fn await_successor(&mut self, serves: BoxFuture<'static, ()>) {
        self.successor = Awaited::Coming(serves);
    }

    /// Awaits the own application; the future ends when it listens or has had its time to.
    pub(super) fn await_debut(&mut self, listens: BoxFuture<'static, ()>) {
        self.debut = Awaited::Coming(listens);
    }

    /// The address to show clients: the one that the protocol wants, unless the application of the tenure
    /// does not listen yet.
    pub(super) fn shown(&mut self, role: Role, wanted: Option<Showing>) -> Option<Showing> {
        if role != Role::Active {
            self.debut = Awaited::Nothing;
        }
        let is_early = matches!(self.debut, Awaited::Coming(_));
        wanted.filter(|showing| !(showing.has_begun() && is_early))
    }
}

/// How long the other Pod serves clients if the application of this tenure does not listen; `None`: it does
/// not.
pub(super) fn patience_for_debut(epoch: Epoch, may_overlap: bool) -> Option<Duration> {
    epoch.is_delegated().then_some(if may_overlap { LINGER_MAX } else { DEBUT_MAX })
}

/// Whether the event is planned, so that there is time, and leads to a handover at once if the application
/// ends with it.
pub(super) fn hands_over_as_planned(protocol: &Protocol, now: BootTime, event: Event) -> bool {
    if !matches!(event, Event::Ordered(Order::SwitchOver | Order::Fence | Order::Leave)) {
        return false;
    }
    let mut trial = protocol.clone();
    drop(trial.step(now, event));
    if trial.agent().role != Role::Stopping {
        return false;
    }
    drop(trial.step(now, Event::ApplicationEnded));
    trial.agent().role == Role::HandedOver
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use bps_protocol::{Hold, Incarnation, Lease, Peer, Ping, Seen, Tenure, Timing, Version};
    use futures::FutureExt as _;

    use super::*;

    const OWN: AgentId = AgentId(1);
    const OTHER: AgentId = AgentId(2);
    const NOW: BootTime = BootTime(1_000_000_000);

    fn first(term: u32) -> Epoch {
        Epoch { term, sequence: 0 }
    }

    /// An agent that acts, and whose peer lives or not.
    fn acting(has_peer: bool) -> Protocol {
        let hold_end = NOW + Duration::from_secs(60);
        let peer = Peer { id: OTHER, hold_end, ping: None, witness: None };
        let tenure = Tenure { api_hold_end: hold_end, grace_end: hold_end, peer, joining: None };
        let (holder, members, hold) = (Some(OWN), [OWN, OTHER], Hold::Api);
        let lease = Lease { epoch: first(1), holder, members, pending: None, hold, writes: 1 };
        let mut protocol = Protocol::new(
            Agent {
                role: Role::Active,
                epoch: first(1),
                tenure: Some(tenure),
                seen: Some(Seen { lease, version: Version(1), since: NOW }),
                ..Agent::new(OWN, Incarnation(1))
            },
            Timing::default(),
        );
        if has_peer {
            let ping = Ping { incarnation: Incarnation(2), sent: NOW };
            protocol.step(NOW, Event::Received { from: OTHER, message: Message::Ping(ping) });
        }
        protocol
    }

    #[test]
    fn only_an_order_to_an_active_whose_peer_lives_is_a_planned_handover() {
        let is_planned = |has_peer, event| hands_over_as_planned(&acting(has_peer), NOW, event);
        for order in [Order::SwitchOver, Order::Fence, Order::Leave] {
            assert!(is_planned(true, Event::Ordered(order)), "{order:?}");
            assert!(!is_planned(false, Event::Ordered(order)), "{order:?} without a peer");
        }
        for event in [Event::Timer, Event::ApplicationEnded, Event::Ordered(Order::GiveUp)] {
            assert!(!is_planned(true, event), "{event:?}");
        }
    }

    #[test]
    fn only_an_application_that_was_handed_the_role_is_waited_for_and_longer_if_another_one_goes_on() {
        let delegated = Epoch { sequence: 1, ..first(1) };
        let patience = |epoch| [false, true].map(|may_overlap| patience_for_debut(epoch, may_overlap));
        assert_eq!(patience(first(1)), [None, None]);
        assert_eq!(patience(delegated), [Some(DEBUT_MAX), Some(LINGER_MAX)]);
    }

    #[test]
    fn a_successor_is_sought_until_one_is_watched_and_only_while_an_application_goes_on() {
        let mut succession = Succession::default();
        assert!(!succession.seeks_successor(false));
        assert!(succession.seeks_successor(true) && succession.seeks_successor(true));
        succession.await_successor(pending().boxed());
        assert!(!succession.seeks_successor(true));
        assert!(!succession.seeks_successor(false), "the application has ended");
        assert!(succession.seeks_successor(true), "of another tenure");
    }

    #[test]
    fn each_event_is_reported_once() {
        let mut succession = Succession::default();
        assert_eq!(succession.come().now_or_never(), None);
        succession.await_debut(ready(()).boxed());
        succession.await_successor(ready(()).boxed());
        let told = [(); 3].map(|()| succession.come().now_or_never());
        assert_eq!(told, [Some(HasCome::Successor), Some(HasCome::Debut), None]);
        assert!(!succession.seeks_successor(true), "it has come");
    }

    #[test]
    fn a_tenure_is_shown_once_its_application_listens_and_what_comes_before_it_at_once() {
        let begun = Some(Showing { epoch: first(2), follows: None });
        let claiming = Some(Showing { epoch: first(2), follows: Some(first(1)) });
        let mut succession = Succession::default();
        assert_eq!(succession.shown(Role::Active, begun), begun, "nothing is awaited");

        succession.await_debut(ready(()).boxed());
        assert_eq!([begun, claiming].map(|wanted| succession.shown(Role::Active, wanted)), [None, claiming]);
        assert_eq!(succession.come().now_or_never(), Some(HasCome::Debut));
        assert_eq!(succession.shown(Role::Active, begun), begun);

        succession.await_debut(pending().boxed());
        assert_eq!(succession.shown(Role::Stopping, None), None);
        assert_eq!(succession.shown(Role::Active, begun), begun, "the tenure that waited is over");
    }

    #[test]
    fn clients_are_led_to_the_agent_that_asked_with_the_highest_epoch() {
        let address = |id: u8| format!("10.0.0.{id}:20001").parse().unwrap();
        let member = |id: u8| bps_wire::lease::Member { pod: format!("web-{id}"), address: address(id) };
        let directory = [1, 2, 3].map(|id| (AgentId(id.into()), member(id))).into();
        let timing = Timing::default();
        let agent = Agent { promise_end: NOW + timing.watch, ..Agent::new(OWN, Incarnation(1)) };
        let mut succession = Succession::default();
        let mut aimed = |from, message| {
            succession.heard(from, &message);
            let aim = succession.aim(&agent, &directory, &Moment { now: NOW, timing: &timing });
            aim.active.map(|ip| ip.to_string())
        };
        let asks = |term| Message::PromiseRequest(PromiseRequest { epoch: first(term), sent: NOW });
        let ping = Message::Ping(Ping { incarnation: Incarnation(3), sent: NOW });
        assert_eq!(aimed(OTHER, ping), None);
        assert_eq!(aimed(OTHER, asks(2)).as_deref(), Some("10.0.0.2"));
        assert_eq!(aimed(AgentId(3), asks(1)).as_deref(), Some("10.0.0.2"));
        assert_eq!(aimed(AgentId(3), asks(3)).as_deref(), Some("10.0.0.3"));
    }
}
