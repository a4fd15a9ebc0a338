//! Breaks something of a set on purpose, and says whether that went as it was foretold.
//!
//! Nothing is broken that the set would not outlive, nor while it is paused, comes to rest or has another drill. What was done to a
//! node is undone at the end, also when time is up.

use std::time::{Duration, Instant};

use bps_api::{BackupPodSet, keys};
use bps_core::model::Role;
use bps_observe::slim::{SlimNode, SlimPod};
use jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::{DrillArguments, WhatifArguments};
use super::cluster::{Cluster, Subject};
use super::report::{Readiness, set_report};
use super::scene::Scene;
use super::whatif::{Prospect, Tiers, prospect};
use super::{Error, document};

/// Pause between two looks: what is shorter is not seen.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the requests of a drill take at most beside its time: as often as one may be tried, 30 s each.
const REQUESTS_WITHIN: Duration = Duration::from_secs(300);
/// Most attempts to cordon a node and to take that back, and to note how a drill ended.
const ATTEMPTS_MAX: u32 = 5;
/// Pause between them.
const UNDO_PAUSE: Duration = Duration::from_secs(1);

/// A drill, as it is noted in an annotation of its set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drill {
    /// What was done.
    pub fault: String,
    /// When.
    pub began: Timestamp,
    /// Until when it goes on at the longest; absent when it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What became of it; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<DrillOutcome>,
}

/// What became of a drill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrillOutcome {
    /// Whether as many primaries were ready in the end as are wanted.
    pub survived: bool,
    /// Whether each tier had the Pods in the end that were foretold.
    pub as_foretold: bool,
    /// For how long fewer primaries were ready than are wanted, in steps of 0.05 s.
    pub short_for_seconds: f64,
    /// How long it took until everything was as foretold, or until time was up.
    pub seconds: f64,
}

impl Drill {
    /// The last drill of a set, if there was one that can be read.
    pub fn of(set: &BackupPodSet) -> Option<Self> {
        serde_json::from_str(set.annotations().get(keys::ANNOTATION_DRILL)?).ok()
    }

    /// In a few words.
    pub fn words(&self, now: Timestamp) -> String {
        let Self { fault, began, until, outcome } = self;
        let Some(DrillOutcome { survived, as_foretold, short_for_seconds, seconds }) = outcome else {
            let goes_on = until.is_some_and(|until| until > now);
            let fate = if goes_on { "it goes on" } else { "its program has ended and undone nothing" };
            return format!("{began:.0}: {fault}; {fate}");
        };
        let survived = if *survived { "outlived" } else { "not outlived" };
        let foretold = if *as_foretold { "as foretold" } else { "not as foretold" };
        format!(
            "{began:.0}: {fault}; {survived}, {foretold} after {seconds:.1} s, fewer primaries for {short_for_seconds:.2} s"
        )
    }
}

/// What is broken.
pub(super) enum Fault {
    Pod(String),
    Cordon(String),
}

/// What a drill found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    namespace: String,
    name: String,
    #[serde(flatten)]
    drill: Drill,
    expected: Tiers,
    found: Tiers,
}

impl Report {
    fn text(&self) -> String {
        let Self { namespace, name, drill, expected, found } = self;
        let tiers = |Tiers { primary, hot, cold }: &Tiers| {
            let [primary, hot, cold] = [primary, hot, cold].map(|names| names.join(", "));
            format!("primaries {primary}; hot backups {hot}; cold backups {cold}")
        };
        let mut text =
            format!("BackupPodSet {namespace}/{name}: {}\n  {}\n", drill.words(drill.began), tiers(found));
        if expected != found {
            text.extend(["  Foretold: ", &tiers(expected), "\n"]);
        }
        text
    }
}

