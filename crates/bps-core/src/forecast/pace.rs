//! How long things take in a forecast: what the Pods of the set themselves took.

use jiff::{SignedDuration, Timestamp};

use crate::model::{Gate, PodView, Snapshot};

/// How long things take. `None`: no Pod of the set has told, and they take no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// From the creation of a Pod without a gate until it is ready.
    pub start: Option<SignedDuration>,
    /// From the creation of a cold backup until its gate listens.
    pub gate: Option<SignedDuration>,
    /// From the end of the gate until the Pod is ready.
    pub wake: Option<SignedDuration>,
    /// From the loss of an active until its standby acts.
    pub takeover: SignedDuration,
}

impl Pace {
    /// What the Pods of the set took, the median of each. What took longer than the set's deadline for Pods that are not ready was no
    /// start: it would have been ended. Such a Pod was ready before, and has come back since.
    pub fn measured(snapshot: &Snapshot, takeover: SignedDuration) -> Self {
        let median = |time: fn(&PodView) -> Option<SignedDuration>| {
            let times = snapshot.pods.iter().filter_map(time);
            let mut times: Vec<_> = times.filter(|time| *time <= snapshot.desired.unready_deadline).collect();
            times.sort_unstable();
            times.get(times.len() / 2).copied()
        };
        Self {
            start: median(|view| {
                between(view.created, view.ready_since().filter(|_| view.gate == Gate::None)?)
            }),
            gate: median(|view| match view.gate {
                Gate::Listening { since } => between(view.created, since),
                Gate::None | Gate::Ahead | Gate::Passed { .. } => None,
            }),
            wake: median(|view| match view.gate {
                Gate::Passed { since } => between(since, view.ready_since()?),
                Gate::None | Gate::Ahead | Gate::Listening { .. } => None,
            }),
            takeover,
        }
    }
}

fn between(from: Timestamp, to: Timestamp) -> Option<SignedDuration> {
    let time = to.duration_since(from);
    (!time.is_negative()).then_some(time)
}
