//! Keeps the exposed Service and its addresses in step with the primaries, by one write per change.
//!
//! Works on the roles as they will be after the plan: the promotion's label and the switch of the addresses are
//! written at the same time.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use crate::model::{
    Action, Endpoint, ExposedKind, Exposure, Hold, Lifecycle, ObjectState, Others, PodView, Reason, Role, Uid,
};

use super::draft::Draft;
use super::seats::{Presence, Seat};

/// How often it is looked whether a name that somebody else has is free: no watch of ours shows their objects.
///
/// 60 s: as long as the longest delay after a refused write.
const FOREIGN_LOOK_PERIOD: SignedDuration = SignedDuration::from_secs(60);

/// Most addresses in one slice. The API server refuses a slice with more (validation of `discovery.k8s.io/v1`), and with it
/// every change of the addresses.
pub(super) const ENDPOINTS_MAX: usize = 1_000;

pub(super) fn expose_ready_primaries(draft: &mut Draft<'_>) {
    let Some(exposure) = &draft.snapshot.exposure else { return };
    if exposure.service == ObjectState::Foreign || exposure.slice == ObjectState::Foreign {
        let until = draft.snapshot.now.saturating_add(FOREIGN_LOOK_PERIOD).ok();
        draft.hold(Hold { reason: Reason::ForeignObject, pod: None, until });
        // Somebody replaced our Service by theirs: what our slice says holds for it, too.
        if exposure.slice != ObjectState::Foreign && !exposure.endpoints.is_empty() {
            draft.step(Action::Expose { endpoints: Vec::new() }, Reason::EndpointsChanged);
        }
        return;
    }
    if exposure.service != ObjectState::Current {
        draft.step(Action::PublishService, Reason::ServiceChanged);
    }
    // Only its creation tells whether the name is free: addresses must not get behind the Service of somebody else.
    if exposure.service == ObjectState::Absent {
        return;
    }
    let endpoints = endpoints(draft);
    if let Some(storm) = &draft.snapshot.storm
        && doubtful_endpoints(draft).iter().any(|doubtful| endpoints.binary_search(doubtful).is_ok())
    {
        let until = Some(storm.until);
        draft.hold(Hold { reason: Reason::StormBrake, pod: None, until });
    }
    match &exposure.others {
        // While the Service has a selector, whatever is taken away is written again.
        _ if exposure.service != ObjectState::Current => {}
        Others::None => {}
        Others::Unknown => draft.step(Action::ClearAddresses, Reason::ForeignAddresses),
        Others::Standing { objects: _, until } => {
            draft.hold(Hold { reason: Reason::ForeignObject, pod: None, until: Some(*until) });
        }
    }
    // The first address decides the slice's address family, which cannot be changed later.
    if exposure.slice == ObjectState::Absent && endpoints.is_empty() {
        return;
    }
    if exposure.slice != ObjectState::Current || exposure.endpoints != endpoints {
        draft.step(Action::Expose { endpoints }, Reason::EndpointsChanged);
    }
}

/// Takes away what an earlier spec exposed, once what the present one wants is there.
pub(super) fn retire_leftovers(draft: &mut Draft<'_>) {
    let snapshot = draft.snapshot;
    if snapshot.exposure.as_ref().is_some_and(|exposure| !is_exposing(draft, exposure)) {
        return;
    }
    for object in snapshot.leftovers.iter().filter(|object| object.kind != ExposedKind::Budget) {
        draft.step(Action::Retire { object: object.clone() }, Reason::ServiceChanged);
    }
}

/// Whether clients reach the primaries by the Service that the spec names, as far as there are any.
fn is_exposing(draft: &Draft<'_>, exposure: &Exposure) -> bool {
    let has_slice = match exposure.slice {
        ObjectState::Current => true,
        ObjectState::Absent => endpoints(draft).is_empty(),
        ObjectState::Outdated | ObjectState::Foreign => false,
    };
    exposure.service == ObjectState::Current && has_slice
}

fn endpoints(draft: &Draft<'_>) -> Vec<Endpoint> {
    let mut endpoints: Vec<Endpoint> = draft
        .members(Role::Primary)
        .filter(|(_, seat)| seat.view.is_ready())
        .filter_map(|(_, seat)| endpoint(seat.view))
        .collect();
    if endpoints.len() < draft.snapshot.desired.replicas {
        endpoints.extend(doubtful_endpoints(draft));
    }
    // Without wanted primaries nobody is to be served: exposing the last one again would undo the scale-in.
    if endpoints.is_empty() && draft.snapshot.desired.replicas > 0 {
        endpoints = draft
            .seats
            .iter()
            .filter(|seat| is_last_resort(seat))
            .filter_map(|seat| endpoint(seat.view))
            .collect();
    }
    endpoints.sort();
    keep_what_fits(draft, &mut endpoints);
    endpoints
}

/// There are more ready primaries than fit only while some are surplus; those that clients reach already stay.
fn keep_what_fits(draft: &Draft<'_>, endpoints: &mut Vec<Endpoint>) {
    if endpoints.len() <= ENDPOINTS_MAX {
        return;
    }
    let exposed = exposed(draft);
    endpoints.sort_by_key(|endpoint| !exposed.contains(&endpoint.uid));
    endpoints.truncate(ENDPOINTS_MAX);
    endpoints.sort();
}

/// Pods that the slice shows now.
fn exposed<'a>(draft: &Draft<'a>) -> BTreeSet<&'a Uid> {
    let endpoints = draft.snapshot.exposure.iter().flat_map(|exposure| &exposure.endpoints);
    endpoints.map(|endpoint| &endpoint.uid).collect()
}

/// Primaries on silent nodes that clients reach already: in a storm what we see is in doubt, and they may serve on.
fn doubtful_endpoints(draft: &Draft<'_>) -> Vec<Endpoint> {
    if draft.snapshot.storm.is_none() {
        return Vec::new();
    }
    let exposed = exposed(draft);
    let is_doubtful = |seat: &&Seat<'_>| {
        seat.presence == Presence::Lost && seat.role == Role::Primary && exposed.contains(&seat.view.pod.uid)
    };
    draft.seats.iter().filter(is_doubtful).filter_map(|seat| endpoint(seat.view)).collect()
}

/// While no primary is ready, one that is going away but still answers is better than none.
fn is_last_resort(seat: &Seat<'_>) -> bool {
    seat.role == Role::Primary && seat.view.lifecycle == Lifecycle::Terminating && seat.view.is_serving
}

fn endpoint(view: &PodView) -> Option<Endpoint> {
    let is_terminating = view.lifecycle == Lifecycle::Terminating;
    Some(Endpoint {
        pod: view.pod.name.clone(),
        uid: view.pod.uid.clone(),
        address: view.address?,
        node: view.node.as_ref().map(|node| node.name.clone()),
        zone: view.node.as_ref().and_then(|node| node.zone.clone()),
        is_ready: !is_terminating,
        is_terminating,
    })
}
