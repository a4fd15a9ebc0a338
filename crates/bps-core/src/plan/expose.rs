//! Keeps the exposed Service and its addresses in step with the primaries, by one write per change.
//!
//! Works on the roles as they will be after the plan: the promotion's label and the switch of the addresses are
//! written at the same time.

use std::collections::BTreeSet;

use bps_api::service::IpFamily;
use jiff::SignedDuration;

use crate::model::{
    Action, Endpoint, ExposedKind, ExposedSlice, Exposure, Hold, Leftover, Lifecycle, ObjectState, Others,
    PodView, Reason, Role, Uid,
};

use super::draft::Draft;
use super::seats::{Presence, Seat};

/// How often it is looked whether a name that somebody else has is free: no watch of ours shows their objects.
///
/// 60 s: as long as the longest delay after a refused write.
const FOREIGN_LOOK_PERIOD: SignedDuration = SignedDuration::from_secs(60);

/// Most addresses in a slice. The API server refuses a slice with more (validation of `discovery.k8s.io/v1`), and with it
/// every change of the addresses.
pub(super) const ENDPOINTS_MAX: usize = 1_000;

pub(super) fn expose_ready_primaries(draft: &mut Draft<'_>) {
    let Some(exposure) = &draft.snapshot.exposure else { return };
    let is_foreign = |slice: &ExposedSlice| slice.state == ObjectState::Foreign;
    if exposure.service == ObjectState::Foreign || exposure.slices.iter().any(is_foreign) {
        let until = draft.snapshot.now.saturating_add(FOREIGN_LOOK_PERIOD).ok();
        draft.hold(Hold { reason: Reason::ForeignObject, pod: None, until });
    }
    if exposure.service == ObjectState::Foreign {
        // Somebody replaced our Service by theirs: what our slices say holds for it, too.
        for slice in exposure.slices.iter().filter(|slice| !is_foreign(slice) && !slice.endpoints.is_empty())
        {
            let emptied = Action::Expose { family: slice.family, endpoints: Vec::new() };
            draft.step(emptied, Reason::EndpointsChanged);
        }
        return;
    }
    if exposure.is_foreign() {
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
    for slice in &exposure.slices {
        let shown = shown_in(slice, &endpoints);
        let is_as_wanted = match slice.state {
            // Beside one that has addresses an empty one says that there are none of its family.
            ObjectState::Absent => endpoints.is_empty(),
            ObjectState::Current => slice.endpoints == shown,
            ObjectState::Outdated => false,
            ObjectState::Foreign => true,
        };
        if !is_as_wanted {
            let action = Action::Expose { family: slice.family, endpoints: shown };
            draft.step(action, Reason::EndpointsChanged);
        }
    }
}

/// Takes away what an earlier spec exposed, once what the present one wants is there.
pub(super) fn retire_leftovers(draft: &mut Draft<'_>) {
    let snapshot = draft.snapshot;
    if snapshot.exposure.as_ref().is_some_and(|exposure| !is_exposing(draft, exposure)) {
        return;
    }
    let is_retired = |object: &&Leftover| match object.kind {
        ExposedKind::Service => true,
        // In a storm its addresses may be the only ones that are right.
        ExposedKind::Slice => snapshot.storm.is_none(),
        ExposedKind::Budget => false,
    };
    for object in snapshot.leftovers.iter().filter(is_retired) {
        draft.step(Action::Retire { object: object.clone() }, Reason::ServiceChanged);
    }
}

/// Whether clients reach the primaries by the Service that the spec names, as far as there are any.
fn is_exposing(draft: &Draft<'_>, exposure: &Exposure) -> bool {
    let endpoints = endpoints(draft);
    let is_there = |slice: &ExposedSlice| match slice.state {
        ObjectState::Current => true,
        ObjectState::Absent => endpoints.is_empty(),
        ObjectState::Outdated | ObjectState::Foreign => false,
    };
    exposure.service == ObjectState::Current && exposure.slices.iter().all(is_there)
}

/// Addresses of all families that clients are to be led to, sorted.
fn endpoints(draft: &Draft<'_>) -> Vec<Endpoint> {
    let ready = || draft.members(Role::Primary).map(|(_, seat)| seat.view).filter(|view| view.is_ready());
    let mut endpoints: Vec<Endpoint> = ready().flat_map(endpoints_of).collect();
    if ready().count() < draft.snapshot.desired.replicas {
        endpoints.extend(doubtful_endpoints(draft));
    }
    // Without wanted primaries nobody is to be served: exposing the last one again would undo the scale-in.
    if endpoints.is_empty() && draft.snapshot.desired.replicas > 0 {
        endpoints = draft
            .seats
            .iter()
            .filter(|seat| is_last_resort(seat))
            .flat_map(|seat| endpoints_of(seat.view))
            .collect();
    }
    endpoints.sort();
    endpoints
}

/// Those addresses that are to be in this slice. There are more of them than fit only while some primaries are surplus; those that
/// clients reach already stay.
fn shown_in(slice: &ExposedSlice, endpoints: &[Endpoint]) -> Vec<Endpoint> {
    let is_of_family = |endpoint: &&Endpoint| IpFamily::of(endpoint.address) == slice.family;
    let mut shown: Vec<Endpoint> = endpoints.iter().filter(is_of_family).cloned().collect();
    if shown.len() > ENDPOINTS_MAX {
        let exposed: BTreeSet<&Uid> = slice.endpoints.iter().map(|endpoint| &endpoint.uid).collect();
        shown.sort_by_key(|endpoint| !exposed.contains(&endpoint.uid));
        shown.truncate(ENDPOINTS_MAX);
        shown.sort();
    }
    shown
}

/// Pods that the slices show now.
fn exposed<'a>(draft: &Draft<'a>) -> BTreeSet<&'a Uid> {
    let endpoints = draft.snapshot.exposure.iter().flat_map(Exposure::endpoints);
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
    draft.seats.iter().filter(is_doubtful).flat_map(|seat| endpoints_of(seat.view)).collect()
}

/// While no primary is ready, one that is going away but still answers is better than none.
fn is_last_resort(seat: &Seat<'_>) -> bool {
    seat.role == Role::Primary && seat.view.lifecycle == Lifecycle::Terminating && seat.view.is_serving
}

fn endpoints_of(view: &PodView) -> impl Iterator<Item = Endpoint> {
    let is_terminating = view.lifecycle == Lifecycle::Terminating;
    view.addresses().map(move |address| Endpoint {
        pod: view.pod.name.clone(),
        uid: view.pod.uid.clone(),
        address,
        node: view.node.as_ref().map(|node| node.name.clone()),
        zone: view.node.as_ref().and_then(|node| node.zone.clone()),
        is_ready: !is_terminating,
        is_terminating,
    })
}
