//! Reads a spec into a wish, and says what is wrong with one that slipped past the API server's checks.

use bps_api::{
    BackupPodSet, BackupPodSetSpec, CandidateChoice, CountOrPercent, N_WAY_REFUSED, Rebalance,
    RedundancyModel, ScaleInPolicy, ScheduleStrategyType, TopologySubset, UpdateStrategyType, keys,
};
use bps_core::manifests::{
    InjectError, PortError, check_agent, revision, set_group_spec, set_injection, slice_ports,
};
use bps_core::model::{
    Desired, PodShare, RedundancyPromise, Revision, ScaleIn, Strategies, Strategy, Subset, SubsetName,
    SubsetShare, Topology, Uid, UpdateKind, UpdatePolicy, share_out,
};
use jiff::SignedDuration;
use serde_json::Value;

use super::readable::Unread;
use super::subset;

/// Why a set cannot be acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field is of a kind that this version does not know.
    #[error(transparent)]
    Unreadable(Unread),
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
    /// A text is no share.
    #[error("spec.{field} is {value:?}: write a number, or a share such as 25%")]
    NoShare {
        /// Field of the spec.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// Shares of subsets are more than all Pods.
    #[error(
        "spec.topology.subsets: percentages of {field} add up to {sum}%: write shares that are 100% together at most"
    )]
    TooMuch {
        /// Field of the subsets.
        field: &'static str,
        /// What they add up to. Unit: percent.
        sum: usize,
    },
    /// A partition is for a subset that is not there.
    #[error(
        "spec.updateStrategy.partitions names {name:?}, which is no subset: write names of spec.topology.subsets only, or leave \
         {name:?} out"
    )]
    NoSubset {
        /// The name.
        name: String,
    },
    /// The API server would refuse every Pod of a subset.
    #[error("spec.topology.subsets: subset {name:?}: {refusal}")]
    SubsetRefused {
        /// Its name.
        name: String,
        /// What is wrong with it, and what to write.
        refusal: &'static str,
    },
    /// No set has this model of redundancy.
    #[error("spec.{}", N_WAY_REFUSED)]
    NWay,
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
    /// The template cannot run an agent.
    #[error("spec.activeStandby: {0}")]
    Agent(InjectError),
    /// The operator knows no agent to put into Pods.
    #[error(
        "spec.activeStandby needs an operator that knows the image of the agent: start it with --agent-image, set \
         agentImage of the chart, or write agentSource Image"
    )]
    NoAgentImage,
}

/// What follows from a spec alone and takes long to find out, as the whole template is read for it: it is kept until there is
/// another spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compiled {
    /// Name of the template.
    pub revision: Revision,
    /// What is wrong with the spec, if something is: the API server has checks for most of it, which may have been bypassed.
    pub error: Option<Error>,
}

/// Reads the spec of a set of which all was understood, but for what is `unread`.
pub(super) fn compile(set: &BackupPodSet, unread: Option<Unread>, agent_image: Option<&str>) -> Compiled {
    let revision = revision(&set.spec);
    let error = unread
        .map(Error::Unreadable)
        .or_else(|| read(set, revision.clone()).1)
        .or_else(|| check_pairs(set, agent_image).err())
        .or_else(|| check_service(set).err());
    Compiled { revision, error }
}

fn check_pairs(set: &BackupPodSet, agent_image: Option<&str>) -> Result<(), Error> {
    if set_group_spec(set).map_err(Error::Port)?.is_none() {
        return Ok(());
    }
    let injection = set_injection(set, agent_image).ok_or(Error::NoAgentImage)?;
    check_agent(set, &injection).map_err(Error::Agent)
}

fn check_service(set: &BackupPodSet) -> Result<(), Error> {
    let Some(wanted) = set.spec.service.as_ref().filter(|_| set.spec.active_standby.is_none()) else {
        return Ok(());
    };
    slice_ports(set, wanted).map(drop).map_err(Error::Port)
}

