//! Seats: the places of one Pod that is the standby of several actives.
//!
//! A *seat* is an ordinary agent of an ordinary pair: its own Lease, peer, state directory and [`Agent`]. The Pod runs
//! one application, so at most one of its seats may act. The [`Turnstile`] sees to that. All other seats are fenced
//! meanwhile ([`Order::Fence`](crate::Order::Fence)): they promise, and receive state, but neither claim nor start
//! anything. A fence only leaves out steps that the rules permit, so each pair keeps its invariants.
//!
//! Pure. Never decides which of two seats that could act goes first: that is the one that takes its step first.

use crate::{Agent, Purpose};

/// One of the seats of a Pod. Its state directory has this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatNumber(pub u8);

/// Lets at most one seat of a Pod act.
///
/// It is memory of one process. After a restart it is open, because nothing of an application outlives its agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Turnstile {
    inside: Option<SeatNumber>,
}

impl Turnstile {
    /// Whether this seat may claim its Lease, accept a handover and act. A seat for which this is false must be fenced
    /// before it takes its next step.
    pub fn is_open_to(&self, seat: SeatNumber) -> bool {
        self.inside.is_none_or(|inside| inside == seat)
    }

    /// The seat that may act, or could come to act by a write that is under way; `None`: every seat may go in.
    pub const fn inside(&self) -> Option<SeatNumber> {
        self.inside
    }

    /// Follows a seat after each of its steps, before any other seat takes one. `is_empty`: nothing of its application
    /// is left, and no hook runs.
    ///
    /// A seat goes in with the send of its claim, not with the answer, which may come at any time. It comes out once it
    /// can act by nothing that it did. A seat that was fenced changes nothing: what it claimed before is released
    /// without a start.
    pub fn follow(&mut self, seat: SeatNumber, agent: &Agent, is_empty: bool) {
        if !self.is_open_to(seat) {
            return;
        }
        let stays = self.inside.is_some() && !is_empty;
        self.inside = (is_committed(agent) || stays).then_some(seat);
    }

    /// Lets a seat out that forgets its Lease, of whose application nothing is left.
    ///
    /// It takes no further step by which it could come out. A claim of it may be unanswered, if the Lease was deleted.
    /// Should that claim be applied all the same, no agent is left that would act by it.
    pub fn leave(&mut self, seat: SeatNumber) {
        self.inside = self.inside.filter(|inside| *inside != seat);
    }
}

/// Whether an agent acts, has not passed its role on yet, or may come to act by a claim that is under way.
fn is_committed(agent: &Agent) -> bool {
    !agent.role.is_standby()
        || agent.unresolved.is_some_and(|unresolved| unresolved.purpose == Purpose::Claim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentId, BootTime, Epoch, Hold, Incarnation, Lease, Role, Unresolved, Version, Write};

    const ONE: SeatNumber = SeatNumber(0);
    const TWO: SeatNumber = SeatNumber(1);

    fn agent(role: Role) -> Agent {
        Agent { role, ..Agent::new(AgentId(1), Incarnation(1)) }
    }

    fn writing(purpose: Purpose) -> Agent {
        let lease = Lease {
            epoch: Epoch::default(),
            holder: None,
            members: [1, 2].map(AgentId),
            pending: None,
            hold: Hold::Api,
            writes: 1,
        };
        let write = Write { number: 1, base: Version(1), lease };
        Agent { unresolved: Some(Unresolved { write, purpose, sent: BootTime(1) }), ..agent(Role::Standby) }
    }

    /// Which seats it is open to after the first one has been this.
    fn open_to(agent: &Agent, is_empty: bool) -> [bool; 2] {
        let mut turnstile = Turnstile::default();
        turnstile.follow(ONE, agent, is_empty);
        [ONE, TWO].map(|seat| turnstile.is_open_to(seat))
    }

    #[test]
    fn a_seat_goes_in_with_its_claim_or_its_tenure_and_with_nothing_else() {
        let goes_in =
            [agent(Role::Active), agent(Role::Stopping), agent(Role::Ended), writing(Purpose::Claim)];
        for agent in goes_in {
            assert_eq!(open_to(&agent, true), [true, false], "{agent:?}");
        }
        let stays_out =
            [agent(Role::Standby), agent(Role::Lapsed), agent(Role::HandedOver), writing(Purpose::Release)];
        for agent in stays_out {
            assert_eq!(open_to(&agent, true), [true, true], "{agent:?}");
            assert_eq!(
                open_to(&agent, false),
                [true, true],
                "what runs in a standby is not inside: {agent:?}"
            );
        }
    }

    #[test]
    fn a_seat_comes_out_once_it_can_act_by_nothing_and_nothing_of_its_application_is_left() {
        let mut turnstile = Turnstile::default();
        let inside = [
            (agent(Role::Active), false),
            (agent(Role::HandedOver), false),
            (writing(Purpose::Claim), true),
            (writing(Purpose::Release), true),
        ];
        let told = inside.map(|(agent, is_empty)| {
            turnstile.follow(ONE, &agent, is_empty);
            turnstile.inside()
        });
        assert_eq!(told, [Some(ONE), Some(ONE), Some(ONE), None]);
    }

    #[test]
    fn a_seat_that_forgets_its_lease_leaves_and_lets_no_other_one_out() {
        let mut turnstile = Turnstile::default();
        turnstile.follow(ONE, &writing(Purpose::Claim), true);
        turnstile.leave(TWO);
        assert_eq!(turnstile.inside(), Some(ONE));
        turnstile.leave(ONE);
        assert_eq!(turnstile.inside(), None);
    }

    #[test]
    fn a_seat_that_was_fenced_pushes_no_other_one_out() {
        let mut turnstile = Turnstile::default();
        turnstile.follow(ONE, &agent(Role::Active), false);
        for role in [Role::Ended, Role::Standby] {
            turnstile.follow(TWO, &agent(role), true);
            assert_eq!(turnstile.inside(), Some(ONE));
        }
    }
}
