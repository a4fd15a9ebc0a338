//! Decides whether a set of times is safe and live: the inequalities T1 to T8 of the protocol.

use std::time::Duration;

/// The times of a group; every agent and the operator use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// H: how long a promise lets the active act, from the send of the request.
    pub hold: Duration,
    /// T: how long a promise binds the standby that gave it.
    pub watch: Duration,
    /// Ha: how long an answered write lets the active act, from the send of the request.
    pub api_hold: Duration,
    /// Ta: how long a standby watches an unchanged Lease before it claims it.
    pub api_watch: Duration,
    /// G: how long promises alone suffice since the last answered write.
    pub grace: Duration,
    /// W: how long the operator sees no write before it replaces a member itself.
    pub operator_wait: Duration,
    /// How long an answered write lets an active act that has no peer, from the send of the request.
    pub lone_hold: Duration,
    /// How long the operator sees no write of an active without a peer before it replaces it itself.
    pub lone_wait: Duration,
    /// X: how long stopping the application takes at most, `SIGKILL` and an empty process tree included.
    pub stop: Duration,
    /// eps: how late the supervisor may act on a timer.
    pub lateness: Duration,
    /// rho: relative drift between two clocks, in millionths.
    pub drift_ppm: u32,
    /// How often a standby pings at least.
    pub ping_period: Duration,
    /// How often the active asks for a promise.
    pub promise_period: Duration,
    /// How often the active renews while it does not live in Peer mode.
    pub renew_period: Duration,
    /// How often the active writes in Peer mode, where only its grace needs it.
    pub keep_alive_period: Duration,
    /// How long a write waits for its answer before it is repeated.
    pub request_timeout: Duration,
    /// How long a claim or a release waits for its answer before its second copy: meanwhile nothing acts.
    pub second_copy: Duration,
    /// From a send to a peer until its answer; a handover is repeated when none has come.
    pub round_trip: Duration,
    /// How long after a certificate no application is started, so that the kernel has ended what did not hold the lifeline.
    pub certificate_wait: Duration,
    /// How much of a peer hold is left when the active leaves Peer mode.
    pub peer_margin: Duration,
}

/// W is longer than G by this part of it, 1.7 %: more than clocks drift apart.
const DRIFT_OF_WAIT: u32 = 60;
/// How many times an active without a peer writes the Lease within the hold that each write gives. 6: an absence of the API
/// server may use up five of them.
const LONE_RENEWALS: u32 = 6;

/// After how many promises that did not come the active leaves Peer mode. 2: one may be lost.
const PROMISES_MISSED: u32 = 2;
/// The active leaves Peer mode in the first part of a hold of this many. 4: where the hold is long, more promises may be lost.
const PARTS_OF_HOLD: u32 = 4;
/// Shortest hold for which an API server that is slow for a moment has as long as a peer. 1,101 ms: the least that keeps the
/// inequalities with the default times.
const PLAIN_HOLD_MIN: Duration = Duration::from_millis(1_101);

/// A node loss is noticed after T = 2 s. Keep-alives each G/2 = 30 s are 2 writes a minute, and W = 61 s is how long a
/// member is not replaced while nobody writes. 1,000 ppm: oscillators of computers are within 100 ppm, and what a hypervisor tells of
/// their frequency within a few hundred; the clock is not slewed, see `bps_runtime::boot_clock`.
impl Default for Timing {
    fn default() -> Self {
        let milliseconds = Duration::from_millis;
        Self {
            hold: milliseconds(1_900),
            watch: milliseconds(2_000),
            api_hold: milliseconds(1_900),
            api_watch: milliseconds(2_000),
            grace: milliseconds(60_000),
            operator_wait: milliseconds(61_000),
            // Nobody but the operator can have anybody else act.
            lone_hold: milliseconds(60_000),
            lone_wait: milliseconds(61_000),
            stop: milliseconds(200),
            lateness: milliseconds(50),
            drift_ppm: 1_000,
            // A quarter of a promise's period more than one of them: each promise takes one along.
            ping_period: milliseconds(310),
            // What an idle pair costs is nearly all due to them.
            promise_period: milliseconds(250),
            renew_period: milliseconds(500),
            keep_alive_period: milliseconds(30_000),
            request_timeout: milliseconds(500),
            // Ten times what an API server takes that has nothing else to do.
            second_copy: milliseconds(100),
            round_trip: milliseconds(50),
            // Twice the 11 ms at most that the kernel was seen to take for all of a container.
            certificate_wait: milliseconds(20),
            peer_margin: milliseconds(1_350),
        }
    }
}