/// The wish of a spec whose template has this revision; numbers out of their range are read as the nearest one in it.
pub(super) fn desired(set: &BackupPodSet, revision: Revision) -> Desired {
    read(set, revision).0
}

/// The wish of a spec that cannot be used: numbers are read as well as can be, and Pods stay as they are, in a rollout as well.
pub(super) fn as_it_is(set: &BackupPodSet, revision: Revision) -> Desired {
    let desired = desired(set, revision);
    let last = set.status.as_ref().map(|status| Revision(status.update_revision.clone()));
    let update = UpdatePolicy { kind: UpdateKind::OnDelete, ..desired.update };
    Desired { can_create: false, revision: last.unwrap_or(desired.revision), update, ..desired }
}

/// The wish, and what is wrong with what it was read from.
pub(super) fn read(set: &BackupPodSet, revision: Revision) -> (Desired, Option<Error>) {
    let spec = &set.spec;
    let status = set.status.as_ref();
    let collisions = status.map_or(0, |status| status.collision_count);
    let mut reader = Reader { error: check_template(spec).err() };
    let desired = Desired {
        name: set.metadata.name.clone().unwrap_or_default(),
        uid: Uid(set.metadata.uid.clone().unwrap_or_default()),
        replicas: reader.number("replicas", spec.replicas, COUNT_RANGE),
        hot_backups: reader.number("hotBackups", spec.hot_backups, COUNT_RANGE),
        cold_backups: reader.number("coldBackups", spec.cold_backups, COUNT_RANGE),
        standby_for: standby_for(spec),
        promise: promise(&mut reader, spec),
        strategies: strategies(spec),
        wakeup_timeout: reader.seconds("wakeupTimeout", spec.wakeup_timeout, (1, 3600)),
        min_ready: reader.seconds("minReadySeconds", spec.min_ready_seconds, DAY_RANGE),
        progress_deadline: reader.seconds(
            "progressDeadlineSeconds",
            spec.progress_deadline_seconds,
            PROGRESS_DEADLINE_RANGE,
        ),
        failover_delay: reader.seconds("failoverDelaySeconds", spec.failover_delay_seconds, DAY_RANGE),
        unready_deadline: unready_deadline(&mut reader, spec),
        topology: topology(&mut reader, spec),
        scale_in: match spec.scale_in_policy {
            ScaleInPolicy::Delete => ScaleIn::Delete,
            ScaleInPolicy::Demote => ScaleIn::Demote,
        },
        update: update(&mut reader, spec),
        paused: spec.paused,
        can_create: true,
        revision,
        collisions: u32::try_from(collisions).unwrap_or(0),
        is_new_generation: set.metadata.generation.unwrap_or(0)
            != status.map_or(0, |status| status.observed_generation),
    };
    (desired, reader.error)
}

/// Range of the three counts, as in the CRD.
const COUNT_RANGE: (i32, i32) = (0, 1000);

/// Range of most times in seconds, as in the CRD.
const DAY_RANGE: (i32, i32) = (0, 86_400);

/// Range of a number of Pods that an update may concern at a time, as in the CRD.
const SHARE_RANGE: (i32, i32) = (1, 1000);

/// Range of the progress deadline in seconds, as in the CRD.
const PROGRESS_DEADLINE_RANGE: (i32, i32) = (1, 86_400);

/// Reads numbers and keeps the first error.
struct Reader {
    error: Option<Error>,
}

impl Reader {
    fn number(&mut self, field: &'static str, value: i32, (least, most): (i32, i32)) -> usize {
        if !(least..=most).contains(&value) && self.error.is_none() {
            self.error = Some(Error::OutOfRange { field, value, least, most });
        }
        usize::try_from(value.clamp(least, most)).expect("ranges begin at 0 or above")
    }

