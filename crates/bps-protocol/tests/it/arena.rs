//! The size of one search: times, faults, number of packets and epochs, and the rule that is tampered with.

use std::time::Duration;

use bps_protocol::Timing;

use crate::mutations::Mutation;

/// How far two clocks can disagree over any interval, in ticks: one of phase, one of drift.
pub(crate) const SKEW: u64 = 2;
/// The grace of an arena without operator.
const NO_BOUND: u64 = 1 << 40;

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says what may happen, and any of them together")]
pub(crate) struct Arena {
    /// One tick is a nanosecond.
    pub(crate) timing: Timing,
    /// The clock of each agent and of the operator; those on one clock do not drift apart.
    pub(crate) clocks: [usize; 4],
    pub(crate) most_terms: u32,
    pub(crate) most_delegations: u32,
    /// Packets in flight at most.
    pub(crate) packets: usize,
    pub(crate) faults: u8,
    pub(crate) may_restart: bool,
    pub(crate) may_crash: bool,
    pub(crate) may_switch_over: bool,
    /// An application that is to end may take as long as its hold lasts, also where stopping takes no time.
    pub(crate) stops_slowly: bool,
    pub(crate) may_die: bool,
    /// An agent may learn of the end of its application later than those who are connected to it.
    pub(crate) may_notice_late: bool,
    pub(crate) has_operator: bool,
    pub(crate) has_api: bool,
    pub(crate) has_peer_mode: bool,
    pub(crate) has_certificates: bool,
    pub(crate) starts_released: bool,
    /// The place beside the active is vacant at first.
    pub(crate) starts_alone: bool,
    /// The operator may vacate a place, and change its mind when S2 comes.
    pub(crate) may_vacate: bool,
    /// The operator is told for certain that members have ended for ever.
    pub(crate) has_evidence: bool,
    pub(crate) must_converge: bool,
    pub(crate) mutation: Option<Mutation>,
}

pub(crate) const fn ticks(ticks: u64) -> Duration {
    Duration::from_nanos(ticks)
}

impl Arena {
    /// A pair on one clock: the tight case is H = T.
    pub(crate) fn pair() -> Self {
        let timing = Timing {
            hold: ticks(2),
            watch: ticks(2),
            api_hold: ticks(2),
            api_watch: ticks(2),
            grace: ticks(NO_BOUND),
            operator_wait: ticks(0),
            lone_hold: ticks(2),
            lone_wait: ticks(0),
            stop: ticks(0),
            ..Timing::default()
        };
        Self {
            timing,
            clocks: [0; 4],
            most_terms: 3,
            most_delegations: 2,
            packets: 2,
            faults: 2,
            may_restart: true,
            may_crash: true,
            may_switch_over: false,
            stops_slowly: false,
            may_die: false,
            may_notice_late: false,
            has_operator: false,
            has_api: true,
            has_peer_mode: true,
            has_certificates: true,
            starts_released: false,
            starts_alone: false,
            may_vacate: false,
            has_evidence: false,
            must_converge: false,
            mutation: None,
        }
    }

    /// A pair whose clocks drift: the tight case is T = H + SKEW.
    pub(crate) fn drifting_pair() -> Self {
        Self { clocks: [0, 1, 2, 3], ..Self::pair() }.with(|timing| {
            (timing.watch, timing.api_watch) = (ticks(2 + SKEW), ticks(2 + SKEW));
        })
    }

    /// What passes between peers is faster than what passes through the API server.
    pub(crate) fn with_fast_peers(self) -> Self {
        self.with(|timing| {
            timing.api_hold += ticks(1);
            timing.api_watch += ticks(1);
        })
    }

    /// With an operator that replaces a member by S2, on one clock: the tight case is W = G.
    pub(crate) fn trio() -> Self {
        Self { has_operator: true, faults: 1, ..Self::pair() }.with(|timing| {
            (timing.grace, timing.operator_wait) = (ticks(3), ticks(3));
        })
    }

    /// The same with drift between A and the rest: the tight case is W = G + SKEW.
    pub(crate) fn drifting_trio() -> Self {
        Self { clocks: [0, 1, 1, 1], faults: 0, ..Self::trio() }.with(|timing| {
            (timing.watch, timing.api_watch) = (ticks(2 + SKEW), ticks(2 + SKEW));
            timing.operator_wait = ticks(3 + SKEW);
        })
    }

    /// An active without a peer, and an operator that brings in S2, on one clock: the tight case is that both times of a lone
    /// one are equal.
    pub(crate) fn lone() -> Self {
        Self { starts_alone: true, ..Self::trio() }.with(|timing| {
            (timing.lone_hold, timing.lone_wait) = (ticks(3), ticks(3));
        })
    }

    /// The same with drift between A and the rest.
    pub(crate) fn drifting_lone() -> Self {
        Self { starts_alone: true, ..Self::drifting_trio() }.with(|timing| {
            (timing.lone_hold, timing.lone_wait) = (ticks(3), ticks(3 + SKEW));
        })
    }

    /// The operator may also vacate a place; the tight case is that both times of a lone one are equal, and as long as W.
    pub(crate) fn vacating(self) -> Self {
        let wait = self.timing.operator_wait;
        Self { may_vacate: true, ..self }.with(|timing| {
            (timing.lone_hold, timing.lone_wait) = (timing.grace, wait);
        })
    }

    /// Members may die for ever, and the operator is told so.
    pub(crate) fn with_evidence(self) -> Self {
        Self { may_die: true, has_evidence: true, ..self }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Timing)) -> Self {
        change(&mut self.timing);
        self
    }

    pub(crate) fn without_certificates(self) -> Self {
        Self { has_certificates: false, ..self }
    }

    pub(crate) fn without_peer_mode(self) -> Self {
        Self { has_peer_mode: false, ..self }
    }

    pub(crate) fn plain(self) -> Self {
        self.without_certificates().without_peer_mode()
    }

    pub(crate) fn faults(self, faults: u8) -> Self {
        Self { faults, ..self }
    }

    pub(crate) fn packets(self, packets: usize) -> Self {
        Self { packets, ..self }
    }

    pub(crate) fn mutated(self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..self }
    }

    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whether the grace is a bound at all.
    pub(crate) fn has_grace(&self) -> bool {
        self.timing.grace < ticks(NO_BOUND)
    }

    pub(crate) fn keeps_late_answers(&self) -> bool {
        self.has(Mutation::LateAnswerCounts)
    }
}
