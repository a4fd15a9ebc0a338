//! What somebody else wrote behind a Service of ours, and for how long an answer about it is believed.
//!
//! Only slices that bear our label are watched. Those of Kubernetes' own controllers do, because the labels of a Service are copied
//! to its slices; all others have to be asked for.

use std::time::Duration;

use jiff::Timestamp;

/// How long it is believed that nobody else writes addresses.
///
/// 1 h: one request for each set or group; who writes slices by hand behind a Service of ours finds that out by its clients.
const CLEAR_FOR: Duration = Duration::from_secs(3_600);

/// Over how many seconds the questions are spread that are due after an hour: all were asked when the operator started.
const SPREAD_SECONDS: u64 = 600;

/// How soon to look again after the Service had a selector, and how long that counts.
///
/// 5 s: Kubernetes' controllers may still be at work for the Service as they saw it last.
pub const SELECTOR_PAUSE: Duration = Duration::from_secs(5);

/// How often it is looked whether what others wrote is gone. 60 s: as long as the longest delay after a refused write.
const STANDING_PAUSE: Duration = Duration::from_secs(60);

/// What somebody else wrote behind the set's Service: kube-proxy leads clients to the addresses of all slices of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// Nothing is known.
    #[default]
    None,
    /// It is to be looked for: slices were seen, or it was not done for long.
    Unknown,
    /// Objects that only their author may take away.
    Standing {
        /// Each as `kubectl` names it, such as `endpointslice/web-mine`; sorted.
        objects: Vec<String>,
        /// When it is looked whether they are gone.
        until: Timestamp,
    },
}

impl Others {
    /// How long an answer about the Service with this uid is believed that leaves these objects; `is_fresh` says that the Service
    /// had a selector less than [`SELECTOR_PAUSE`] ago, or that something was taken away.
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

/// A slice as `kubectl` names it.
pub fn foreign_slice(name: &str) -> String {
    format!("endpointslice/{name}")
}
