//! Addresses of other writers behind a Service of the operator, and how long an answer about them is valid.
//!
//! The operator watches only slices with its label. Slices of Kubernetes' own controllers have it, because these controllers copy the
//! labels of a Service to its slices. The operator lists all other slices.

use std::time::Duration;

use jiff::Timestamp;

/// How long the operator assumes that no other writer adds addresses.
///
/// 1 h: one list for each set or group. A user who writes a slice behind a Service of the operator notices its effect on clients.
const CLEAR_FOR: Duration = Duration::from_secs(3_600);

/// Spread of these lists. Unit: seconds. All of them were made at the same time, when the operator started.
const SPREAD_SECONDS: u64 = 600;

/// Pause before the next list after the Service had a selector, or after the operator deleted something.
///
/// 5 s: Kubernetes' controllers may still reconcile an older version of the Service.
pub const SELECTOR_PAUSE: Duration = Duration::from_secs(5);

/// Pause between lists while objects of other writers remain. 60 s: the longest delay after a refused write.
const STANDING_PAUSE: Duration = Duration::from_secs(60);

/// Addresses of other writers behind the set's Service. kube-proxy routes clients to the addresses of all slices of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// No other writer is known.
    #[default]
    None,
    /// The operator has to list: it observed a slice, or the last answer expired.
    Unknown,
    /// Objects that only their author may delete.
    Standing {
        /// Each as `kubectl` names it, such as `endpointslice/web-mine`; sorted.
        objects: Vec<String>,
        /// Time of the next list.
        until: Timestamp,
    },
}

impl Others {
    /// Returns how long an answer about the Service with this uid is valid. `left` are the objects that remain. `is_fresh` says that
    /// the Service had a selector less than [`SELECTOR_PAUSE`] ago, or that the operator deleted something.
    pub fn believed_for(left: &[String], is_fresh: bool, uid: &str) -> Duration {
        match (left, is_fresh) {
            (_, true) => SELECTOR_PAUSE,
            ([], false) => {
                CLEAR_FOR + Duration::from_secs(uid.bytes().map(u64::from).sum::<u64>() % SPREAD_SECONDS)
            }
            ([_, ..], false) => STANDING_PAUSE,
        }
    }
}

/// Returns a slice as `kubectl` names it.
pub fn foreign_slice(name: &str) -> String {
    format!("endpointslice/{name}")
}
