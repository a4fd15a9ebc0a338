//! What a look tells: the status of the group, and what is new in it as events, numbers and lines of the log.

use std::time::Duration;

use bps_api::{HAGroup, keys};
use bps_core::status::{
    AMOUNTS_EVERY, GroupInput, GroupNews, differ_in_amounts_alone, group_news, group_status, kept,
};
use bps_observe::readable::Readable;
use bps_protocol::TakeoverRecord;
use bps_runtime::boot_clock;
use bps_wire::lease::Record;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tracing::{info, warn};

use super::Surroundings;
use super::look::{Decided, Round};
use super::memory::GroupMemory;
use crate::apply::is_stale;
use crate::controller::report::merge_difference;

/// What the status tells after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// All that there is to tell, as far as the watches have shown what was told before.
    All,
    /// All but how much standbys lack, which is due after this time.
    Later(Duration),
    /// What it told before: the write was refused.
    Refused,
}

impl Round<'_> {
    fn tell_news(&self, news: &GroupNews) {
        let GroupNews { events, takeovers, phases } = news;
        let Surroundings { events: sender, metrics, .. } = &self.context.surroundings;
        for event in events {
            sender.send(self.group, event.clone());
        }
        for reason in takeovers {
            metrics.groups.took_over(reason);
        }
        for (phase, time) in phases {
            metrics.groups.reached(phase, *time);
        }
    }

    /// Writes the status if it changed.
    pub(super) async fn report(
        &self,
        decided: &Decided<'_>,
        troubles: &[String],
        memory: &mut GroupMemory,
    ) -> Told {
        let Decided { seen, plan, .. } = *decided;
        let previous = self.group.status.clone().unwrap_or_default();
        let records = seen.records.iter().filter_map(told).collect();
        let all = group_status(&GroupInput {
            previous: &previous,
            generation: self.group.metadata.generation.unwrap_or_default(),
            name: &self.key.name,
            group: &seen.group,
            plan,
            has_service: self.group.spec.service.is_some(),
            records: &records,
            lags: &seen.lags(),
            crash_loops: &seen.crash_loops(),
            unread: self.unread.map(ToString::to_string).as_deref(),
            troubles,
            now: self.now(),
        });
        for takeover in all.takeovers.iter().filter(|takeover| !previous.takeovers.contains(takeover)) {
            info!(
                namespace = self.key.namespace,
                group = self.key.name,
                pair = takeover.pair,
                from = takeover.from,
                to = takeover.to,
                epoch = takeover.epoch,
                by = takeover.by,
                reason = takeover.reason,
                "Another Pod acts"
            );
        }
        let status = kept(&all);
        let now = boot_clock::now();
        if differ_in_amounts_alone(&previous, &status)
            && let Some(due) = memory.amounts_told.map(|told| told + AMOUNTS_EVERY).filter(|due| now < *due)
        {
            return Told::Later(due.since(now));
        }
        let (Ok(old), Ok(new)) = (serde_json::to_value(&self.group.status), serde_json::to_value(&status))
        else {
            return Told::Refused;
        };
        let Some(changes) = merge_difference(&old, &new) else { return Told::All };
        let patch = json!({"metadata": {"uid": self.group.metadata.uid}, "status": changes});
        let api: Api<Readable<HAGroup>> =
            Api::namespaced(self.context.surroundings.client.clone(), &self.key.namespace);
        let parameters =
            PatchParams { field_manager: Some(keys::FIELD_MANAGER_STATUS.into()), ..PatchParams::default() };
        match api.patch_status(&self.key.name, &parameters, &Patch::Merge(patch)).await {
            Ok(written) => {
                if let Readable::Object { object, .. } = written {
                    memory.seen.own.wrote(*object, boot_clock::now());
                }
                memory.amounts_told = Some(now);
                self.tell_news(&group_news(&previous, &all, (&self.key.name, &records)));
                Told::All
            }
            Err(error) if is_stale(&error) => Told::All,
            Err(error) => {
                let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
                let error = &error as &dyn std::error::Error;
                warn!(namespace, group, error, "Could not write the status of a group");
                Told::Refused
            }
        }
    }
}

fn told((number, record): (&u32, &Record)) -> Option<(u32, TakeoverRecord)> {
    Some((*number, record.takeover?))
}
