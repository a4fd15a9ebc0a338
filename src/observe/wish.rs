//! Reads a spec into a wish, and says what is wrong with one that slipped past the API server's checks.

use jiff::SignedDuration;
use serde_json::Value;

use crate::api::{BackupPodSet, BackupPodSetSpec, CandidateChoice, ScaleInPolicy, UpdateStrategyType, keys};
use crate::manifests::{PortError, revision};
use crate::model::{Desired, ScaleIn, Strategies, Strategy, Uid, UpdateKind, UpdatePolicy};

/// Why a set cannot be acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A number is out of its range.
    #[error("spec.{field} is {value}: write a number from {least} to {most}")]
    OutOfRange {
        /// Field of the spec.
        field: &'static str,
        /// What it says.
        value: i32,
        /// Smallest allowed value.
        least: i32,
        /// Largest allowed value.
        most: i32,
    },
    /// The template has no container.
    #[error("spec.template.spec.containers is empty: name at least one container")]
    NoContainer,
    /// The template sets a label that belongs to the operator.
    #[error("spec.template.metadata sets {key:?}, which the operator sets itself: remove it")]
    ReservedKey {
        /// Key of the label or annotation.
        key: String,
    },
    /// A port of the Service leads nowhere.
    #[error(transparent)]
    Port(PortError),
}

pub(super) fn desired(set: &BackupPodSet) -> Result<Desired, Error> {
    let spec = &set.spec;
    check_template(spec)?;
    let status = set.status.clone().unwrap_or_default();
    Ok(Desired {
        name: set.metadata.name.clone().unwrap_or_default(),
        uid: Uid(set.metadata.uid.clone().unwrap_or_default()),
        replicas: count("replicas", spec.replicas)?,
        hot_backups: count("hotBackups", spec.hot_backups)?,
        cold_backups: count("coldBackups", spec.cold_backups)?,
        strategies: strategies(spec),
        wakeup_timeout: seconds("wakeupTimeout", spec.wakeup_timeout, (1, 3600))?,
        min_ready: seconds("minReadySeconds", spec.min_ready_seconds, (0, 86_400))?,
        failover_delay: seconds("failoverDelaySeconds", spec.failover_delay_seconds, (0, 86_400))?,
        unready_deadline: unready_deadline(spec)?,
        scale_in: match spec.scale_in_policy {
            ScaleInPolicy::Delete => ScaleIn::Delete,
            ScaleInPolicy::Demote => ScaleIn::Demote,
        },
        update: update(spec)?,
        paused: spec.paused,
        revision: revision(&spec.template),
        collisions: u32::try_from(status.collision_count).unwrap_or(0),
        is_new_generation: set.metadata.generation.unwrap_or(0) != status.observed_generation,
    })
}

fn update(spec: &BackupPodSetSpec) -> Result<UpdatePolicy, Error> {
    let max_unavailable = within("updateStrategy.maxUnavailable", spec.update_strategy.max_unavailable, (1, 1000))?;
    let partition = within("updateStrategy.partition", spec.update_strategy.partition, (0, 1000))?;
    Ok(UpdatePolicy {
        kind: match spec.update_strategy.r#type {
            UpdateStrategyType::BackupFirst => UpdateKind::BackupFirst,
            UpdateStrategyType::OnDelete => UpdateKind::OnDelete,
        },
        max_unavailable,
        partition,
    })
}

/// 0 stands for "never".
fn unready_deadline(spec: &BackupPodSetSpec) -> Result<SignedDuration, Error> {
    match seconds("unreadyDeadlineSeconds", spec.unready_deadline_seconds, (0, 86_400))? {
        SignedDuration::ZERO => Ok(SignedDuration::MAX),
        deadline => Ok(deadline),
    }
}

fn strategies(spec: &BackupPodSetSpec) -> Strategies {
    let keys = &spec.strategy;
    let strategy = |own: Option<CandidateChoice>| match own.unwrap_or(keys.init) {
        CandidateChoice::Best => Strategy::Best,
        CandidateChoice::Random => Strategy::Random,
        CandidateChoice::Oldest => Strategy::Oldest,
        CandidateChoice::Newest => Strategy::Newest,
        CandidateChoice::Spread => Strategy::Spread,
    };
    Strategies {
        hot_to_primary: strategy(keys.hotbackup_to_replicas),
        cold_to_primary: strategy(keys.coldbackup_to_replicas),
        cold_to_hot: strategy(keys.coldbackup_to_hotbackup),
    }
}

fn check_template(spec: &BackupPodSetSpec) -> Result<(), Error> {
    let containers = spec.template.spec.get("containers").and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        return Err(Error::NoContainer);
    }
    let metadata = spec.template.metadata.as_ref();
    let keys_of = |metadata: &crate::api::TemplateMetadata| {
        metadata.labels.keys().chain(metadata.annotations.keys()).cloned().collect::<Vec<_>>()
    };
    let is_reserved = |key: &String| {
        key.starts_with(keys::PREFIX) || keys::RESERVED_LABELS.contains(&key.as_str())
    };
    match metadata.map(keys_of).unwrap_or_default().into_iter().find(is_reserved) {
        Some(key) => Err(Error::ReservedKey { key }),
        None => Ok(()),
    }
}

fn count(field: &'static str, value: i32) -> Result<usize, Error> {
    within(field, value, (0, 1000))
}

fn seconds(field: &'static str, value: i32, range: (i32, i32)) -> Result<SignedDuration, Error> {
    within(field, value, range)?;
    Ok(SignedDuration::from_secs(i64::from(value)))
}

fn within(field: &'static str, value: i32, (least, most): (i32, i32)) -> Result<usize, Error> {
    if (least..=most).contains(&value) {
        Ok(usize::try_from(value).expect("ranges begin at 0 or above"))
    } else {
        Err(Error::OutOfRange { field, value, least, most })
    }
}
