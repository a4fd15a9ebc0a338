//! Explores a scenario: once without faults (golden), then with a fault at every place, and reports what differs.

use std::fmt;

use crate::simulation::{
    fault::{Choice, EVENT_FAULTS, Fault, Plan, READ_FAULTS, WRITE_FAULTS},
    monkey::Random,
    oracle::Violation,
    run::{Outcome, Scenario, run},
};

/// Writes beyond the golden run at which the second fault of a pair may strike: the recovery from the first.
const RECOVERY_WRITES: u32 = 4;

/// Background requests that are struck: those of a start, and the first renewals and Events.
const BACKGROUND_MAX: u32 = 10;

/// What an exploration found.
pub struct Report {
    pub scenario: String,
    pub golden: Outcome,
    pub schedules: usize,
    /// Planned faults that struck, and that never had the occasion.
    pub fired: usize,
    pub unfired: usize,
    pub violations: Vec<(Plan, Violation)>,
    pub not_converged: Vec<Plan>,
    pub different_end: Vec<Plan>,
    pub requests: u64,
    /// Wall time, in seconds.
    pub seconds: f64,
}

impl Report {
    /// Whether every schedule held the invariants and ended as the golden run did.
    pub fn is_clean(&self) -> bool {
        self.golden.has_converged
            && self.golden.violations.is_empty()
            && self.violations.is_empty()
            && self.not_converged.is_empty()
            && self.different_end.is_empty()
    }
}

/// Findings that a report prints in full.
const PRINTED: usize = 5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, golden, schedules, fired, unfired, violations, not_converged, .. } = self;
        let Outcome { writes, reads, events, .. } = golden;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = *schedules as f64 / self.seconds;
        writeln!(
            f,
            "{scenario}: golden writes={writes} reads={reads} events={events} converged={} violations={}; \
             schedules={schedules} fired={fired} unfired={unfired} violations={} not_converged={} \
             different_end={} requests={} in {:.2} s = {rate:.0} schedules/s",
            golden.has_converged,
            golden.violations.len(),
            violations.len(),
            not_converged.len(),
            self.different_end.len(),
            self.requests,
            self.seconds,
        )?;
        golden.violations.iter().try_for_each(|found| writeln!(f, "  golden: {found}"))?;
        violations.iter().take(PRINTED).try_for_each(|(plan, found)| writeln!(f, "  {plan}: {found}"))?;
        not_converged.iter().take(PRINTED).try_for_each(|plan| writeln!(f, "  {plan}: not converged"))?;
        self.different_end.iter().take(PRINTED).try_for_each(|plan| writeln!(f, "  {plan}: different end"))
    }
}

/// Every single fault of a table, at every place of its kind in the golden run.
pub fn singles(golden: &Outcome) -> Vec<Plan> {
    let at = |count: u32, choice: fn(u32) -> Choice, faults: &'static [Fault]| {
        (1..=count).flat_map(move |n| faults.iter().map(move |fault| Plan(vec![(choice(n), *fault)])))
    };
    at(golden.writes, Choice::Write, WRITE_FAULTS)
        .chain(at(golden.reads, Choice::Read, READ_FAULTS))
        .chain(at(golden.events, Choice::Event, EVENT_FAULTS))
        .chain(at(golden.background.min(BACKGROUND_MAX), Choice::Background, WRITE_FAULTS))
        .collect()
}

/// Every single fault at a write.
pub fn write_singles(golden: &Outcome) -> Vec<Plan> {
    let mut plans = singles(golden);
    plans.retain(|plan| plan.0.iter().all(|(choice, _)| matches!(choice, Choice::Write(_))));
    plans
}

/// Every pair of these faults at writes, the second possibly in the recovery from the first.
pub fn write_pairs(golden: &Outcome, faults: &[Fault]) -> Vec<Plan> {
    let mut plans = Vec::new();
    for first in 1..=golden.writes {
        for second in first + 1..=golden.writes + RECOVERY_WRITES {
            for one in faults {
                let pair =
                    |other: &Fault| Plan(vec![(Choice::Write(first), *one), (Choice::Write(second), *other)]);
                plans.extend(faults.iter().map(pair));
            }
        }
    }
    plans
}

/// A seeded sample of plans with `depth` faults at writes, anywhere up to the end of the recovery.
pub fn sampled(golden: &Outcome, (seed, depth): (u64, usize), count: usize) -> Vec<Plan> {
    let mut random = Random(seed);
    let places = usize::try_from(golden.writes + RECOVERY_WRITES).expect("fits");
    let mut fault = || {
        let place = u32::try_from(random.below(places) + 1).expect("fits");
        (Choice::Write(place), WRITE_FAULTS[random.below(WRITE_FAULTS.len())])
    };
    (0..count)
        .map(|_| {
            let mut faults: Vec<_> = (0..depth).map(|_| fault()).collect();
            faults.sort_unstable();
            faults.dedup_by_key(|(choice, _)| *choice);
            Plan(faults)
        })
        .collect()
}

/// Runs the golden run, then each plan that `plans` derives from it, on two threads; the result does not depend on them.
#[expect(clippy::disallowed_methods, reason = "wall time is only reported, nothing decides by it")]
pub fn explore(scenario: &dyn Scenario, plans: impl FnOnce(&Outcome) -> Vec<Plan>) -> Report {
    let golden = run(scenario, &Plan::default());
    let plans = plans(&golden);
    let began = std::time::Instant::now();
    let (left, right) = plans.split_at(plans.len() / 2);
    let run_all = |plans: &[Plan]| -> Vec<Outcome> { plans.iter().map(|plan| run(scenario, plan)).collect() };
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let other = scope.spawn(|| run_all(right));
        let mut outcomes = run_all(left);
        outcomes.extend(other.join().expect("a panic in a run fails the test"));
        outcomes
    });
    let mut report = Report {
        scenario: scenario.name(),
        golden,
        schedules: plans.len(),
        fired: 0,
        unfired: 0,
        violations: Vec::new(),
        not_converged: Vec::new(),
        different_end: Vec::new(),
        requests: 0,
        seconds: began.elapsed().as_secs_f64(),
    };
    for (plan, outcome) in plans.into_iter().zip(outcomes) {
        report.add(plan, outcome);
    }
    report
}

impl Report {
    fn add(&mut self, plan: Plan, outcome: Outcome) {
        self.fired += outcome.fired.len();
        self.unfired += plan.0.len() - outcome.fired.len();
        self.requests += u64::from(outcome.writes) + u64::from(outcome.reads);
        if let Some(first) = outcome.violations.into_iter().next() {
            self.violations.push((plan.clone(), first));
        }
        if !outcome.has_converged {
            self.not_converged.push(plan);
        } else if outcome.end != self.golden.end {
            self.different_end.push(plan);
        }
    }
}
