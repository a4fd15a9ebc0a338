//! Addresses of other writers behind Services of the operator.

use std::time::Duration;

use bps_core::model::{Others, SELECTOR_PAUSE};
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::Cache;
use crate::store::ObjectKey;

/// Result of clearing a Service of the operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cleared {
    /// Namespace of the Service.
    pub namespace: String,
    /// Its name.
    pub service: String,
    /// Its incarnation.
    pub uid: String,
    /// Objects that remain because their author may need them, as `kubectl` names them; sorted.
    pub left: Vec<String>,
    /// Names of all slices that remain, sorted; copies of an object of `left` included.
    pub standing: Vec<String>,
    /// Slices that were deleted.
    pub deleted: Vec<EndpointSlice>,
}

/// Knowledge about one Service.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// Last time at which it had a selector.
    selected: Option<Timestamp>,
    /// The last answer.
    found: Option<Found>,
}

#[derive(Debug)]
struct Found {
    uid: String,
    left: Vec<String>,
    standing: Vec<String>,
    until: Timestamp,
}

impl Cache {
    /// Records that the Service has a selector: Kubernetes' own controllers write addresses for it.
    pub(super) fn see_selector(&mut self, service: ObjectKey, now: Timestamp) {
        self.behind.insert(service, Behind { selected: Some(now), found: None });
    }

    /// Records the result of clearing a Service.
    pub(super) fn cleared(&mut self, cleared: Cleared, now: Timestamp) {
        let Cleared { namespace, service, uid, left, standing, deleted } = cleared;
        for slice in &deleted {
            self.slices.end(slice, now);
        }
        let key = ObjectKey { namespace, name: service };
        // The Service may have been deleted meanwhile.
        if self.services.get(&key).is_none_or(|known| known.metadata.uid.as_ref() != Some(&uid)) {
            return;
        }
        let known = self.behind.entry(key).or_default();
        let since = |at: Timestamp| Duration::try_from(now.duration_since(at)).unwrap_or_default();
        let was_selected = known.selected.is_some_and(|at| since(at) < SELECTOR_PAUSE);
        let pause = Others::believed_for(&left, was_selected || !deleted.is_empty(), &uid);
        let until = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
        known.found = Some(Found { uid, left, standing, until });
    }

    /// Returns what is known of other writers behind this Service, and when that expires. `slices` are the names of the foreign
    /// slices that the watch shows.
    pub(crate) fn others(
        &self,
        service: &ObjectKey,
        uid: &str,
        slices: &[&str],
        now: Timestamp,
    ) -> (Others, Option<Timestamp>) {
        let found = self.behind.get(service).and_then(|known| known.found.as_ref());
        let Some(found) = found.filter(|found| found.uid == uid && now < found.until) else {
            return (Others::Unknown, None);
        };
        if slices.iter().any(|slice| !found.standing.iter().any(|name| name == slice)) {
            return (Others::Unknown, None);
        }
        let until = found.until;
        if found.left.is_empty() {
            (Others::None, Some(until))
        } else {
            (Others::Standing { objects: found.left.clone(), until }, Some(until))
        }
    }
}
