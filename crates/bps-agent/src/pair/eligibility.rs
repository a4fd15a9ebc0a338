//! Decides whether this agent may act with its state directory: before a tenure, at its beginning and during
//! it.
//!
//! Pure. `replica` asks the replication and the Lease, and carries out what follows. Without replication an
//! agent always may.

use std::time::Duration;

use bps_protocol::{AgentId, Epoch, Order, Write};
use tokio::time::Instant;

use super::state_claim::StateClaim;
use crate::store::Annotations;

/// How long a tenure waits for a batch that is being carried out before it is given up, so that the other Pod
/// may act. 5 s: a disk that takes longer does not serve an application either.
const HELD_BACK_MAX: Duration = Duration::from_secs(5);

/// The right of this agent to act with its state directory.
#[derive(Debug, Default)]
pub(super) struct Eligibility {
    /// The last order to the protocol was [`Order::Withhold`].
    is_withheld: bool,
    /// The agent could take over, by the last version of the Lease.
    is_able: bool,
    footing: Footing,
    claim: StateClaim,
}

/// The state directory in a tenure.
#[derive(Debug, Default)]
struct Footing {
    /// The tenure could act with it when it began, and no batch was left half done since.
    is_firm: bool,
    /// Until then the application waits for a batch that is being carried out; `None`: it is not held back.
    held_until: Option<Instant>,
}

/// The state directory at the beginning of a tenure.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateFound {
    /// No batch is being received.
    pub(super) is_shut: bool,
    /// The tenure may act with it.
    pub(super) may_act: bool,
}

/// What a version of the Lease means for the seat.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeatFound {
    /// It may take over by it.
    pub(super) may_take: bool,
    /// The seat is kept as long as the Lease calls its directory in sync.
    pub(super) is_kept: bool,
}

/// Before a tenure.
impl Eligibility {
    /// The order that the protocol needs before its next step; `None`: it has it already. The own directory
    /// may have got another number since the Lease was read, so the loop asks before each step.
    pub(super) fn permit(&mut self, may_claim: bool) -> Option<Order> {
        if may_claim != self.is_withheld {
            return None;
        }
        self.is_withheld = !may_claim;
        Some(if may_claim { Order::Permit } else { Order::Withhold })
    }

    /// Notes the members of a version of the Lease, and whether the agent `own` may take over by it.
    pub(super) fn judge(&mut self, own: AgentId, members: [AgentId; 2], seat: SeatFound) {
        let SeatFound { may_take, is_kept } = seat;
        // A rollout that waits for readiness leaves the other Pod alone until this one could take its place.
        // An agent that lacks something and has no peer to get it from counts as able: the rollout may wait
        // for the Pod that has it.
        let is_by_itself = members.contains(&AgentId::NOBODY);
        let is_able = members.contains(&own) && (may_take || is_by_itself);
        // A Lease that does not name the Pod any more asks nothing of it. If the Pod were unready because of the copy
        // that it keeps, the operator would not ask for it again.
        self.is_able = is_able || is_kept && !members.contains(&own);
    }

    /// Whether this agent could take over, by the last version that was judged.
    pub(super) fn is_able(&self) -> bool {
        self.is_able
    }
}

/// The beginning of a tenure.
impl Eligibility {
    /// Begins a tenure. Returns whether its application is held back until [`Eligibility::let_go`].
    pub(super) fn begin(&mut self, now: Instant, found: StateFound) -> bool {
        let StateFound { is_shut, may_act } = found;
        let is_held_back = !(is_shut && may_act);
        if !is_held_back {
            self.claim.finalize();
        }
        self.footing = Footing { is_firm: may_act, held_until: is_held_back.then(|| now + HELD_BACK_MAX) };
        is_held_back
    }

    /// The moment until which the application is held back; `None`: it is not.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.footing.held_until
    }

    /// Notes that no batch is being received any more. Returns whether the tenure may act with the directory.
    pub(super) fn shut(&mut self, is_usable: bool) -> bool {
        self.footing.is_firm &= is_usable;
        self.footing.is_firm
    }

    /// Notes that the last batch took too long: the tenure must not act.
    pub(super) fn be_overdue(&mut self) {
        self.footing.is_firm = false;
    }

    /// Ends the wait for the last batch.
    pub(super) fn let_go(&mut self) {
        self.footing.held_until = None;
    }

    /// Confirms the claim of a tenure that was held back, if it may act and still does. Returns whether it may.
    pub(super) fn confirm(&mut self, is_acting: bool) -> bool {
        if self.footing.is_firm && is_acting {
            self.claim.finalize();
        }
        self.footing.is_firm
    }

    /// Whether the directory has the state of the tenure, and all of it.
    pub(super) fn is_firm(&self) -> bool {
        self.footing.is_firm
    }

    /// Ends the tenure. Keeps its claim: the release may still have to take that back.
    pub(super) fn stand_by(&mut self) {
        self.footing = Footing::default();
    }
}

/// Annotations of a tenure's writes.
impl Eligibility {
    /// Whether this write is a copy of the last claim.
    pub(super) fn has_claimed(&self, write: &Write) -> bool {
        self.claim.is_of(write)
    }

