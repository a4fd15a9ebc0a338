//! Which steps of a plan may be taken at the same time.

use std::collections::BTreeSet;

use super::step::{PairAction, PairStep, Plan};
use super::view::HaState;

impl Plan {
    /// Steps that may be taken at the same time: first Leases, then labels that take a part away, then the others. Nobody joins
    /// a pair whose slice was written by somebody else meanwhile; those pairs are `overtaken`.
    pub fn waves(&self, overtaken: &BTreeSet<u32>) -> [Vec<&PairStep>; 3] {
        let is_early = |step: &&PairStep| matches!(&step.action, PairAction::Ask { pair, .. } | PairAction::Force { pair, .. } if overtaken.contains(pair));
        let steps = || self.steps.iter().filter(|step| !is_early(step));
        let wave = |number: usize| steps().filter(move |step| wave_of(&step.action) == number).collect();
        [wave(0), wave(1), wave(2)]
    }
}

fn wave_of(action: &PairAction) -> usize {
    let PairAction::Label { shown, .. } = action else { return 0 };
    if shown.state == Some(HaState::Active) { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use bps_protocol::AgentId;

    use super::*;
    use crate::pairing::Shown;
    use crate::pairing::testing::{seat, step};

    #[test]
    fn leases_come_before_labels_and_the_label_of_an_active_comes_last() {
        let label = |pod: u128, state: Option<HaState>| {
            let shown = Shown { state, ..Shown::default() };
            step(PairAction::Label { pod: AgentId(pod), shown })
        };
        let ask = |pair: u32| step(PairAction::Ask { pair, leaving: AgentId(2), joining: seat(3) });
        let steps = vec![
            label(1, Some(HaState::Active)),
            label(2, Some(HaState::Standby)),
            label(3, None),
            ask(0),
            ask(1),
            step(PairAction::End { pair: 0 }),
        ];
        let plan = Plan { steps: steps.clone(), ..Plan::default() };
        let [active, standby, none, first, second, end] = &steps[..] else { panic!("six steps") };
        assert_eq!(
            plan.waves(&BTreeSet::new()),
            [vec![first, second, end], vec![standby, none], vec![active]]
        );
        let overtaken = plan.waves(&BTreeSet::from([0]));
        assert_eq!(overtaken[0], [second, end], "nobody joins a pair whose slice was overtaken");
    }
}
