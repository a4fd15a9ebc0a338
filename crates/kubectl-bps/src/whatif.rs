//! What becomes of a set when nodes, zones or subsets are lost: the operator's own planner, carried on in a forecast.

use std::path::Path;

use bps_core::forecast::{Ending, Event, Forecast, Happening, NodeRoom, Pace, Wave, forecast};
use bps_core::model::{NodeHealth, PodName, Role};
use bps_observe::group::times;
use bps_observe::{Observation, node_view};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde::Serialize;

use super::arguments::WhatifArguments;
use super::cluster::{Cluster, Subject};
use super::losses::lose;
use super::plan::{observation, set_unknown};
use super::plan_words::{action_words, hold_words};
use super::room::places;
use super::scene::{Scene, slim_node};
use super::table::indented;
use super::{Error, document};

/// Pods that may be made on a node about which nothing is known.
const ROOM_UNKNOWN: usize = 110;

/// What becomes of a set, in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prospect {
    /// Namespace of the set.
    pub namespace: String,
    /// Name of the set.
    pub name: String,
    /// What is lost or changed.
    pub losses: Vec<String>,
    /// Whether all primaries that are wanted serve in the end.
    pub survives: bool,
    /// Primaries that are wanted.
    pub wanted: usize,
    /// Who serves before anything is done.
    pub at_first: Vec<String>,
    /// What happens, in the order of time.
    pub waves: Vec<ProspectWave>,
    /// For how long fewer primaries serve than can in the end; absent if that is so at no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_for_seconds: Option<f64>,
    /// Who serves in the end.
    pub serving: Vec<String>,
    /// Pods of each role in the end that are available.
    pub tiers: Tiers,
    /// Pods that find no node.
    pub unplaced: Vec<String>,
    /// What is held back in the end.
    pub holds: Vec<String>,
    /// Why it does not come to rest, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restless_because: Option<String>,
    /// What the figures are made from, and what is not known.
    pub unknown: Vec<String>,
}

/// What happens at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProspectWave {
    /// Time since the loss.
    pub after_seconds: f64,
    /// What happens, in this order.
    pub events: Vec<ProspectEvent>,
    /// Who serves after that.
    pub serving: Vec<String>,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProspectEvent {
    /// Whether the operator does it.
    pub is_step: bool,
    /// What it is.
    pub what: String,
}

/// Names of Pods by their roles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tiers {
    /// Primaries.
    pub primary: Vec<String>,
    /// Hot backups.
    pub hot: Vec<String>,
    /// Cold backups.
    pub cold: Vec<String>,
}

/// Lists or reads, and foresees.
///
/// # Errors
/// `Usage` if the name or what is to be lost is not there, `Refused` if nodes are needed that may not be listed, and `Partly` with
/// the text if the set does not outlive it.
pub async fn run(
    wanted: &WhatifArguments,
    connect: impl AsyncFn() -> Result<Cluster, Error>,
) -> Result<String, Error> {
    let scene = match (&wanted.from, &wanted.set) {
        (Some(path), _) => read(path)?,
        (None, Some(name)) => listed(&connect().await?, name).await?,
        (None, None) => return Err(Error::Usage("name the set, or a file by --from".to_owned())),
    };
    if let Some(path) = &wanted.save {
        save(path, &scene)?;
    }
    let prospect = prospect(scene, wanted)?;
    let text = document::formed(wanted.output, &prospect, || prospect.text())?;
    if prospect.survives {
        return Ok(text);
    }
    let (serving, wanted) = (prospect.serving.len(), prospect.wanted);
    Err(Error::Refused(format!(
        "the set does not outlive this: {serving} of {wanted} primaries serve in the end"
    ))
    .after(text))
}

async fn listed(cluster: &Cluster, name: &str) -> Result<Scene, Error> {
    match cluster.subject(name).await? {
        Subject::Set(set) => Scene::take(cluster, *set).await,
        Subject::Group(_) => Err(Error::Usage(format!(
            "{name} is an HAGroup, and this verb is about sets: `kubectl bps status {name}` shows who follows whom"
        ))),
    }
}

fn read(path: &Path) -> Result<Scene, Error> {
    let told = path.display().to_string();
    let text = std::fs::read(path).map_err(|source| Error::ReadFile { path: told.clone(), source })?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::Usage(format!("{told} is not what --save wrote: {error}")))
}

