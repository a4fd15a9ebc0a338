//! Reads a scenario file: the wish, the Pods as short lines, and the plan that is expected.
//!
//! Anything that is not understood is an error that names the words that would be.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::given;
use super::model::{
    Desired, EarlyEnds, Endpoint, ExposedKind, Exposure, Gate, GateTrouble, Leftover, Lifecycle, NodeHealth,
    NodeName, NodeView, ObjectState, Others, Ownership, Part, PodName, PodShare, PodView, Revision, Role,
    RoleLabels, ScaleIn, Snapshot, Strategies, Strategy, Subset, SubsetName, Topology, Uid, UpdateKind,
    UpdatePolicy,
};

/// One situation and the whole plan for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) title: String,
    pub(crate) why: String,
    #[serde(default)]
    set: Wish,
    #[serde(default)]
    service: ServiceWord,
    #[serde(default)]
    exposed: Vec<String>,
    /// What else leads clients somewhere.
    #[serde(default)]
    others: OthersWord,
    #[serde(default)]
    group: ServiceWord,
    level: Option<BTreeSet<String>>,
    /// The PodDisruptionBudget.
    #[serde(default)]
    budget: ServiceWord,
    #[serde(default)]
    leftovers: Vec<String>,
    storm: Option<StormCount>,
    /// Seconds for which each Pod that ended early waits for its replacement.
    #[serde(default, rename = "endedEarly")]
    ended_early: Option<Vec<i64>>,
    /// Woken Pods in a row that were given up.
    #[serde(default, rename = "dualStack")]
    is_dual_stack: bool,
    #[serde(default, rename = "absentFamily")]
    lacks_second_slice: bool,
    #[serde(default, rename = "wokenInVain")]
    woken_in_vain: usize,
    #[serde(default)]
    nodes: BTreeMap<String, String>,
    #[serde(default)]
    pods: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) steps: Vec<String>,
    #[serde(default)]
    pub(crate) holds: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StormCount {
    lost: usize,
    total: usize,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum OthersWord {
    #[default]
    None,
    Unknown,
    Standing,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ServiceWord {
    #[default]
    None,
    Current,
    Missing,
    Outdated,
    Foreign,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Wish {
    replicas: usize,
    hot_backups: usize,
    cold_backups: usize,
    strategy: StrategyWish,
    wakeup_timeout: i64,
    min_ready_seconds: i64,
    failover_delay_seconds: i64,
    unready_deadline_seconds: i64,
    scale_in_policy: ScaleInWord,
    update_strategy: UpdateWish,
    subsets: Vec<SubsetWish>,
    rebalance: RebalanceWord,
    reschedule_critical_seconds: Option<i64>,
    paused: bool,
    unusable: bool,
    spec_just_changed: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            replicas: 1,
            hot_backups: 0,
            cold_backups: 0,
            strategy: StrategyWish::default(),
            wakeup_timeout: 5,
            min_ready_seconds: 0,
            failover_delay_seconds: 0,
            unready_deadline_seconds: 300,
            scale_in_policy: ScaleInWord::Delete,
            update_strategy: UpdateWish::default(),
            subsets: Vec::new(),
            rebalance: RebalanceWord::Roles,
            reschedule_critical_seconds: None,
            paused: false,
            unusable: false,
            spec_just_changed: false,
        }
    }
}

impl Wish {
    fn subset(&self, wish: &SubsetWish) -> Subset {
        Subset {
            name: SubsetName(wish.name.clone()),
            replicas: wish.replicas,
            hot_backups: wish.hot_backups,
            cold_backups: wish.cold_backups,
            partition: self.update_strategy.partitions.get(&wish.name).copied().unwrap_or(0),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct StrategyWish {
    hotbackup_to_replicas: StrategyWord,
    coldbackup_to_replicas: StrategyWord,
    coldbackup_to_hotbackup: StrategyWord,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StrategyWord {
    #[default]
    Best,
    Random,
    Oldest,
    Newest,
    Spread,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum ScaleInWord {
    #[default]
    Delete,
    Demote,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum UpdateWord {
    #[default]
    BackupFirst,
    OnDelete,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct UpdateWish {
    r#type: UpdateWord,
    max_unavailable: usize,
    max_surge: usize,
    partition: usize,
    partitions: BTreeMap<String, usize>,
}

impl Default for UpdateWish {
    fn default() -> Self {
        Self {
            r#type: UpdateWord::BackupFirst,
            max_unavailable: 1,
            max_surge: 1,
            partition: 0,
            partitions: BTreeMap::new(),
        }
    }
}

/// A subset of the nodes with what it is to have of the counts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct SubsetWish {
    name: String,
    replicas: usize,
    hot_backups: usize,
    cold_backups: usize,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
enum RebalanceWord {
    #[default]
    Roles,
    Never,
}

/// Reads one file.
pub(crate) fn read(text: &str) -> Result<Scenario, String> {
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

impl Scenario {
    /// The snapshot that the file describes.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, String> {
        let mut pods = Vec::new();
        for (slot, (name, line)) in self.pods.iter().enumerate() {
            let slot = u32::try_from(slot).map_err(|error| error.to_string())?;
            pods.push(self.pod((name, slot), line).map_err(|error| format!("pod {name}: {error}"))?);
        }
        let exposure = self.exposure(&pods)?;
        let leftovers = self.leftovers.iter().map(|name| leftover(name)).collect();
        let (group, budget) = (state(self.group), state(self.budget));
        let storm = self.storm.map(|StormCount { lost, total }| given::storm(lost, total));
        let level = self.level.as_ref().map(|names| names.iter().cloned().map(PodName).collect());
        let mut snapshot = given::snapshot(self.desired(), pods);
        snapshot.recent.timeouts_in_a_row = self.woken_in_vain;
        snapshot.recent.early_ends = self.ended_early.as_ref().map(|waits| EarlyEnds {
            until: waits.iter().map(|wait| given::now() + SignedDuration::from_secs(*wait)).collect(),
            words: String::new(),
        });
        Ok(Snapshot { exposure, leftovers, budget, group, level, storm, ..snapshot })
    }

    fn desired(&self) -> Desired {
        let wish = &self.set;
        Desired {
            strategies: Strategies {
                hot_to_primary: strategy(wish.strategy.hotbackup_to_replicas),
                cold_to_primary: strategy(wish.strategy.coldbackup_to_replicas),
                cold_to_hot: strategy(wish.strategy.coldbackup_to_hotbackup),
            },
            wakeup_timeout: SignedDuration::from_secs(wish.wakeup_timeout),
            min_ready: SignedDuration::from_secs(wish.min_ready_seconds),
            failover_delay: SignedDuration::from_secs(wish.failover_delay_seconds),
            unready_deadline: match wish.unready_deadline_seconds {
                0 => SignedDuration::MAX,
                seconds => SignedDuration::from_secs(seconds),
            },
            scale_in: match wish.scale_in_policy {
                ScaleInWord::Delete => ScaleIn::Delete,
                ScaleInWord::Demote => ScaleIn::Demote,
            },
            update: UpdatePolicy {
                kind: match wish.update_strategy.r#type {
                    UpdateWord::BackupFirst => UpdateKind::BackupFirst,
                    UpdateWord::OnDelete => UpdateKind::OnDelete,
                },
                max_unavailable: PodShare::Pods(wish.update_strategy.max_unavailable),
                max_surge: PodShare::Pods(wish.update_strategy.max_surge),
                partition: wish.update_strategy.partition,
            },
            topology: Topology {
                subsets: wish.subsets.iter().map(|subset| wish.subset(subset)).collect(),
                rebalances: wish.rebalance == RebalanceWord::Roles,
                patience: wish.reschedule_critical_seconds.map(SignedDuration::from_secs),
            },
            paused: wish.paused,
            can_create: !wish.unusable,
            is_new_generation: wish.spec_just_changed,
            ..given::desired([wish.replicas, wish.hot_backups, wish.cold_backups])
        }
    }

    fn exposure(&self, pods: &[PodView]) -> Result<Option<Exposure>, String> {
        let state = match state(self.service) {
            None if self.exposed.is_empty() => return Ok(None),
            None => return Err("`exposed` needs a `service`".into()),
            Some(state) => state,
        };
        let (mut endpoints, mut others) = (Vec::new(), Vec::new());
        for line in &self.exposed {
            let (line, is_of_one_family) = without(line, " (IPv4 only)");
            let (name, is_terminating) = without(line, " (terminating)");
            let view = pods
                .iter()
                .find(|view| view.pod.name.0 == name)
                .ok_or_else(|| format!("exposed: no pod {name}; write `name` or `name (terminating)`"))?;
            let shown = endpoint(view, is_terminating)?;
            let other = view.other_address.filter(|_| !is_of_one_family);
            others.extend(other.map(|address| Endpoint { address, ..shown.clone() }));
            endpoints.push(shown);
        }
        endpoints.sort();
        others.sort();
        // A Service that is not as wanted still has the slice that was written last.
        let slice = match state {
            ObjectState::Outdated | ObjectState::Foreign => ObjectState::Current,
            ObjectState::Absent | ObjectState::Current => state,
        };
        let exposure = given::exposure(slice, endpoints);
        let mut exposure = if self.is_dual_stack { given::dual_stack(exposure, others) } else { exposure };
        if self.lacks_second_slice {
            exposure.slices.iter_mut().skip(1).for_each(|slice| slice.state = ObjectState::Absent);
        }
        let others = match self.others {
            OthersWord::None => Others::None,
            OthersWord::Unknown => Others::Unknown,
            OthersWord::Standing => Others::Standing {
                objects: vec!["endpointslice/web-mine".to_owned()],
                until: given::now() + SignedDuration::from_secs(60),
            },
        };
        Ok(Some(Exposure { service: state, others, ..exposure }))
    }

    fn pod(&self, (name, slot): (&str, u32), line: &str) -> Result<PodView, String> {
        let mut words = line.split(',').map(str::trim);
        let role = words.next().and_then(Role::parse).ok_or("the line starts with primary, hot or cold")?;
        let mut view = given::pod(name, role, slot);
        for word in words {
            self.describe(&mut view, word)?;
        }
        Ok(view)
    }

    fn describe(&self, view: &mut PodView, word: &str) -> Result<(), String> {
        if let Some(name) = word.strip_prefix("node ") {
            view.node = Some(self.node(name)?);
            return Ok(());
        }
        if set_lifecycle(view, word)? || set_gate(view, word)? {
            return Ok(());
        }
        match word.split_once(' ').unwrap_or((word, "")) {
            ("old", "template") => view.revision = given::outdated(),
            ("broken", "template") => view.revision = Revision("broken".into()),
            ("acts", peer) => view.part = Part::Active { peer: named(peer, "beside ") },
            ("stands", peer) => {
                view.part = Part::Standby { peers: named(peer, "by for ").into_iter().collect() }
            }
            ("ended", "early") => view.signs.has_ended_early = true,
            ("wrong", "labels") => view.labels = RoleLabels::Wrong,
            ("subset", name) => {
                let mut known = self.set.subsets.iter();
                let index = known.position(|subset| subset.name == name);
                view.subset = Some(index.ok_or_else(|| format!("`{name}` is not among `subsets`"))?);
            }
            ("at", "work") => view.signs.is_at_work = true,
            ("progress", age) => view.signs.progressed = Some(ago(age)?),
            ("orphan", "") => view.ownership = Ownership::Orphan,
            ("key", "retired") => view.has_known_key = false,
            ("gate", rest) if rest.starts_with("fails ") => {
                let since = ago(rest.strip_prefix("fails ").unwrap_or(rest))?;
                view.gate_trouble = Some(GateTrouble { since, words: "ErrImagePull".into() });
            }
            ("no", "address") => view.address = None,
            ("two", "addresses") => view.other_address = Some(given::other_address(view.slot)),
            ("uid", uid) if !uid.is_empty() => view.pod.uid.0 = uid.into(),
            ("age", age) => view.created = ago(age)?,
            ("role", rest) => view.role_since = ago(rest.strip_prefix("for ").unwrap_or(rest))?,
            ("first", rest) => {
                view.first_ticket = Some(ago(rest.strip_prefix("ticket ").unwrap_or(rest))?);
            }
            ("ticket", rest) => {
                let wait = seconds(rest.strip_prefix("in ").unwrap_or(rest))?;
                view.next_ticket = Some(given::now() + SignedDuration::from_secs(wait));
            }
            _ => return Err(format!("`{word}` is not understood; see tests/scenarios/README.md")),
        }
        Ok(())
    }

    fn node(&self, name: &str) -> Result<NodeView, String> {
        let mut view = given::node(name, NodeHealth::Healthy);
        view.name = NodeName(name.into());
        for word in self.nodes.get(name).map_or("", String::as_str).split(',').map(str::trim) {
            match word.split_once(' ').unwrap_or((word, "")) {
                ("" | "healthy", "") => view.health = NodeHealth::Healthy,
                ("cordoned", "") => view.health = NodeHealth::Cordoned,
                ("not", "ready") => view.health = NodeHealth::NotReady,
                ("gone", "") => view.health = NodeHealth::Gone,
                ("zone", zone) if !zone.is_empty() => view.zone = Some(zone.into()),
                ("domain", domain) if !domain.is_empty() => view.domain = Some(domain.into()),
                _ => {
                    return Err(format!(
                        "node {name}: `{word}` is not cordoned, not ready, gone, zone <name> or domain <name>"
                    ));
                }
            }
        }
        view.domain = view.domain.or_else(|| view.zone.clone());
        Ok(view)
    }
}

const fn state(word: ServiceWord) -> Option<ObjectState> {
    match word {
        ServiceWord::None => None,
        ServiceWord::Current => Some(ObjectState::Current),
        ServiceWord::Missing => Some(ObjectState::Absent),
        ServiceWord::Outdated => Some(ObjectState::Outdated),
        ServiceWord::Foreign => Some(ObjectState::Foreign),
    }
}

fn named(words: &str, before: &str) -> Option<PodName> {
    words.strip_prefix(before).map(|name| PodName(name.into()))
}

fn set_lifecycle(view: &mut PodView, word: &str) -> Result<bool, String> {
    let (first, rest) = word.split_once(' ').unwrap_or((word, "0s"));
    view.lifecycle = match first {
        "ready" => Lifecycle::Ready { since: ago(rest)? },
        "unready" => Lifecycle::Unready { since: ago(rest)? },
        "starting" => Lifecycle::Starting,
        "unscheduled" => Lifecycle::Unscheduled,
        "finished" => Lifecycle::Finished,
        "terminating" => Lifecycle::Terminating,
        _ => return Ok(false),
    };
    let is_up = matches!(view.lifecycle, Lifecycle::Ready { .. });
    view.is_running = is_up;
    view.is_serving = is_up || word == "terminating but serving";
    if view.lifecycle == Lifecycle::Unscheduled {
        view.node = None;
        view.address = None;
    }
    Ok(true)
}

fn set_gate(view: &mut PodView, word: &str) -> Result<bool, String> {
    let is_running = word.starts_with("let through and running");
    let (gate, lifecycle) = if word == "no gate" {
        (Gate::None, view.lifecycle)
    } else if word == "before gate" {
        (Gate::Ahead, view.lifecycle)
    } else if let Some(rest) = word.strip_prefix("at gate") {
        (Gate::Listening { since: ago_or_settled(rest)? }, Lifecycle::Starting)
    } else if let Some(rest) =
        word.strip_prefix("let through and running").or_else(|| word.strip_prefix("let through"))
    {
        let lifecycle = if view.role == Role::Cold { Lifecycle::Starting } else { view.lifecycle };
        (Gate::Passed { since: ago_or_settled(rest)? }, lifecycle)
    } else {
        return Ok(false);
    };
    (view.gate, view.lifecycle) = (gate, lifecycle);
    view.is_running = is_running || view.is_ready();
    Ok(true)
}

fn ago_or_settled(rest: &str) -> Result<Timestamp, String> {
    if rest.is_empty() { Ok(given::seconds_ago(1_000)) } else { ago(rest.trim()) }
}

fn ago(text: &str) -> Result<Timestamp, String> {
    seconds(text).map(given::seconds_ago)
}

fn seconds(text: &str) -> Result<i64, String> {
    let digits = text.strip_suffix('s').unwrap_or(text);
    digits.parse().map_err(|_| format!("`{text}` is not a number of seconds such as 30s"))
}

const fn strategy(word: StrategyWord) -> Strategy {
    match word {
        StrategyWord::Best => Strategy::Best,
        StrategyWord::Random => Strategy::Random,
        StrategyWord::Oldest => Strategy::Oldest,
        StrategyWord::Newest => Strategy::Newest,
        StrategyWord::Spread => Strategy::Spread,
    }
}

/// A line without this mark, and whether it had it.
fn without<'a>(line: &'a str, mark: &str) -> (&'a str, bool) {
    line.strip_suffix(mark).map_or((line, false), |name| (name, true))
}

fn endpoint(view: &PodView, is_terminating: bool) -> Result<Endpoint, String> {
    Ok(Endpoint {
        pod: view.pod.name.clone(),
        uid: view.pod.uid.clone(),
        address: view.address.ok_or_else(|| format!("exposed: pod {} has no address", view.pod.name))?,
        node: view.node.as_ref().map(|node| node.name.clone()),
        zone: view.node.as_ref().and_then(|node| node.zone.clone()),
        is_ready: !is_terminating,
        is_terminating,
    })
}

/// A Service that an earlier spec named.
fn leftover(name: &str) -> Leftover {
    let (uid, resource_version) = (Uid(format!("uid-{name}")), "1".into());
    Leftover { kind: ExposedKind::Service, name: name.into(), uid, resource_version }
}