/// Breaks, waits, undoes and notes.
///
/// # Errors
/// `Usage` if what is to be broken is not there, `Refused` if the set would not outlive it or is not at rest, `Request` if it may not
/// be done, `Partly` with the text if the set did not outlive it.
pub async fn run(cluster: &Cluster, wanted: &DrillArguments) -> Result<String, Error> {
    let set = match cluster.subject(&wanted.set).await? {
        Subject::Set(set) => *set,
        Subject::Group(group) => {
            let name = group.name_any();
            return Err(Error::Usage(format!(
                "{name} is an HAGroup: `kubectl bps switchover {name}` tries its standby"
            )));
        }
    };
    let fault = match (&wanted.pod, &wanted.cordon) {
        (Some(pod), _) => Fault::Pod(pod.clone()),
        (None, Some(node)) => Fault::Cordon(node.clone()),
        (None, None) => return Err(Error::Usage("say what is to be broken: --pod or --cordon".to_owned())),
    };
    let scene = Scene::take(cluster, set.clone()).await?;
    let foretold = permitted(&scene, &fault)?;

    let drill = Drill {
        fault: foretold.losses.join(", "),
        began: scene.taken,
        until: deadline(wanted.timeout),
        outcome: None,
    };
    // From here on whoever ends this program waits until everything is undone.
    let mut ended = Box::pin(ended()?);
    begin(cluster, &set, &drill).await?;
    let going = async {
        fault.strike(cluster, &scene).await?;
        Ok(watched(cluster, &set, &foretold, wanted.timeout).await)
    };
    let (went, is_interrupted) = tokio::select! {
        went = going => (went, false),
        () = &mut ended => (Err(Error::Refused("the drill was interrupted".to_owned())), true),
    };
    // What was refused was not done, and somebody else may have cordoned the node.
    let is_undone = !is_interrupted && went.as_ref().is_err_and(Error::is_refusal);
    let undone = if is_undone { Ok(()) } else { fault.undo(cluster).await };
    let outcome = went.as_ref().ok().map(|(outcome, _)| outcome.clone());
    let over = outcome.map(|outcome| Drill { until: None, outcome: Some(outcome), ..drill.clone() });
    let noted = conclude(cluster, &set, &drill, over.as_ref()).await;
    // What is still broken is told first.
    undone?;
    let (outcome, found) = went?;
    noted?;

    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    let drill = over.unwrap_or(drill);
    let report = Report { namespace, name, drill, expected: foretold.tiers, found };
    let text = document::formed(wanted.output, &report, || report.text())?;
    if outcome.survived {
        return Ok(text);
    }
    Err(Error::Refused("the set did not outlive the drill".to_owned()).after(text))
}

/// What is foretold, if there is nothing against it.
pub(super) fn permitted(scene: &Scene, fault: &Fault) -> Result<Prospect, Error> {
    let refuse = |why: String| Err(Error::Refused(why));
    let (set, name) = (&scene.set, scene.set.name_any());
    if set.spec.paused {
        return refuse(format!("{name} is paused: end that by `kubectl bps resume bps/{name}`"));
    }
    let running = Drill::of(set).and_then(|drill| Some((drill.until?, drill.fault)));
    if let Some((until, other)) = running.filter(|(until, _)| *until > scene.taken) {
        return refuse(format!("another drill goes on until {until:.0} at the longest: {other}"));
    }
    let now = tiers(set, &scene.objects.pods);
    let still = prospect(scene.clone(), &WhatifArguments::default())?;
    if scene.nodes.is_none() || scene.requested.is_none() {
        return refuse(
            "a drill needs to list nodes and the Pods of all namespaces, to know what the set outlives"
                .to_owned(),
        );
    }
    if !is_whole(set, &now) || still.tiers != now {
        return refuse(format!(
            "{name} is not at rest: `kubectl bps plan bps/{name}` says what it waits for"
        ));
    }
    if let Fault::Cordon(name) = fault {
        let node = scene.nodes.iter().flatten().find(|node| node.name_any() == *name);
        if node.and_then(|node| node.spec.as_ref()?.unschedulable) == Some(true) {
            return refuse(format!("node {name} is cordoned already"));
        }
    }
    let foretold = prospect(scene.clone(), &fault.question())?;
    if foretold.tiers == now {
        return refuse(format!(
            "{} would change nothing for {name}: there is nothing to try",
            fault.argument()
        ));
    }
    if foretold.survives {
        return Ok(foretold);
    }
    refuse(format!(
        "{name} would not outlive this: `kubectl bps whatif bps/{name} {}` shows how",
        fault.argument()
    ))
}

impl Fault {
    fn question(&self) -> WhatifArguments {
        let nothing = WhatifArguments::default();
        match self {
            Self::Pod(pod) => WhatifArguments { pods: vec![pod.clone()], ..nothing },
            Self::Cordon(node) => WhatifArguments { cordoned: vec![node.clone()], ..nothing },
        }
    }