/// JSON, because a reader of YAML rightly has a bound that a large cluster exceeds.
fn save(path: &Path, scene: &Scene) -> Result<(), Error> {
    let text = document::json(scene)?;
    std::fs::write(path, text).map_err(|source| Error::WriteFile { path: path.display().to_string(), source })
}

/// What becomes of a set that was listed, when this is lost.
///
/// # Errors
/// As [`run`], without `Partly`.
pub fn prospect(mut scene: Scene, wanted: &WhatifArguments) -> Result<Prospect, Error> {
    let is_listed = scene.nodes.is_some();
    let mut unknown = set_unknown(&scene.objects);
    let losses = lose(&mut scene, wanted)?;
    let Scene { taken, set, objects, nodes, requested } = scene;
    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    let takeover = objects.groups.iter().find(|group| group.name_any() == name);
    let takeover = takeover.map(|group| times(group).api_watch).unwrap_or_default();
    let being_deleted = || Error::Refused(format!("the set {name} is being deleted"));
    let seen = observation(set, objects, taken).ok_or_else(being_deleted)?;
    let nodes = nodes.unwrap_or_default();
    let places = if is_listed {
        places(&seen, &nodes, &requested.clone().unwrap_or_default())
    } else {
        assumed_places(&seen, &nodes)
    };
    if !is_listed {
        unknown.push("what the nodes have room for, which takes a list of them: each has room".to_owned());
    } else if requested.is_none() {
        unknown
            .push("what others request, which takes a list of all Pods: the nodes count as empty".to_owned());
    }
    unknown.push(
        "what else the scheduler looks at: required spreads and anti-affinity, volumes, ports of the host, and Pods of others \
         that have to find a place, too"
            .to_owned(),
    );

    let takeover = SignedDuration::try_from(takeover).unwrap_or_default();
    let pace = Pace::measured(&seen.snapshot, takeover);
    unknown.splice(0..0, pace_words(&pace));
    let foreseen = forecast(seen.snapshot, places, pace);
    Ok(told(&foreseen, Frame { namespace, name, losses, unknown, taken }))
}

/// What a prospect has besides the forecast.
struct Frame {
    namespace: String,
    name: String,
    losses: Vec<String>,
    unknown: Vec<String>,
    taken: Timestamp,
}

/// Nodes about whose room nothing is known take any Pod.
fn assumed_places(Observation { set, snapshot, .. }: &Observation, nodes: &[Node]) -> Vec<NodeRoom> {
    let place = |node: &Node| NodeRoom {
        node: node_view(&slim_node(node), set.spec.domain_key()),
        room: ROOM_UNKNOWN,
        admits: true,
        admits_subsets: vec![true; snapshot.desired.topology.subsets.len()],
    };
    nodes.iter().map(place).collect()
}

/// Where the times of a forecast come from.
fn pace_words(pace: &Pace) -> Vec<String> {
    let Pace { start, gate, wake, takeover } = *pace;
    let word = |what: &str, time: Option<SignedDuration>| match time {
        Some(time) => format!("{what} {:.1} s", time.as_secs_f64()),
        None => format!("{what} no time, because no Pod of the set tells"),
    };
    let mut words = vec![
        "how long Kubernetes takes to call a node lost: times begin when it does (40 to 50 s after its last word if nobody changed \
         --node-monitor-grace-period)"
            .to_owned(),
        format!(
            "how long things will take; the Pods that are there took: {}, {}, {}",
            word("a new Pod", start),
            word("a gate", gate),
            word("a wake-up", wake),
        ),
    ];
    if !takeover.is_zero() {
        words.push(format!("a standby takes over from a lost active within {:.1} s", takeover.as_secs_f64()));
    }
    words
}

/// A forecast in words.
fn told(foreseen: &Forecast, frame: Frame) -> Prospect {
    let Frame { namespace, name, losses, unknown, taken } = frame;
    let restless_because = match &foreseen.ending {
        Ending::Rest => None,
        Ending::Restless => Some("the operator would go on for ever".to_owned()),
        // A bug of the planner; the operator counts it, logs it and leaves the set alone.
        Ending::Refused(violations) => Some(format!("a plan is refused: {violations:?}")),
    };
    let of_role = |role: Role| {
        let views = foreseen.pods.iter().filter(|view| {
            view.role == role && view.is_available() && view.node_health() <= NodeHealth::Cordoned
        });
        views.map(|view| view.pod.name.0.clone()).collect()
    };
    Prospect {
        namespace,
        name,
        losses,
        survives: foreseen.survives(),
        wanted: foreseen.wanted,
        at_first: names(&foreseen.at_first),
        waves: waves(&foreseen.waves),
        short_for_seconds: foreseen.short_for().map(|time| time.as_secs_f64()),
        serving: names(&foreseen.serving),
        tiers: Tiers { primary: of_role(Role::Primary), hot: of_role(Role::Hot), cold: of_role(Role::Cold) },
        unplaced: names(&foreseen.unplaced),
        holds: foreseen.holds.iter().map(|hold| hold_words(hold, taken)).collect(),
        restless_because,
        unknown,
    }
}

