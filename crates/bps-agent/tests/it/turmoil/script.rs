//! Faults and orders, drawn from a seed: what breaks when, and for how long.

use std::time::Duration;

use bps_api::HandoverOrder;
use bps_protocol::Timing;
use bps_protocol::testing::short;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::turmoil::agent::Habits;
use crate::turmoil::machine::Skew;

/// How many Pods there are: two members, and one that can join.
pub(crate) const PODS: usize = 3;
/// When everything is mended.
pub(crate) const CALM: Duration = Duration::from_secs(15);
/// How many kinds of faults there are.
pub(crate) const KINDS: usize = 15;
/// Highest number of faults in a run, each of which may bring another one.
const FAULTS_MAX: usize = 10;
/// How long after the first fault the last one may begin.
const FAULTS_FOR: Duration = Duration::from_secs(9);
/// Each clock is at most this far from true time: two of them drift by `Timing::drift_ppm` (1,000) at most. Unit:
/// millionths.
const DRIFT_PPM_MAX: i32 = 499;

/// Two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Pod(usize),
    Api,
}

/// What goes wrong, or is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Messages take up to so long.
    Slow(End, End, Duration),
    /// Messages get lost, so many of a thousand.
    Loss(End, End, u32),
    /// Nothing arrives, either way.
    Cut(End, End),
    /// Nothing arrives from the first at the second.
    CutOneWay(End, End),
    /// Messages wait until it is mended.
    Held(End, End),
    /// The API server is not there.
    ApiStops,
    /// The API server answers so late. Not drawn.
    ApiLate(Duration),
    /// The agent dies with its application, which the kernel tells the other agent.
    ContainerDies(usize),
    /// The same, and nobody tells.
    NodeDies(usize),
    /// The application ends by itself.
    ApplicationEnds(usize),
    /// The agent stands still.
    Stall(usize),
    /// SIGTERM, as the kubelet sends it.
    Leaves(usize),
    /// The same, and no container is started again until everything is mended: its Pod was deleted. Not drawn.
    Deleted(usize),
    /// The Lease asks for a switchover.
    SwitchOver,
    /// The Lease asks a Pod not to act.
    Fenced(usize),
    /// The operator wants the standby replaced by the third Pod; once in a run.
    Replace,
    /// The operator wants the place of the standby vacant.
    Vacate,
}

impl Fault {
    /// One of each kind: at this member, or between it and the other one or the API server.
    pub(crate) const fn of_each_kind(pod: usize) -> [Self; KINDS] {
        let (own, other) = (End::Pod(pod), End::Pod(1 - pod));
        [
            Self::Slow(own, other, Duration::from_secs(1)),
            Self::Loss(own, other, 500),
            Self::Cut(own, other),
            Self::CutOneWay(other, own),
            Self::Held(own, End::Api),
            Self::ApiStops,
            Self::ContainerDies(pod),
            Self::NodeDies(pod),
            Self::ApplicationEnds(pod),
            Self::Stall(pod),
            Self::Leaves(pod),
            Self::SwitchOver,
            Self::Fenced(pod),
            Self::Replace,
            Self::Vacate,
        ]
    }
}

/// A fault, when it happens, and when it is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
}

/// How long a Pod has to end that has none to spare for an application, and one that has some 5 s. Unit: seconds.
pub(crate) const SHORT_GRACE: u64 = 5;
pub(crate) const LONG_GRACE: u64 = 12;

/// All that a seed decides beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) skews: [Skew; PODS],
    pub(crate) habits: [Habits; PODS],
    /// Longest time that a message takes from the start on.
    pub(crate) latency: Duration,
    pub(crate) faults: Vec<Planned>,
    /// Times of the pair.
    pub(crate) timing: Timing,
    /// When everything is mended that is not by then; the run ends a while later.
    pub(crate) calm: Duration,
}

