//! Addresses of other writers behind the Service of the actives of a group. Replication Services have a selector.

use std::time::Duration;

use bps_api::{HAGroup, keys};
use bps_protocol::BootTime;

use super::existing::{ExistingObject, ExistingSlice};
use super::objects::is_owned;
use crate::model::{Others, SELECTOR_PAUSE};

/// Knowledge about these addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownOthers {
    /// Last time at which the Service had a selector.
    selected: Option<BootTime>,
    /// Time of the next list; in the past before the first one.
    due: BootTime,
    /// Objects that only their author may delete, as `kubectl` names them.
    left: Vec<String>,
    /// Names of all slices that remain.
    standing: Vec<String>,
}

/// Result of clearing a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundOthers {
    /// Objects that only their author may delete, as `kubectl` names them.
    pub left: Vec<String>,
    /// Names of all slices that remain.
    pub standing: Vec<String>,
    /// Whether the operator deleted something.
    pub has_taken: bool,
}

/// Next action of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OthersNeed {
    /// Wait for this time.
    Wait(Duration),
    /// Clear this Service.
    Clear(String),
}

impl KnownOthers {
    /// Returns the next action for what the watches show.
    pub fn need(
        &mut self,
        group: &HAGroup,
        services: &[ExistingObject],
        slices: &[ExistingSlice],
        now: BootTime,
    ) -> OthersNeed {
        let wanted = group.spec.service.as_ref().map(|service| service.name.as_str());
        let is_leading = |service: &&ExistingObject| {
            service.metadata.name.as_deref() == wanted && is_owned(&service.metadata, group)
        };
        let (Some(name), Some(service)) = (wanted, services.iter().find(is_leading)) else {
            return OthersNeed::Wait(Duration::MAX);
        };
        if has_selector(service) {
            // Kubernetes recreates slices as long as the Service has a selector.
            (self.selected, self.due) = (Some(now), now);
            return OthersNeed::Wait(SELECTOR_PAUSE);
        }
        let is_new = |slice: &ExistingSlice| is_of_others(group, slice, name) && !self.is_known(slice);
        if self.due <= now || slices.iter().any(is_new) {
            return OthersNeed::Clear(name.to_owned());
        }
        OthersNeed::Wait(self.due.since(now))
    }

    /// Records the result of clearing the Service; returns the time until it is due again.
    pub fn found(&mut self, found: FoundOthers, now: BootTime) -> Duration {
        let FoundOthers { left, standing, has_taken } = found;
        let was_selected = self.selected.is_some_and(|at| now.since(at) < SELECTOR_PAUSE);
        let pause = Others::believed_for(&left, was_selected || has_taken, "");
        (self.left, self.standing, self.due) = (left, standing, now + pause);
        pause
    }

    /// Returns the objects that only their author may delete, as `kubectl` names them.
    pub fn left(&self) -> &[String] {
        &self.left
    }

    fn is_known(&self, slice: &ExistingSlice) -> bool {
        let name = slice.object.metadata.name.as_deref().unwrap_or_default();
        self.standing.iter().any(|standing| standing == name)
    }
}

/// Whether kube-proxy routes clients of this Service to the addresses of this slice, although the group does not own it.
fn is_of_others(group: &HAGroup, slice: &ExistingSlice, service: &str) -> bool {
    let metadata = &slice.object.metadata;
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let is_behind = label(keys::LABEL_SERVICE_NAME).is_some_and(|name| name == service);
    is_behind && metadata.deletion_timestamp.is_none() && !is_owned(metadata, group)
}