/// Waves of the same moment become one: only the time of API requests is between them.
fn waves(waves: &[Wave]) -> Vec<ProspectWave> {
    let together = waves.chunk_by(|one, next| one.after == next.after);
    together.filter_map(moment).collect()
}

fn moment(waves: &[Wave]) -> Option<ProspectWave> {
    let last = waves.last()?;
    let events = waves.iter().flat_map(|wave| {
        let happenings =
            wave.happenings.iter().map(|it| ProspectEvent { is_step: false, what: happening_words(it) });
        let steps = wave.steps.iter().map(|it| ProspectEvent { is_step: true, what: action_words(it) });
        happenings.chain(steps)
    });
    Some(ProspectWave {
        after_seconds: last.after.as_secs_f64(),
        events: events.collect(),
        serving: names(&last.serving),
    })
}

fn happening_words(Happening { pod, event }: &Happening) -> String {
    match event {
        Event::Bound(node) => format!("{pod} finds a place on {node}"),
        Event::AtGate => format!("{pod} waits at its gate"),
        Event::Ready => format!("{pod} is ready"),
        Event::TookOver => format!("{pod} acts"),
        Event::StandsBy => format!("{pod} stands by"),
        Event::Evicted => format!("{pod} is evicted from its lost node"),
        Event::Gone => format!("{pod} is gone"),
    }
}

fn names(pods: &[PodName]) -> Vec<String> {
    pods.iter().map(|pod| pod.0.clone()).collect()
}

impl Prospect {
    /// For people.
    pub fn text(&self) -> String {
        let Self {
            namespace,
            name,
            losses,
            survives,
            wanted,
            at_first,
            waves,
            short_for_seconds,
            serving,
            tiers: Tiers { primary: _, hot, cold },
            unplaced,
            holds,
            restless_because,
            unknown,
        } = self;
        let losses = if losses.is_empty() { "nothing is lost".to_owned() } else { losses.join(", ") };
        let mut text =
            format!("BackupPodSet {namespace}/{name}: {losses}\n\nAt first {}.\n", serve(at_first, *wanted));
        for wave in waves {
            text.push_str(&wave.text(*wanted));
        }
        let verdict = if *survives { "The set outlives this" } else { "The set does not outlive this" };
        // Shorter than is shown: the time of some API requests.
        let short = short_for_seconds.filter(|seconds| *seconds >= 0.05);
        let short = short.map(|seconds| format!("; fewer did for {seconds:.1} s")).unwrap_or_default();
        let left = format!("Backups that are left: {} hot, {} cold", hot.len(), cold.len());
        text.extend(["\n", verdict, ": in the end ", &serve(serving, *wanted), &short, ". ", &left, ".\n"]);
        if let Some(because) = restless_because {
            text.extend(["It does not come to rest: ", because, ".\n"]);
        }
        let sections = [
            ("Pods that find no node", unplaced),
            ("It holds back", holds),
            ("What it is made from", unknown),
        ];
        for (heading, lines) in sections.iter().filter(|(_, lines)| !lines.is_empty()) {
            let lines: Vec<String> = lines.iter().map(|line| format!("- {line}")).collect();
            text.extend(["\n", heading, ":\n", &indented(&lines.join("\n"))]);
        }
        text
    }
}

impl ProspectWave {
    fn text(&self, wanted: usize) -> String {
        let Self { after_seconds, events, serving } = self;
        let line = |ProspectEvent { is_step, what }: &ProspectEvent| {
            format!("- {}{what}", if *is_step { "operator: " } else { "" })
        };
        let lines: Vec<String> = events.iter().map(line).collect();
        let then = serve(serving, wanted);
        format!("\nAfter {after_seconds:.1} s:\n{}  {then}.\n", indented(&lines.join("\n")))
    }
}

/// `2 of 3 primaries serve (web-1, web-4)`.
fn serve(names: &[String], wanted: usize) -> String {
    let listed = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    format!("{} of {wanted} primaries serve{listed}", names.len())
}
