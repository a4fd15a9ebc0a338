//! What the active writes into the Lease of its own accord: who is level, and how much the standby lacks.

use std::collections::BTreeSet;

use super::DirectoryId;
use super::gate::Level;
use crate::agent::identity::format_uid;
use crate::agent::store::Note;
use crate::api::{StateLag, keys};
use crate::ha::{AgentId, Version};

/// These directories, which these Pods have, are level; what a standby lacked before is told no more.
pub fn level_note(base: Version, level: &BTreeSet<DirectoryId>, pods: [Option<AgentId>; 2]) -> Note {
    let pods: Vec<String> = pods.into_iter().flatten().map(|pod| format_uid(pod.0)).collect();
    let annotations = vec![
        (keys::ANNOTATION_HA_IN_SYNC, Some(Level::write(level))),
        (keys::ANNOTATION_HA_IN_SYNC_PODS, Some(pods.join(","))),
        (keys::ANNOTATION_HA_LAG, None),
    ];
    Note { base, annotations }
}

/// The standby lacks this much; `None` only if that cannot be put into words.
pub fn lag_note(base: Version, lag: &StateLag) -> Option<Note> {
    let text = serde_json::to_string(lag).ok()?;
    Some(Note { base, annotations: vec![(keys::ANNOTATION_HA_LAG, Some(text))] })
}