    fn argument(&self) -> String {
        match self {
            Self::Pod(pod) => format!("--pod {pod}"),
            Self::Cordon(node) => format!("--cordon {node}"),
        }
    }

    async fn strike(&self, cluster: &Cluster, scene: &Scene) -> Result<(), Error> {
        match self {
            Self::Pod(name) => {
                // The one that was looked at, and no other of its name.
                let is_it =
                    |pod: &&SlimPod| pod.name_any() == *name && pod.namespace() == scene.set.namespace();
                let uid = scene.objects.pods.iter().find(is_it).and_then(ResourceExt::uid);
                let preconditions = Some(Preconditions { uid, resource_version: None });
                let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
                let deleted = cluster.api::<SlimPod>().delete(name, &parameters).await;
                deleted.map(drop).map_err(Error::request(format!("delete Pod {name}")))
            }
            Self::Cordon(node) => cordon(cluster, node).await,
        }
    }

    /// Takes back what was done to a node, again and again for a while. To uncordon one that is not cordoned changes nothing.
    async fn undo(&self, cluster: &Cluster) -> Result<(), Error> {
        let Self::Cordon(node) = self else { return Ok(()) };
        let mut attempts = 0;
        loop {
            attempts += 1;
            match schedulable(cluster, node, true, None).await {
                Err(_) if attempts < ATTEMPTS_MAX => tokio::time::sleep(UNDO_PAUSE).await,
                undone => return undone,
            }
        }
    }
}

/// Cordons a node that is not cordoned; a write of somebody else in between is no reason to give up.
async fn cordon(cluster: &Cluster, name: &str) -> Result<(), Error> {
    let nodes = Api::<SlimNode>::all(cluster.client.clone());
    let mut attempts = 0;
    loop {
        attempts += 1;
        let node = nodes.get(name).await.map_err(Error::request(format!("read node {name}")))?;
        if node.spec.unschedulable {
            // Whoever did that wants it to stay so.
            return Err(Error::Refused(format!("node {name} was cordoned at this moment")));
        }
        match schedulable(cluster, name, false, node.resource_version()).await {
            Err(error) if error.is_conflict() && attempts < ATTEMPTS_MAX => {}
            cordoned => return cordoned,
        }
    }
}

/// Until when a drill goes on at the longest, requests that are not answered at once included.
fn deadline(timeout: Duration) -> Option<Timestamp> {
    let time = SignedDuration::try_from(timeout.saturating_add(REQUESTS_WITHIN)).ok()?;
    Timestamp::now().checked_add(time).ok()
}

/// Ends when this program is asked to end.
fn ended() -> Result<impl Future<Output = ()>, Error> {
    let signal = |kind| signal(kind).map_err(Error::Signal);
    let (mut interrupt, mut terminate, mut hangup) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

async fn schedulable(
    cluster: &Cluster,
    node: &str,
    is_schedulable: bool,
    version: Option<String>,
) -> Result<(), Error> {
    let mut patch = json!({"spec": {"unschedulable": !is_schedulable}});
    if let Some(version) = version {
        patch["metadata"] = json!({"resourceVersion": version});
    }
    let nodes = Api::<SlimNode>::all(cluster.client.clone());
    let patched = nodes.patch(node, &parameters(), &Patch::Merge(patch)).await;
    let what = format!("{} node {node}", if is_schedulable { "uncordon" } else { "cordon" });
    patched.map(drop).map_err(Error::request(what))
}

/// Notes that a drill begins, unless another one has begun or the specification has changed since the set was looked at.
async fn begin(cluster: &Cluster, set: &BackupPodSet, drill: &Drill) -> Result<(), Error> {
    let (name, mut version, mut attempts) = (set.name_any(), set.resource_version(), 0);
    loop {
        attempts += 1;
        match note(cluster, set, Some(drill), version).await {
            Err(error) if error.is_conflict() && attempts < ATTEMPTS_MAX => {}
            noted => return noted,
        }
        let now = cluster.api::<BackupPodSet>().get(&name).await;
        let now = now.map_err(Error::request(format!("read BackupPodSet {name}")))?;
        if now.metadata.generation != set.metadata.generation || Drill::of(&now) != Drill::of(set) {
            return Err(Error::Refused(format!("{name} was changed at this moment: try again")));
        }
        version = now.resource_version();
    }
}

/// Notes how a drill ended, or that there was none, unless another one has begun.
async fn conclude(
    cluster: &Cluster,
    set: &BackupPodSet,
    drill: &Drill,
    over: Option<&Drill>,
) -> Result<(), Error> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let name = set.name_any();
        let now = cluster.api::<BackupPodSet>().get(&name).await;
        let now = now.map_err(Error::request(format!("read BackupPodSet {name}")))?;
        if Drill::of(&now).is_none_or(|noted| noted.began != drill.began) {
            return Err(Error::Refused(format!("another drill of {name} has begun meanwhile")));
        }
        match note(cluster, &now, over, now.resource_version()).await {
            Err(error) if error.is_conflict() && attempts < ATTEMPTS_MAX => {}
            noted => return noted,
        }
    }
}