/// Which inequality a set of times breaks, and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// T1: a hold would outlast the promise or the restart wait that excludes it.
    #[error("T1: the hold is too long for the watch; write a watch of at least {least:?}")]
    Watch {
        /// Shortest safe T.
        least: Duration,
    },
    /// T1: a hold by an answered write would outlast the watch of the Lease that excludes it.
    #[error(
        "T1: the hold by a write is too long for the watch of the Lease; write a watch of the Lease of at least {least:?}"
    )]
    ApiWatch {
        /// Shortest safe Ta.
        least: Duration,
    },
    /// T2: the operator would replace a member while somebody acts.
    #[error("T2: the grace is too long for the operator's wait; write a wait of at least {least:?}")]
    OperatorWait {
        /// Shortest safe W.
        least: Duration,
    },
    /// T3: the application would have to be stopped as soon as it starts.
    #[error("T3: stopping takes as long as a hold; write a hold longer than {above:?}")]
    Stop {
        /// H must be longer.
        above: Duration,
    },
    /// T4: a delegated active would lose its hold before its first renewal.
    #[error("T4: a delegated hold ends before it can be renewed; write a hold longer than {above:?}")]
    Delegation {
        /// H must be longer.
        above: Duration,
    },
    /// T5: a hold would end before its renewal is answered.
    #[error("T5: a hold ends before its renewal is answered; write a hold longer than {above:?}")]
    Renewal {
        /// H must be longer.
        above: Duration,
    },
    /// T5: a grace that is not longer than a hold makes promises useless.
    #[error("T5: promises need a grace longer than the hold; write a grace longer than {above:?}")]
    Grace {
        /// G must be longer.
        above: Duration,
    },
    /// T6: Peer mode would run out of grace.
    #[error("T6: the grace ends before a keep-alive is answered; write a grace longer than {above:?}")]
    KeepAlive {
        /// G must be longer.
        above: Duration,
    },
    /// T7: the way out of Peer mode would come too late.
    #[error("T7: leaving Peer mode comes too late; write a peer margin of at least {least:?}")]
    PeerMargin {
        /// Shortest live margin.
        least: Duration,
    },
    /// T8: the operator would replace an active without a peer while it acts.
    #[error("T8: the hold of a lone active is too long for the wait; write a wait of at least {least:?}")]
    LoneWait {
        /// Shortest safe wait.
        least: Duration,
    },
    /// T8: a lone active would end before its renewal is answered.
    #[error(
        "T8: a lone active ends before its renewal is answered; write a hold of a lone one of at least {least:?}"
    )]
    LoneHold {
        /// Shortest live hold.
        least: Duration,
    },
    /// T7: the active would leave Peer mode between two promises.
    #[error("T7: Peer mode would be left between two promises; write a hold longer than {above:?}")]
    PeerHold {
        /// H must be longer.
        above: Duration,
    },
}

impl Timing {
    /// The default times with these for hold, watch and stop, and what depends on them.
    ///
    /// With a hold below 1,101 ms whatever passes between peers is faster in proportion, and only that: an active that its peer
    /// does not answer, and a standby that has promised nothing, have the default times for the API server.
    pub fn with(hold: Duration, watch: Duration, stop: Duration) -> Self {
        let default = Self::default();
        let of_peers = if hold < PLAIN_HOLD_MIN {
            let promise_period = hold / 8;
            Self {
                ping_period: promise_period * 5 / 4,
                promise_period,
                round_trip: hold / 20,
                request_timeout: hold / 3,
                ..default
            }
        } else {
            Self { api_hold: hold, api_watch: watch, ..default }
        };
        // As early as a lost promise or two can be told from a lost peer: what is left of the hold is the time that the API
        // server has for the write that leaves Peer mode.
        let silence = PROMISES_MISSED * of_peers.promise_period + of_peers.round_trip;
        let early = hold.saturating_sub(silence.max(hold / PARTS_OF_HOLD));
        // Stopping must remain possible while that write is under way, and a little later.
        let least = of_peers.request_timeout * 6 / 5 + stop;
        Self { hold, watch, stop, peer_margin: early.max(least), ..of_peers }
    }