    /// Notes a new claim; `base` is the epoch in the Lease.
    pub(super) fn claim(&mut self, claim: StateClaim, base: Option<Epoch>) {
        self.claim = claim.after(std::mem::take(&mut self.claim), base);
    }

    /// Annotations of this write about the directories.
    pub(super) fn says_in(&self, write: &Write) -> Annotations {
        self.claim.says_in(write)
    }
}

#[cfg(test)]
mod tests {
    use bps_protocol::{Hold, Lease, Version};
    use bps_wire::level::{DirectoryId, Level};

    use super::*;
    use crate::replicate::directory::StateDirectory;
    use crate::replicate::gate::{PromoteWhen, may_take};
    use crate::replicate::notes::level_annotations;

    const OWN: AgentId = AgentId(7);
    const OTHER: AgentId = AgentId(8);
    const READY: StateFound = StateFound { is_shut: true, may_act: true };

    fn write(number: u64, holder: Option<AgentId>) -> Write {
        let epoch = Epoch { term: 4, sequence: 0 };
        let lease = Lease { epoch, holder, members: [OWN, OTHER], pending: None, hold: Hold::Api, writes: 3 };
        Write { number, base: Version(9), lease }
    }

    /// An agent whose claim leaves the other directory out.
    fn claiming() -> Eligibility {
        let [own, other] = [1, 2].map(DirectoryId);
        let says = level_annotations(&[own].into(), [Some(OWN), None]);
        let mut eligibility = Eligibility::default();
        let before = Level::Only([own, other].into());
        eligibility.claim(StateClaim::new(&write(5, Some(OWN)), &before, Some(says)), None);
        eligibility
    }

    fn is_taken_back(eligibility: &Eligibility) -> bool {
        !eligibility.says_in(&write(6, None)).is_empty()
    }

    #[test]
    fn a_directory_that_gets_another_number_may_not_take_over_until_the_lease_calls_it_level() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(folder.path()).unwrap();
        let mut eligibility = Eligibility::default();
        let mut told =
            |level: &Level| eligibility.permit(may_take(PromoteWhen::InSync, level, directory.id()));
        let of_both = Level::Only([directory.id()].into());
        assert_eq!(told(&of_both), None);
        let renewed = directory.renew().unwrap();
        assert_eq!(told(&of_both), Some(Order::Withhold));
        assert_eq!(told(&of_both), None, "once");
        assert_eq!(told(&Level::Only([renewed].into())), Some(Order::Permit));
    }

    #[test]
    fn a_member_is_able_if_it_may_take_over_or_has_no_peer_to_wait_for() {
        let judged = |members, may_take, is_kept| {
            let mut eligibility = Eligibility::default();
            eligibility.judge(OWN, members, SeatFound { may_take, is_kept });
            eligibility.is_able()
        };
        let is_able = |members, may_take| judged(members, may_take, false);
        assert!(is_able([OWN, OTHER], true) && !is_able([OWN, OTHER], false));
        assert!(is_able([OWN, AgentId::NOBODY], false));
        assert!(!is_able([OTHER, AgentId::NOBODY], true), "it is no member");
        assert!(judged([OTHER, AgentId::NOBODY], false, true), "a copy that is kept makes no Pod unready");
        assert!(!judged([OWN, OTHER], false, true), "it is a member, and lacks something");
    }

    #[test]
    fn a_tenure_begins_at_once_only_with_state_that_is_complete() {
        let now = Instant::now();
        let begun = |found| {
            let mut eligibility = claiming();
            let is_held_back = eligibility.begin(now, found);
            assert_eq!(eligibility.held_until(), is_held_back.then(|| now + HELD_BACK_MAX));
            [is_held_back, eligibility.is_firm(), is_taken_back(&eligibility)]
        };
        assert_eq!(begun(READY), [false, true, false]);
        assert_eq!(begun(StateFound { is_shut: false, ..READY }), [true, true, true]);
        assert_eq!(begun(StateFound { may_act: false, ..READY }), [true, false, true]);
    }

    #[test]
    fn a_tenure_that_was_held_back_acts_if_it_still_may_and_else_its_claim_can_be_taken_back() {
        let held_back = || {
            let mut eligibility = claiming();
            eligibility.begin(Instant::now(), StateFound { is_shut: false, ..READY });
            eligibility
        };
        let end = |mut eligibility: Eligibility, is_acting| {
            eligibility.let_go();
            assert_eq!(eligibility.held_until(), None);
            let may_act = eligibility.confirm(is_acting);
            (may_act, is_taken_back(&eligibility))
        };
        let shut = |is_usable| {
            let mut eligibility = held_back();
            assert_eq!(eligibility.shut(is_usable), is_usable);
            eligibility
        };
        assert_eq!(end(shut(true), true), (true, false));
        assert_eq!(end(shut(true), false), (true, true), "its hold was over");
        assert_eq!(end(shut(false), true), (false, true), "a batch was left half done");

        let mut overdue = held_back();
        overdue.be_overdue();
        assert_eq!(end(overdue, true), (false, true));

        let mut over = held_back();
        over.stand_by();
        assert_eq!((over.is_firm(), over.held_until(), is_taken_back(&over)), (false, None, true));
    }
}