/// Writes the drill into its set, or takes it away, if the set is as it was seen.
async fn note(
    cluster: &Cluster,
    set: &BackupPodSet,
    drill: Option<&Drill>,
    version: Option<String>,
) -> Result<(), Error> {
    let text = drill.map(serde_json::to_string).transpose().map_err(|error| Error::Write(Box::new(error)))?;
    let metadata = json!({
        "uid": set.uid(),
        "resourceVersion": version,
        "annotations": {(keys::ANNOTATION_DRILL): text},
    });
    let name = set.name_any();
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let written = cluster.api::<BackupPodSet>().patch(&name, &parameters(), &patch).await;
    written.map(drop).map_err(Error::request(format!("note the drill in BackupPodSet {name}")))
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(keys::FIELD_MANAGER_PLUGIN.into()), ..PatchParams::default() }
}

/// Looks until everything is as foretold or time is up. A look that fails is none.
async fn watched(
    cluster: &Cluster,
    set: &BackupPodSet,
    foretold: &Prospect,
    timeout: Duration,
) -> (DrillOutcome, Tiers) {
    let began = Instant::now();
    let labels = format!("{}={}", keys::LABEL_SET, set.name_any());
    let (mut short_for, mut found) = (Duration::ZERO, Tiers::default());
    let mut short_since = None;
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        let seen = cluster.list::<SlimPod>(Some(&cluster.namespace), &labels);
        if let Ok(Ok(pods)) = tokio::time::timeout(left, seen).await {
            found = tiers(set, &pods);
            let is_short = found.primary.len() < foretold.wanted;
            match (is_short, short_since) {
                (true, None) => short_since = Some(began.elapsed()),
                (false, Some(since)) => {
                    short_for += began.elapsed().saturating_sub(since);
                    short_since = None;
                }
                (true, Some(_)) | (false, None) => {}
            }
        }
        let as_foretold = found == foretold.tiers;
        if as_foretold || left.is_zero() {
            let seconds = began.elapsed();
            short_for += short_since.map(|since| seconds.saturating_sub(since)).unwrap_or_default();
            let outcome = DrillOutcome {
                survived: found.primary.len() >= foretold.wanted,
                as_foretold,
                short_for_seconds: short_for.as_secs_f64(),
                seconds: seconds.as_secs_f64(),
            };
            return (outcome, found);
        }
        tokio::time::sleep(LOOK_EVERY.min(left)).await;
    }
}

/// Available Pods of the set by role, by name.
fn tiers(set: &BackupPodSet, pods: &[SlimPod]) -> Tiers {
    let report = set_report(set, pods, &[]);
    let of = |role: Role, as_it_should: Readiness| {
        let tier = report.tiers.iter().filter(|tier| tier.role == role.as_str()).flat_map(|tier| &tier.pods);
        let available = tier.filter(|pod| pod.readiness == as_it_should && !pod.is_terminating);
        available.map(|pod| pod.name.clone()).collect()
    };
    Tiers {
        primary: of(Role::Primary, Readiness::Ready),
        hot: of(Role::Hot, Readiness::Ready),
        cold: of(Role::Cold, Readiness::AtGate),
    }
}

/// Whether each tier has what is wanted.
fn is_whole(set: &BackupPodSet, Tiers { primary, hot, cold }: &Tiers) -> bool {
    let wanted = [set.spec.replicas, set.spec.hot_backups, set.spec.cold_backups];
    let has = [primary, hot, cold].map(|names| i32::try_from(names.len()).unwrap_or(i32::MAX));
    has == wanted
}
