//! Steps and holds of plans in words.

use bps_core::manifests::pair_name;
use bps_core::model::{Action, Hold, Leftover, Step};
use bps_core::pairing::{Group, PairAction, PairHold, PairStep, Seat, Shown, VACANT};
use bps_core::status::describe_hold;
use bps_protocol::{AgentId, BootTime};
use jiff::Timestamp;

/// A step of a group's plan, with its reason.
pub(super) fn step_words(group: &str, step: &PairStep, seen: &Group) -> String {
    let what = pair_action_words(group, &step.action, seen);
    format!("{what} ({}: {})", step.reason, step.reason.meaning())
}

fn pair_action_words(group: &str, action: &PairAction, seen: &Group) -> String {
    let pair = |number: &u32| pair_name(group, *number);
    match action {
        PairAction::Found { number, term, seats, level } => {
            let before = if level.is_some() { ", with the copies of its state as before" } else { "" };
            format!("make the pair {} of {} (epochs above {term}.0{before})", pair(number), members(seats))
        }
        PairAction::Restore { pair: number } => {
            format!("make the Lease of {} again as it was when somebody deleted it", pair(number))
        }
        PairAction::Ask { pair: number, leaving, joining } => {
            let leaving = pod_name(seen, *leaving);
            format!("ask the active of {} to admit {} in the place of {leaving}", pair(number), joining.pod)
        }
        PairAction::Vacate { pair: number, leaving } => {
            let leaving = pod_name(seen, *leaving);
            format!("ask the active of {} to vacate the place of {leaving}, which is gone", pair(number))
        }
        PairAction::Withdraw { pair: number } => {
            format!("take back the request to replace a member of {}", pair(number))
        }
        PairAction::Move { pair: number, seat } => {
            format!(
                "note in the Lease of {} that {} has the address {}",
                pair(number),
                seat.pod,
                seat.address.ip()
            )
        }
        PairAction::Force { pair: number, lease: _ } => {
            format!("replace a member of {}", pair(number))
        }
        PairAction::SwitchOver { pair: number } => {
            format!("have the active of {} hand over", pair(number))
        }
        PairAction::Fence { pair: number } => {
            format!("end the pair {}", pair(number))
        }
        PairAction::End { pair: number } => {
            format!("delete the Lease of {}", pair(number))
        }
        PairAction::Label { pod, shown: Shown { state, peer, actives, is_kept, .. } } => {
            let state = state.map_or("no part", bps_core::pairing::HaState::as_str);
            let peer = peer.as_ref().map(|peer| format!(" beside {peer}")).unwrap_or_default();
            let actives: Vec<&str> = actives.values().map(String::as_str).collect();
            let actives =
                if actives.is_empty() { String::new() } else { format!(" for {}", actives.join(", ")) };
            let kept = if *is_kept { ", and keep it until a standby can follow it" } else { "" };
            format!("label {} as {state}{peer}{actives}{kept}", pod_name(seen, *pod))
        }
    }
}

fn members(seats: &[Seat; 2]) -> String {
    let names: Vec<&str> =
        seats.iter().filter(|seat| seat.id != VACANT).map(|seat| seat.pod.as_str()).collect();
    names.join(" and ")
}

fn pod_name(seen: &Group, id: AgentId) -> String {
    let living = seen.pods.iter().find(|pod| pod.id == id).map(|pod| pod.name.clone());
    let named = || seen.pairs.iter().find_map(|pair| pair.names.get(&id)).filter(|name| !name.is_empty());
    living.or_else(|| named().cloned()).unwrap_or_else(|| "nobody".to_owned())
}

/// Something of a group that is held back, with the time that is left.
pub(super) fn wait_words(group: &str, hold: &PairHold, now: BootTime) -> String {
    let until = hold.until.map(|until| at_most(until.since(now).as_secs_f32()));
    format!("{}{}", describe_hold(group, hold), until.unwrap_or_default())
}

fn at_most(seconds: f32) -> String {
    format!(" (at most {seconds:.1} s more)")
}

/// A step of a set's plan, with its reason.
pub(super) fn action_words(step: &Step) -> String {
    let what = match &step.action {
        Action::Create { name, role, slot: _, subset: None } => format!("create {name} as {role}"),
        Action::Create { name, role, slot: _, subset: Some(subset) } => {
            format!("create {name} as {role} in subset {subset}")
        }
        Action::Convert { pod, from, to } => format!("convert {} from {from} to {to}", pod.name),
        Action::Wake { pod, address } => format!("wake {} at {address}", pod.name),
        Action::Delete { pod, role, is_ready: _ } => format!("delete the {role} {}", pod.name),
        Action::Adopt { pod } => format!("adopt {}", pod.name),
        Action::Relabel { pod, .. } => format!("put the labels of {} right", pod.name),
        Action::PublishService => "write the Service".to_owned(),
        Action::PublishGroup => "write the HAGroup".to_owned(),
        Action::PublishBudget => "write the PodDisruptionBudget".to_owned(),
        Action::Expose { family, endpoints } => {
            let names: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.pod.0.as_str()).collect();
            format!(
                "lead the Service by {} to {}",
                family.as_str(),
                if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
            )
        }
        Action::ClearAddresses => "look for addresses of others behind the Service".to_owned(),
        Action::Retire { object: Leftover { kind, name, uid: _, resource_version: _ } } => {
            format!("delete the {} {name}, which the spec does not want any more", kind.as_str())
        }
    };
    format!("{what} ({}: {})", step.reason, step.reason.meaning())
}

/// Something that is held back, with its reason.
pub(super) fn hold_words(hold: &Hold, now: Timestamp) -> String {
    let Hold { reason, pod, until } = hold;
    let pod = pod.as_ref().map(|pod| format!("{pod}: ")).unwrap_or_default();
    let until = until.map(|until| at_most(until.duration_since(now).as_secs_f32().max(0.0)));
    format!("{pod}{reason}: {}{}", reason.meaning(), until.unwrap_or_default())
}
