//! What the labels of each Pod should say: they show the Lease, and decide nothing.

use std::collections::{BTreeMap, BTreeSet};

use bps_protocol::AgentId;

use super::reason::PairReason;
use super::roster::Roster;
use super::step::{PairAction, PairStep};
use super::view::{Group, HaState, Pod, Shown};

/// Longest value of a label. Unit: characters. Source: Kubernetes.
pub const LABEL_MAX: usize = 63;

/// Writes the labels that are not as they should be; first all that take a part away, so that two Pods of one pair
/// never both bear the label of the active. Pods of a pair that is left alone keep theirs: whoever acted may still act, and if
/// the group is new, its labels are all that tells. So do those of which a pair is `planned`. Actives that are `kept` say so.
pub(super) fn labels(
    group: &Group,
    roster: &Roster<'_>,
    planned: &[PairStep],
    kept: &BTreeSet<AgentId>,
) -> Vec<PairStep> {
    let wanted = wanted(group, roster);
    let founded: BTreeSet<AgentId> = planned
        .iter()
        .filter(|step| matches!(step.action, PairAction::Found { .. }))
        .flat_map(|step| step.action.seated())
        .collect();
    let mut steps: Vec<(bool, PairStep)> = group
        .pods
        .iter()
        .filter(|pod| {
            wanted.contains_key(&pod.id) || !(roster.is_left_alone(pod) || founded.contains(&pod.id))
        })
        .filter_map(|pod| {
            let mut shown = wanted.get(&pod.id).cloned().unwrap_or_default();
            shown.epoch = shown.epoch.or(pod.shown.epoch);
            shown.is_kept = kept.contains(&pod.id);
            let is_promotion = shown.state == Some(HaState::Active) && pod.shown.state != shown.state;
            Some((is_promotion, label(pod, shown)?))
        })
        .collect();
    steps.sort_by_key(|(is_promotion, _)| *is_promotion);
    steps.into_iter().map(|(_, step)| step).collect()
}

/// The step that has labels and annotations of a Pod say this; `None` if they say it already.
pub(super) fn label(pod: &Pod, shown: Shown) -> Option<PairStep> {
    let of_cover = if shown.is_kept { PairReason::NotCovered } else { PairReason::Covered };
    let reason = if pod.shown.names_same_part(&shown) { of_cover } else { PairReason::PartChanged };
    (pod.shown != shown).then_some(PairStep { action: PairAction::Label { pod: pod.id, shown }, reason })
}

fn wanted(group: &Group, roster: &Roster<'_>) -> BTreeMap<AgentId, Shown> {
    let mut wanted: BTreeMap<AgentId, Shown> = BTreeMap::new();
    for pair in &group.pairs {
        let [one, two] = pair.lease.members;
        for (own, other) in [(one, two), (two, one)] {
            if roster.is_claimed_elsewhere(pair, own) {
                continue;
            }
            let is_active = pair.lease.holder == Some(own);
            let state = Some(if is_active { HaState::Active } else { HaState::Standby });
            // One that acts in another pair stands by for no other Pod.
            let peer = roster.pod(other).filter(|pod| !roster.is_busy(pair, pod.id));
            let peer = peer.map(|pod| &pod.name).filter(|name| name.len() <= LABEL_MAX).cloned();
            let epoch = is_active.then_some(pair.lease.epoch);
            if is_active || group.further_places == 0 {
                wanted.insert(own, Shown { state, peer, epoch, ..Shown::default() });
                continue;
            }
            let shown = wanted.entry(own).or_default();
            shown.state = state;
            shown.actives.extend(peer.map(|peer| (pair.number, peer)));
        }
    }
    wanted
}