    /// Times with which the loss of a node costs half a second. 450 ms: the shortest hold of which a tenth of a second of lateness
    /// leaves half.
    pub fn fast() -> Self {
        let [hold, watch, stop] = [450, 501, 50].map(Duration::from_millis);
        Self::with(hold, watch, stop)
    }

    /// These times for pairs that outlive an absence of the API server of this length while their members hear each other:
    /// the last keep-alive may have been written long before it.
    #[must_use]
    pub fn outliving(self, outage: Duration) -> Self {
        let default = Self::default();
        let grace = default.grace + outage;
        // As much longer than the grace as it is by default.
        Self { grace, operator_wait: grace + grace / DRIFT_OF_WAIT, ..self }
    }

    /// How long the API server may be away while the members of a pair hear each other.
    pub fn outage(&self) -> Duration {
        self.grace.saturating_sub(Self::default().grace)
    }

    /// How often an active without a peer writes the Lease.
    pub fn lone_renew_period(&self) -> Duration {
        self.lone_hold / LONE_RENEWALS
    }

    /// Checks the inequalities of the protocol: T1 to T3 and T8 for safety, the others so that it makes progress.
    ///
    /// # Errors
    /// The first inequality that does not hold, with the time that would mend it.
    pub fn check(&self) -> Result<(), TimingError> {
        let least_watch = self.as_late_as_possible(self.hold);
        let least_api_watch = self.as_late_as_possible(self.api_hold);
        let least_wait = self.as_late_as_possible(self.grace);
        let longest_hold = self.hold.max(self.api_hold);
        let delegation = self.ping_period + self.round_trip + self.stop + self.request_timeout;
        let renewal = self.renew_period + self.request_timeout + self.stop;
        let keep_alive = self.keep_alive_period + 2 * self.request_timeout + self.stop;
        let least_margin = self.request_timeout + self.stop;
        let peer_hold = self.promise_period + self.round_trip + self.peer_margin;
        let least_lone_wait = self.as_late_as_possible(self.lone_hold);
        let least_lone_hold = self.lone_renew_period() + 2 * self.request_timeout + self.stop;
        let holds = [
            (least_watch <= self.watch, TimingError::Watch { least: least_watch }),
            (least_api_watch <= self.api_watch, TimingError::ApiWatch { least: least_api_watch }),
            (least_wait <= self.operator_wait, TimingError::OperatorWait { least: least_wait }),
            (self.stop < self.hold, TimingError::Stop { above: self.stop }),
            (delegation < self.hold, TimingError::Delegation { above: delegation }),
            (renewal < self.api_hold, TimingError::Renewal { above: renewal }),
            (longest_hold < self.grace, TimingError::Grace { above: longest_hold }),
            (keep_alive < self.grace, TimingError::KeepAlive { above: keep_alive }),
            (least_margin <= self.peer_margin, TimingError::PeerMargin { least: least_margin }),
            (peer_hold < self.hold, TimingError::PeerHold { above: peer_hold }),
            (least_lone_wait <= self.lone_wait, TimingError::LoneWait { least: least_lone_wait }),
            (least_lone_hold <= self.lone_hold, TimingError::LoneHold { least: least_lone_hold }),
        ];
        holds.into_iter().find(|(is_kept, _)| !is_kept).map_or(Ok(()), |(_, error)| Err(error))
    }

