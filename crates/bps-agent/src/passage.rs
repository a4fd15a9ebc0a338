//! The turnstile of a Pod as the loop of one seat sees it: at most one seat may act, and the others are fenced.
//!
//! The loops of all seats run on one thread. A loop asks before a step of the protocol, and is followed after it, with
//! no wait between: so no other seat takes a step at the same time. Decides nothing; see [`Turnstile`].

use std::sync::Arc;

use bps_protocol::{Agent, Order, SeatNumber, Turnstile};
use tokio::sync::watch;

/// The turnstile that the seats of a Pod share.
#[derive(Clone, Debug, Default)]
pub struct SharedTurnstile(Arc<watch::Sender<Turnstile>>);

/// One seat's way through it.
#[derive(Debug)]
pub struct Passage {
    seat: SeatNumber,
    turnstile: SharedTurnstile,
    news: watch::Receiver<Turnstile>,
    /// The last order to the protocol was [`Order::Fence`].
    is_fenced: bool,
}

impl SharedTurnstile {
    /// For the seat of this number, which has one.
    pub fn passage(&self, seat: SeatNumber) -> Passage {
        Passage { seat, turnstile: self.clone(), news: self.0.subscribe(), is_fenced: false }
    }

    /// The turnstile, as it changes.
    pub fn watch(&self) -> watch::Receiver<Turnstile> {
        self.0.subscribe()
    }
}

impl Passage {
    /// Whose it is.
    pub fn seat(&self) -> SeatNumber {
        self.seat
    }

    /// Whether this seat is inside.
    pub fn is_inside(&self) -> bool {
        self.turnstile.0.borrow().inside() == Some(self.seat)
    }

    /// Begins with another protocol, which has no order yet.
    pub fn begin(&mut self) {
        self.is_fenced = false;
    }

    /// The order that the protocol needs before its next step; `None`: it has it already. `is_wanted`: the Lease asks
    /// that this agent does not act.
    pub fn order(&mut self, is_wanted: bool) -> Option<Order> {
        let is_fenced = is_wanted || !self.turnstile.0.borrow().is_open_to(self.seat);
        if std::mem::replace(&mut self.is_fenced, is_fenced) == is_fenced {
            return None;
        }
        Some(if is_fenced { Order::Fence } else { Order::Unfence })
    }

    /// Follows the protocol after a step, see [`Turnstile::follow`].
    pub fn follow(&mut self, agent: &Agent, is_empty: bool) {
        self.change(|turnstile, seat| turnstile.follow(seat, agent, is_empty));
    }

    /// Leaves with the end of its protocol, which takes no further step; see [`Turnstile::leave`].
    pub fn leave(&mut self) {
        self.change(Turnstile::leave);
    }

    fn change(&mut self, change: impl FnOnce(&mut Turnstile, SeatNumber)) {
        let Self { seat, turnstile, news, .. } = self;
        let is_news = turnstile.0.send_if_modified(|turnstile| {
            let before = *turnstile;
            change(turnstile, *seat);
            before != *turnstile
        });
        if is_news {
            // For the other seats.
            news.mark_unchanged();
        }
    }

    /// Waits until another seat has gone in or come out. May be dropped and called again.
    pub async fn changed(&mut self) {
        if self.news.changed().await.is_err() {
            unreachable!("it holds the sender itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use bps_protocol::{AgentId, Incarnation, Role};
    use futures::FutureExt as _;

    use super::*;

    fn agent(role: Role) -> Agent {
        Agent { role, ..Agent::new(AgentId(1), Incarnation(1)) }
    }

    #[test]
    fn a_seat_is_fenced_while_another_one_is_inside_or_its_lease_asks_for_it() {
        let turnstile = SharedTurnstile::default();
        let [mut one, mut two] = [0, 1].map(|seat| turnstile.passage(SeatNumber(seat)));
        assert_eq!((one.order(false), two.order(false)), (None, None));

        one.follow(&agent(Role::Active), true);
        assert_eq!((one.order(false), two.order(false)), (None, Some(Order::Fence)));
        assert_eq!((two.changed().now_or_never(), one.changed().now_or_never()), (Some(()), None));
        assert_eq!(two.order(true), None, "it is fenced already");

        one.follow(&agent(Role::Standby), true);
        assert_eq!(two.changed().now_or_never(), Some(()));
        assert_eq!(two.order(true), None, "its Lease asks for it");
        assert_eq!((two.order(false), one.order(true)), (Some(Order::Unfence), Some(Order::Fence)));
    }

    #[test]
    fn a_seat_that_forgets_its_lease_lets_the_others_in() {
        let turnstile = SharedTurnstile::default();
        let [mut one, mut two] = [0, 1].map(|seat| turnstile.passage(SeatNumber(seat)));
        one.follow(&agent(Role::Active), false);
        assert_eq!((two.order(false), two.changed().now_or_never()), (Some(Order::Fence), Some(())));
        one.leave();
        assert_eq!((one.changed().now_or_never(), two.changed().now_or_never()), (None, Some(())));
        assert_eq!((two.order(false), turnstile.watch().borrow().inside()), (Some(Order::Unfence), None));
    }

    #[test]
    fn a_protocol_that_begins_has_no_order() {
        let mut passage = SharedTurnstile::default().passage(SeatNumber(0));
        assert_eq!((passage.order(true), passage.order(true)), (Some(Order::Fence), None));
        passage.begin();
        assert_eq!(passage.order(true), Some(Order::Fence));
    }
}
