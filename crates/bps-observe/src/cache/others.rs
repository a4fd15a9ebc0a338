//! What was found of others behind our Services.

use std::time::Duration;

use bps_core::model::{Others, SELECTOR_PAUSE};
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::Cache;
use crate::store::ObjectKey;

/// What was found behind a Service of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cleared {
    /// Namespace of the Service.
    pub namespace: String,
    /// Its name.
    pub service: String,
    /// Its incarnation.
    pub uid: String,
    /// What is there still because its author may need it, each as `kubectl` names it; sorted.
    pub left: Vec<String>,
    /// Names of all slices that are there still, sorted: also of those that go with something of `left`.
    pub standing: Vec<String>,
    /// Slices that were deleted.
    pub deleted: Vec<EndpointSlice>,
}

/// What is known of one Service.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// When it had a selector last.
    selected: Option<Timestamp>,
    /// What was found, and until when that is believed.
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
    /// The Service was seen with a selector: Kubernetes' own controllers write addresses for it.
    pub(super) fn see_selector(&mut self, service: ObjectKey, now: Timestamp) {
        self.behind.insert(service, Behind { selected: Some(now), found: None });
    }

    /// It was looked what others wrote behind a Service.
    pub(super) fn cleared(&mut self, cleared: Cleared, now: Timestamp) {
        let Cleared { namespace, service, uid, left, standing, deleted } = cleared;
        for slice in &deleted {
            self.slices.end(slice, now);
        }
        let key = ObjectKey { namespace, name: service };
        // A Service that is gone meanwhile leaves no note behind.
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

    /// What others wrote behind this Service, whose uid and visible foreign slices are given; and when that is to be looked at
    /// again.
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