impl Script {
    /// Nothing happens, on plain Pods with exact clocks.
    pub(crate) fn quiet() -> Self {
        let habits = Habits {
            has_state_dir: true,
            has_hooks: false,
            runs_in_standby: false,
            handover: HandoverOrder::BreakBeforeMake,
            end_within: SHORT_GRACE,
        };
        let latency = Duration::from_millis(2);
        Self {
            skews: [Skew::default(); PODS],
            habits: [habits; PODS],
            latency,
            faults: Vec::new(),
            timing: short(),
            calm: CALM,
        }
    }

    /// The script of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed);
        let skew = |random: &mut SmallRng| Skew {
            offset: Duration::from_millis(random.random_range(1..100_000_000)),
            drift_ppm: random.random_range(-DRIFT_PPM_MAX..=DRIFT_PPM_MAX),
        };
        let skews = std::array::from_fn(|_| skew(random));
        let [has_state_dir, has_hooks, runs_in_standby] = [2, 3, 4].map(|of| random.random_ratio(1, of));
        let latency = Duration::from_millis(random.random_range(1..=30));
        let mut faults = Vec::new();
        for _ in 0..random.random_range(2..=FAULTS_MAX) {
            let at = milliseconds(random, 0, FAULTS_FOR);
            faults.push(Planned { at, ..planned(random, at) });
            // Two at once, or one while the first is dealt with.
            if random.random_ratio(1, 2) {
                let soon = at + milliseconds(random, 0, Duration::from_millis(400));
                faults.push(planned(random, soon));
            }
        }
        let end_within = if random.random_ratio(1, 3) { LONG_GRACE } else { SHORT_GRACE };
        let handover = HandoverOrder::BreakBeforeMake;
        let habits = Habits { has_state_dir, has_hooks, runs_in_standby, handover, end_within };
        Self { skews, habits: [habits; PODS], latency, faults, timing: short(), calm: CALM }
    }

    /// The machines of a seed, and two faults: the second one a moment after the first.
    pub(crate) fn of_two(seed: u64, [first, second]: [Fault; 2], moment: Duration) -> Self {
        let (at, lasts) = (Duration::from_secs(1), Duration::from_secs(3));
        let faults =
            vec![Planned { at, fault: first, lasts }, Planned { at: at + moment, fault: second, lasts }];
        Self { faults, ..Self::draw(seed) }
    }
}

fn milliseconds(random: &mut SmallRng, from: u64, to: Duration) -> Duration {
    let to = u64::try_from(to.as_millis()).expect("a run is short");
    Duration::from_millis(random.random_range(from..=to))
}

fn planned(random: &mut SmallRng, at: Duration) -> Planned {
    Planned { at, fault: fault(random), lasts: milliseconds(random, 1, Duration::from_secs(5)) }
}

fn fault(random: &mut SmallRng) -> Fault {
    // The members more often than the third Pod, which may never join.
    let pod = random.random_range(0..2 * PODS - 1) / 2;
    let other = (pod + random.random_range(1..PODS)) % PODS;
    let (from, to) = match random.random_range(0..4) {
        0 | 1 => (End::Pod(pod), End::Pod(other)),
        2 => (End::Pod(pod), End::Api),
        _ => (End::Api, End::Pod(pod)),
    };
    match random.random_range(0..18) {
        0 => Fault::Slow(from, to, Duration::from_millis(random.random_range(50..1_500))),
        1 => Fault::Loss(from, to, random.random_range(50..700)),
        2 | 3 => Fault::Cut(from, to),
        4 => Fault::CutOneWay(from, to),
        5 | 6 => Fault::Held(from, to),
        7 => Fault::ApiStops,
        8 | 9 => Fault::ContainerDies(pod),
        10 => Fault::NodeDies(pod),
        11 => Fault::ApplicationEnds(pod),
        12 => Fault::Stall(pod),
        13 => Fault::Leaves(pod),
        14 => Fault::SwitchOver,
        15 => Fault::Fenced(pod),
        16 => Fault::Replace,
        _ => Fault::Vacate,
    }
}
