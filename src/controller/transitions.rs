//! Times how long Pods take to become what their role promises; for the metrics alone.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bps_core::model::{Action, Outcome, PodView, Role, StepResult, Uid};
use bps_observe::SetKey;
use bps_runtime::metrics::sets::{SetMetrics, Transition};
use tokio::time::Instant;

/// Most Pods that are timed at once; further ones are not, so that nothing grows without bound.
const TIMED_MAX: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timed {
    from: Role,
    to: Role,
    since: Instant,
    is_running: bool,
}

/// Pods under way from one role to another, by set.
#[derive(Debug, Default)]
pub(super) struct Transitions(Mutex<BTreeMap<SetKey, BTreeMap<Uid, Timed>>>);

impl Transitions {
    /// Takes in one look: Pods that were converted in it, and those that arrived since the last one.
    pub(super) fn follow(
        &self,
        (set, pods): (&SetKey, &[PodView]),
        results: &[StepResult],
        metrics: &SetMetrics,
    ) {
        let mut all = self.0.lock().expect("no holder of this lock panics");
        let count = all.values().map(BTreeMap::len).sum::<usize>();
        let timed = all.entry(set.clone()).or_default();
        for result in results.iter().filter(|result| result.outcome == Outcome::Done) {
            if let Action::Convert { pod, from, to } = &result.step.action
                && count < TIMED_MAX
            {
                let started = Timed { from: *from, to: *to, since: Instant::now(), is_running: false };
                timed.insert(pod.uid.clone(), started);
            }
        }
        timed.retain(|uid, timed| {
            let view = pods.iter().find(|view| view.pod.uid == *uid);
            view.is_some_and(|view| is_under_way(timed, view, metrics))
        });
        if timed.is_empty() {
            all.remove(set);
        }
    }

    /// Forgets a set that is gone.
    pub(super) fn forget(&self, set: &SetKey) {
        self.0.lock().expect("no holder of this lock panics").remove(set);
    }
}

/// Records what the Pod has reached; false if there is nothing more to come.
fn is_under_way(timed: &mut Timed, view: &PodView, metrics: &SetMetrics) -> bool {
    if view.role != timed.to {
        return false;
    }
    let elapsed = timed.since.elapsed();
    if timed.from == Role::Cold && view.is_running && !timed.is_running {
        timed.is_running = true;
        metrics.woke(elapsed);
    }
    if view.is_ready() {
        let Timed { from, to, .. } = *timed;
        metrics.transitioned(&Transition { from: from.as_str(), to: to.as_str() }, elapsed);
    }
    !view.is_ready()
}

#[cfg(test)]
mod tests {
    use bps_core::model::{Lifecycle, Reason, Step};
    use bps_core::testing::pod;
    use bps_runtime::metrics::Metrics;
    use jiff::{SignedDuration, Timestamp};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_woken_pod_is_timed_until_it_runs_and_until_it_is_ready() {
        let (transitions, metrics) = (Transitions::default(), Metrics::new("test"));
        let set = SetKey { namespace: "shop".into(), name: "web".into() };
        let mut view = pod("web-0", Role::Hot, 0);
        (view.lifecycle, view.is_running) = (Lifecycle::Starting, false);
        let action = Action::Convert { pod: view.pod.clone(), from: Role::Cold, to: Role::Hot };
        let converted = StepResult {
            step: Step { action, reason: Reason::Refilled },
            outcome: Outcome::Done,
            message: None,
            started: Timestamp::UNIX_EPOCH,
            elapsed: SignedDuration::ZERO,
        };
        let follow = |view: &PodView, results: &[StepResult]| {
            transitions.follow((&set, std::slice::from_ref(view)), results, &metrics.sets);
        };
        follow(&view, &[converted]);
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        view.is_running = true;
        follow(&view, &[]);
        follow(&view, &[]);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        view.lifecycle = Lifecycle::Ready { since: Timestamp::UNIX_EPOCH };
        follow(&view, &[]);
        follow(&view, &[]);
        let text = metrics.encode().unwrap();
        for line in [
            "backuppodset_wakeup_seconds_sum 2.0",
            "backuppodset_wakeup_seconds_count 1",
            "backuppodset_transition_seconds_sum{from=\"cold\",to=\"hot\"} 3.0",
            "backuppodset_transition_seconds_count{from=\"cold\",to=\"hot\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(transitions.0.lock().unwrap().is_empty());
    }
}