    fn share(&mut self, field: &'static str, value: &CountOrPercent) -> PodShare {
        match value {
            CountOrPercent::Number(number) => PodShare::Pods(self.number(field, *number, SHARE_RANGE)),
            CountOrPercent::Percent(text) => PodShare::Percent(self.percent(field, text, 1)),
        }
    }

    fn percent(&mut self, field: &'static str, text: &str, least: i32) -> usize {
        let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i32>().ok());
        if percent.is_none() && self.error.is_none() {
            self.error = Some(Error::NoShare { field, value: text.to_owned() });
        }
        self.number(field, percent.unwrap_or(least), (least, 100))
    }

    /// The share of a subset in the Pods of one tier.
    fn part(&mut self, field: &'static str, bounds: Bounds<'_>) -> SubsetShare {
        let Bounds { exact, least, most } = bounds;
        match exact {
            Some(CountOrPercent::Number(number)) => {
                SubsetShare::Pods(self.number(field, *number, COUNT_RANGE))
            }
            Some(CountOrPercent::Percent(text)) => SubsetShare::Percent(self.percent(field, text, 0)),
            None => SubsetShare::Within {
                least: least.map_or(0, |least| self.number(field, least, COUNT_RANGE)),
                most: most.map(|most| self.number(field, most, COUNT_RANGE)),
            },
        }
    }

    /// The API server cannot add up what is in texts.
    fn check_percentages(&mut self, field: &'static str, shares: &[SubsetShare]) {
        let percent = |share: &SubsetShare| match share {
            SubsetShare::Percent(percent) => *percent,
            SubsetShare::Pods(_) | SubsetShare::Within { .. } => 0,
        };
        let sum: usize = shares.iter().map(percent).sum();
        if sum > 100 && self.error.is_none() {
            self.error = Some(Error::TooMuch { field, sum });
        }
    }

    fn seconds(&mut self, field: &'static str, value: i32, range: (i32, i32)) -> SignedDuration {
        self.number(field, value, range);
        SignedDuration::from_secs(i64::from(value.clamp(range.0, range.1)))
    }
}

/// For how many primaries one hot backup stands by.
fn standby_for(spec: &BackupPodSetSpec) -> usize {
    let places = spec.active_standby.as_ref().and_then(|wanted| wanted.standby_for);
    places.and_then(|places| usize::try_from(places).ok()).unwrap_or(1).max(1)
}

/// The promise of the set.
fn promise(reader: &mut Reader, spec: &BackupPodSetSpec) -> Option<RedundancyPromise> {
    match spec.redundancy_model? {
        RedundancyModel::None => Some(RedundancyPromise::NoRedundancy),
        RedundancyModel::NWayActive => Some(RedundancyPromise::NWayActive),
        RedundancyModel::NPlusM => Some(RedundancyPromise::NPlusM),
        RedundancyModel::TwoN => Some(RedundancyPromise::TwoN),
        RedundancyModel::NWay => {
            reader.error.get_or_insert(Error::NWay);
            None
        }
    }
}