fn has_selector(service: &ExistingObject) -> bool {
    service.body["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pairing::testing::existing;

    const START: BootTime = BootTime(1_000_000_000_000);

    fn group() -> HAGroup {
        let metadata = json!({"name": "web", "namespace": "one", "uid": "u"});
        let spec = json!({"service": {"name": "shop", "ports": [{"port": 80}]}});
        let group = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup", "metadata": metadata, "spec": spec});
        serde_json::from_value(group).expect("a group")
    }

    fn owned(kind: &str, name: &str) -> serde_json::Value {
        let owner = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup", "name": "web", "uid": "u"});
        json!({"kind": kind, "metadata": {"name": name, "ownerReferences": [owner]}})
    }

    fn slice(name: &str, managed_by: &str) -> ExistingSlice {
        let labels = json!({(keys::LABEL_SERVICE_NAME): "shop", (keys::LABEL_SLICE_MANAGED_BY): managed_by});
        let object = existing(json!({"metadata": {"name": name, "labels": labels}}));
        ExistingSlice { object, ..ExistingSlice::default() }
    }

    /// What is needed so many seconds after the start.
    fn need(
        known: &mut KnownOthers,
        service: &ExistingObject,
        slices: &[ExistingSlice],
        after: u64,
    ) -> OthersNeed {
        known.need(&group(), std::slice::from_ref(service), slices, START + Duration::from_secs(after))
    }

    #[test]
    fn a_service_is_cleared_at_first_then_when_something_is_seen_and_once_an_hour() {
        let service = existing(owned("Service", "shop"));
        let clear = OthersNeed::Clear("shop".to_owned());
        let mut known = KnownOthers::default();
        assert_eq!(need(&mut known, &service, &[], 0), clear);

        known.found(FoundOthers::default(), START);
        assert_eq!(need(&mut known, &service, &[], 1), OthersNeed::Wait(Duration::from_secs(3_599)));
        let mut own = slice("web-0", keys::MANAGED_BY);
        own.object.metadata.owner_references = service.metadata.owner_references.clone();
        assert_eq!(need(&mut known, &service, &[own], 1), OthersNeed::Wait(Duration::from_secs(3_599)));
        let foreign = slice("shop-x7k", "endpointslice-controller.k8s.io");
        assert_eq!(need(&mut known, &service, &[foreign], 1), clear);
        assert_eq!(need(&mut known, &service, &[], 3_600), clear);
    }

    #[test]
    fn what_is_left_to_its_author_is_looked_for_once_a_minute() {
        let service = existing(owned("Service", "shop"));
        let mut known = KnownOthers::default();
        let left = vec!["endpointslice/shop-mine".to_owned()];
        let found = FoundOthers { left, standing: vec!["shop-mine".to_owned()], has_taken: false };
        assert_eq!(known.found(found, START), Duration::from_secs(60));
        let mine = [slice("shop-mine", "me")];
        assert_eq!(need(&mut known, &service, &mine, 1), OthersNeed::Wait(Duration::from_secs(59)));
        assert_eq!(known.left(), ["endpointslice/shop-mine"]);
    }

    #[test]
    fn after_something_was_taken_away_the_service_is_cleared_once_more() {
        let service = existing(owned("Service", "shop"));
        let mut known = KnownOthers::default();
        let found = FoundOthers { has_taken: true, ..FoundOthers::default() };
        assert_eq!(known.found(found, START), SELECTOR_PAUSE);
        assert_eq!(need(&mut known, &service, &[], 5), OthersNeed::Clear("shop".to_owned()));
    }

    #[test]
    fn nothing_is_taken_away_while_there_is_a_selector_and_it_is_looked_twice_after_that() {
        let mut selected = owned("Service", "shop");
        selected["spec"] = json!({"selector": {"app": "shop"}});
        let (selected, service) = (existing(selected), existing(owned("Service", "shop")));
        let clear = OthersNeed::Clear("shop".to_owned());
        let mut known = KnownOthers::default();
        known.found(FoundOthers::default(), START);
        assert_eq!(need(&mut known, &selected, &[], 10), OthersNeed::Wait(SELECTOR_PAUSE));
        assert_eq!(need(&mut known, &service, &[], 11), clear);
        assert_eq!(known.found(FoundOthers::default(), START + Duration::from_secs(11)), SELECTOR_PAUSE);
        assert_eq!(need(&mut known, &service, &[], 16), clear);
        assert_eq!(
            known.found(FoundOthers::default(), START + Duration::from_secs(16)),
            Duration::from_secs(3_600)
        );
    }

    #[test]
    fn a_service_of_somebody_else_is_left_alone() {
        let foreign = existing(json!({"metadata": {"name": "shop"}}));
        assert_eq!(need(&mut KnownOthers::default(), &foreign, &[], 0), OthersNeed::Wait(Duration::MAX));
    }
}