    /// What a span of one clock can last on another, with a late supervisor at its end; rounded up.
    fn as_late_as_possible(&self, span: Duration) -> Duration {
        let drift = (span * self.drift_ppm).as_nanos().div_ceil(1_000_000);
        span + Duration::from_nanos(u64::try_from(drift).unwrap_or(u64::MAX)) + self.lateness
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_safe_live_and_write_twice_a_minute() {
        let timing = Timing::default();
        assert_eq!(timing.check(), Ok(()));
        assert!(timing.keep_alive_period >= Duration::from_secs(30));
    }

    #[test]
    fn times_that_people_may_choose_are_safe_and_live() {
        let milliseconds = Duration::from_millis;
        let with =
            |hold, watch, stop| Timing::with(milliseconds(hold), milliseconds(watch), milliseconds(stop));
        assert_eq!(with(1_900, 2_000, 200), Timing::default());
        // The corners of what the schema of a group allows; the rules of the schema are these inequalities.
        for (hold, watch, stop) in [(1_101, 1_153, 50), (30_000, 30_100, 20_000), (30_000, 30_080, 28_999)] {
            let timing = with(hold, watch, stop);
            assert_eq!(timing.check(), Ok(()), "{hold} {watch} {stop}");
            assert_eq!((timing.api_hold, timing.api_watch), (timing.hold, timing.watch));
        }
        // What passes between peers is faster, and what the API server takes is not.
        for (hold, watch, stop) in [(1_100, 1_152, 50), (450, 501, 50), (300, 351, 50)] {
            let timing = with(hold, watch, stop);
            assert_eq!(timing.check(), Ok(()), "{hold} {watch} {stop}");
            let default = Timing::default();
            assert_eq!((timing.api_hold, timing.api_watch), (default.api_hold, default.api_watch));
            assert!(
                timing.promise_period < default.promise_period && timing.ping_period < default.ping_period
            );
        }
        let least = Err(TimingError::Watch { least: milliseconds(10_060) });
        assert_eq!(with(10_000, 10_059, 200).check(), least);
        assert_eq!(with(10_000, 10_060, 200).check(), Ok(()));
        assert!(with(3_000, 4_000, 2_000).check().is_err());
        assert_eq!(with(3_001, 4_000, 2_000).check(), Ok(()));
    }

    #[test]
    fn whatever_absence_of_the_api_server_is_to_be_outlived_the_times_are_safe_and_live() {
        assert_eq!(Timing::default().outliving(Duration::ZERO), Timing::default());
        for seconds in [1, 90, 3_600] {
            let outage = Duration::from_secs(seconds);
            let timing = Timing::default().outliving(outage);
            assert_eq!((timing.check(), timing.outage()), (Ok(()), outage));
            // Whatever is left of the grace when it begins.
            let spent = timing.keep_alive_period + 2 * timing.request_timeout + timing.stop;
            assert!(outage + spent < timing.grace, "{outage:?} {spent:?}");
        }
    }

    #[test]
    fn each_inequality_is_enforced_and_says_what_to_write() {
        let milliseconds = Duration::from_millis;
        let good = Timing::default();
        let table = [
            (Timing { watch: milliseconds(1_951), ..good }, "write a watch of at least 1.9519s"),
            (
                Timing { api_watch: milliseconds(1_951), ..good },
                "write a watch of the Lease of at least 1.9519s",
            ),
            (Timing { operator_wait: good.grace, ..good }, "write a wait of at least 60.11s"),
            (Timing { stop: milliseconds(1_900), ..good }, "write a hold longer than 1.9s"),
            (Timing { ping_period: milliseconds(1_150), ..good }, "write a hold longer than 1.9s"),
            (Timing { renew_period: milliseconds(1_200), ..good }, "write a hold longer than 1.9s"),
            (Timing { grace: good.hold, ..good }, "write a grace longer than 1.9s"),
            (Timing { keep_alive_period: good.grace, ..good }, "write a grace longer than 61.2s"),
            (Timing { peer_margin: milliseconds(699), ..good }, "write a peer margin of at least 700ms"),
            (Timing { promise_period: milliseconds(500), ..good }, "write a hold longer than 1.9s"),
            (Timing { lone_wait: good.lone_hold, ..good }, "write a wait of at least 60.11s"),
            (
                Timing { lone_hold: milliseconds(1_200), ..good },
                "write a hold of a lone one of at least 1.4s",
            ),
        ];
        for (timing, advice) in table {
            let error = timing.check().expect_err(advice);
            assert!(error.to_string().ends_with(advice), "{error} instead of {advice}");
        }
    }
}
