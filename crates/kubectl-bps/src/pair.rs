//! Who acts in a pair now, by what its Lease and its EndpointSlice show.
//!
//! An active that was handed the role directly shows itself in the slice first and in the Lease a moment later; the higher
//! epoch is right.

use std::sync::Arc;

use bps_core::pairing::VACANT;
use bps_observe::group::{pair_number, shown_epoch};
use bps_protocol::{AgentId, Epoch};
use bps_wire::lease::Record;
use bps_wire::uid::{format_uid, parse_uid};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;

/// A pair as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PairNow {
    /// Its number in the group.
    pub(super) number: u32,
    /// Name of its Lease.
    pub(super) name: String,
    /// What the Lease says.
    pub(super) record: Record,
    /// Epoch of the last tenure that either shows.
    pub(super) epoch: Epoch,
    /// Who has that tenure.
    pub(super) active: Option<AgentId>,
}

/// The pair of this Lease; `None` if it cannot be read, or belongs to no group.
pub(super) fn pair_now(lease: &Lease, slice: Option<&EndpointSlice>) -> Option<PairNow> {
    let record = Record::read(lease).ok()?;
    let shown = slice.and_then(|slice| Some((shown_epoch(slice)?, shown_active(slice)?)));
    let (epoch, active) = match shown {
        Some((epoch, active)) if epoch > record.lease.epoch => (epoch, Some(active)),
        Some(_) | None => (record.lease.epoch, record.lease.holder),
    };
    Some(PairNow { number: pair_number(lease)?, name: lease.name_any(), record, epoch, active })
}

/// The pairs of these Leases, by number.
pub(super) fn pairs_now(leases: &[Arc<Lease>], slices: &[Arc<EndpointSlice>]) -> Vec<PairNow> {
    let of_lease = |lease: &Arc<Lease>| {
        let namesake = |slice: &&Arc<EndpointSlice>| slice.metadata.name == lease.metadata.name;
        pair_now(lease, slices.iter().find(namesake).map(AsRef::as_ref))
    };
    let mut pairs: Vec<PairNow> = leases.iter().filter_map(of_lease).collect();
    pairs.sort_by_key(|pair| pair.number);
    pairs
}

fn shown_active(slice: &EndpointSlice) -> Option<AgentId> {
    let target = slice.endpoints.first()?.target_ref.as_ref()?;
    parse_uid(target.uid.as_deref()?).ok().map(AgentId)
}

impl PairNow {
    /// Name of a Pod that the Lease names, else its uid.
    pub(super) fn name_of(&self, id: AgentId) -> String {
        self.record.directory.get(&id).map_or_else(|| format_uid(id.0), |member| member.pod.clone())
    }

    /// Members that are Pods, the active first.
    pub(super) fn members(&self) -> Vec<AgentId> {
        let mut members: Vec<AgentId> =
            self.record.lease.members.into_iter().filter(|member| *member != VACANT).collect();
        members.sort_by_key(|member| self.active != Some(*member));
        members
    }

    /// The Pod that is to take the place of a member, if any is.
    pub(super) fn joining(&self) -> Option<AgentId> {
        self.record.lease.pending.map(|replacement| replacement.joining).filter(|id| *id != VACANT)
    }

    /// Whether a Pod shall not act.
    pub(super) fn is_fenced(&self, id: AgentId) -> bool {
        self.record.orders.fenced.contains(&id)
    }
}