/// The subsets with their shares of the counts.
fn topology(reader: &mut Reader, spec: &BackupPodSetSpec) -> Topology {
    let Some(wanted) = &spec.topology else { return Topology::default() };
    let subsets = &wanted.subsets;
    let refusal = |subset: &TopologySubset| {
        let refusal = subset::refusal(subset)?;
        Some(Error::SubsetRefused { name: subset.name.clone(), refusal })
    };
    if let Some(refused) = subsets.iter().find_map(refusal) {
        reader.error.get_or_insert(refused);
    }
    let mut above = vec![0; subsets.len()];
    let mut shared = |field, count, bounds: fn(&TopologySubset) -> Bounds<'_>| {
        let shares: Vec<SubsetShare> =
            subsets.iter().map(|subset| reader.part(field, bounds(subset))).collect();
        reader.check_percentages(field, &shares);
        let given = share_out(&shares, usize::try_from(count).unwrap_or(0), &above);
        above.iter_mut().zip(&given).for_each(|(above, given)| *above += given);
        given
    };
    let replicas = shared("replicas", spec.replicas, |subset| Bounds {
        exact: subset.replicas.as_ref(),
        least: subset.min_replicas,
        most: subset.max_replicas,
    });
    let hot_backups = shared("hotBackups", spec.hot_backups, |subset| Bounds {
        exact: subset.hot_backups.as_ref(),
        least: subset.min_hot_backups,
        most: subset.max_hot_backups,
    });
    let cold_backups = shared("coldBackups", spec.cold_backups, |subset| Bounds {
        exact: subset.cold_backups.as_ref(),
        least: subset.min_cold_backups,
        most: subset.max_cold_backups,
    });
    let partition = |reader: &mut Reader, name: &str| {
        let partition = spec.update_strategy.partitions.get(name).copied().unwrap_or(0);
        reader.number("updateStrategy.partitions", partition, COUNT_RANGE)
    };
    let partitions: Vec<usize> = subsets.iter().map(|subset| partition(reader, &subset.name)).collect();
    let subset = |index: usize| Subset {
        name: SubsetName(subsets[index].name.clone()),
        replicas: replicas[index],
        hot_backups: hot_backups[index],
        cold_backups: cold_backups[index],
        partition: partitions[index],
    };
    let critical = wanted.schedule_strategy.adaptive.reschedule_critical_seconds;
    let patience =
        reader.seconds("topology.scheduleStrategy.adaptive.rescheduleCriticalSeconds", critical, (1, 3600));
    Topology {
        subsets: (0..subsets.len()).map(subset).collect(),
        rebalances: wanted.rebalance == Rebalance::Roles,
        patience: match wanted.schedule_strategy.r#type {
            ScheduleStrategyType::Fixed => None,
            ScheduleStrategyType::Adaptive => Some(patience),
        },
    }
}

/// What a subset says of one tier.
struct Bounds<'a> {
    exact: Option<&'a CountOrPercent>,
    least: Option<i32>,
    most: Option<i32>,
}

fn update(reader: &mut Reader, spec: &BackupPodSetSpec) -> UpdatePolicy {
    let wanted = &spec.update_strategy;
    let subsets = spec.topology.as_ref().map_or(&[][..], |topology| &topology.subsets[..]);
    let is_subset = |name: &str| subsets.iter().any(|subset| subset.name == name);
    if let Some(name) = wanted.partitions.keys().find(|name| !is_subset(name)) {
        reader.error.get_or_insert(Error::NoSubset { name: name.clone() });
    }
    UpdatePolicy {
        kind: match wanted.r#type {
            UpdateStrategyType::BackupFirst => UpdateKind::BackupFirst,
            UpdateStrategyType::OnDelete => UpdateKind::OnDelete,
        },
        max_unavailable: reader.share("updateStrategy.maxUnavailable", &wanted.max_unavailable),
        max_surge: reader.share("updateStrategy.maxSurge", &wanted.max_surge),
        partition: reader.number("updateStrategy.partition", wanted.partition, COUNT_RANGE),
    }
}

/// 0 stands for "never".
fn unready_deadline(reader: &mut Reader, spec: &BackupPodSetSpec) -> SignedDuration {
    match reader.seconds("unreadyDeadlineSeconds", spec.unready_deadline_seconds, DAY_RANGE) {
        SignedDuration::ZERO => SignedDuration::MAX,
        deadline => deadline,
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
    let Some(metadata) = &spec.template.metadata else { return Ok(()) };
    let has_prefix = |key: &&String| key.starts_with(keys::PREFIX);
    let is_reserved = |key: &&String| has_prefix(key) || keys::RESERVED_LABELS.contains(&key.as_str());
    let label = metadata.labels.keys().find(is_reserved);
    match label.or_else(|| metadata.annotations.keys().find(has_prefix)) {
        Some(key) => Err(Error::ReservedKey { key: key.clone() }),
        None => Ok(()),
    }
}
