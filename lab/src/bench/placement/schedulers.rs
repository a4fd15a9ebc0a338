//! Schedulers beside each other on one control plane, told apart by the names of their profiles.

use std::time::Duration;

use bps_extender::metrics::ExtenderMetrics;
use bps_extender::serve::SharedSums;
use bps_extender::view::NodeSums;
use bps_extender::{Deviation, Scoring, Settings, Started};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::bench::Error;
use crate::binaries::{Component, KUBERNETES_VERSION};
use crate::control_plane::ControlPlane;
use crate::daemon::Tether;
use crate::install::chart;

/// Resources that are to be used evenly: those of the paper.
pub const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Seed of all ties: trials differ by the names of their Pods.
const SEED: u64 = 0;
/// Time that the scheduler gives an answer: ten times that of the chart, so that a busy machine changes no placement.
const HTTP_TIMEOUT: &str = "5s";
/// Longest time until an extender has listed everything.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Plugin of kube-scheduler that prefers the node with the most room.
const FIT: &str = "NodeResourcesFit";
/// Plugin of kube-scheduler that prefers even use of resources.
const BALANCED: &str = "NodeResourcesBalancedAllocation";

/// Profiles, by what scores in them.
pub mod profiles {
    /// Everything of kube-scheduler.
    pub const STOCK: &str = "stock";
    /// Its score of balance alone, of the same three resources.
    pub const BALANCED: &str = "balanced";
    /// The paper's score alone, by our extender.
    pub const RBRA: &str = "bps-rbra";
    /// The paper's score alone, with the deviation as it is printed.
    pub const RBRA_LITERAL: &str = "bps-rbra-literal";
    /// The paper's score beside that for the node with the most room.
    pub const LEAST_AND_RBRA: &str = "least-and-rbra";
    /// What the chart offers: everything of kube-scheduler, with the paper's score in place of its score of balance.
    pub const SCHEDULER: &str = "bps-scheduler";
    /// The paper's score by a plugin.
    pub const REFEREE: &str = "referee";
    /// The risk that the load of a node varies, by a plugin with made-up variations.
    pub const LOAD_VARIATION: &str = "load-variation";
    /// No score at all: kube-scheduler then takes the next node that fits.
    pub const NOTHING: &str = "nothing";
    /// The score for the node with the most room alone.
    pub const LEAST: &str = "least";
}

/// Running schedulers and extenders; they end with this value.
pub struct Schedulers {
    /// Sums of each extender.
    pub(super) extenders: Vec<SharedSums>,
    programs: Vec<Tether>,
    // They end when they are dropped.
    tasks: Vec<Tasks>,
}

/// Profiles with an extender, and the one of them in which nothing else scores.
struct Extended {
    deviation: Deviation,
    alone: &'static str,
    profiles: Value,
}

impl Schedulers {
    /// Starts one that knows no extender, one for each reading of the paper's deviation, and the referee.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub async fn start(control_plane: &ControlPlane, client: &Client) -> Result<Self, Error> {
        let mut started = Self { extenders: Vec::new(), programs: Vec::new(), tasks: Vec::new() };
        let plain = json!([
            profile(profiles::STOCK, &json!({})),
            only(profiles::BALANCED, &[json!({"name": BALANCED, "weight": 1})], &[balanced_arguments()]),
            only(profiles::NOTHING, &[], &[]),
            only(profiles::LEAST, &[json!({"name": FIT, "weight": 1})], &[]),
        ]);
        started.run(control_plane, "plain", Component::Scheduler, configuration(&plain, None)).await?;

        let mut with_rbra = of_the_chart()?;
        let least = only(profiles::LEAST_AND_RBRA, &[json!({"name": FIT, "weight": 1})], &[]);
        with_rbra.as_array_mut().into_iter().for_each(|profiles| profiles.push(least.clone()));
        let literal = json!([only(profiles::RBRA_LITERAL, &[], &[])]);
        for extended in [
            Extended { deviation: Deviation::Population, alone: profiles::RBRA, profiles: with_rbra },
            Extended { deviation: Deviation::Literal, alone: profiles::RBRA_LITERAL, profiles: literal },
        ] {
            started.extended(control_plane, client, extended).await?;
        }

        let referee = json!([
            only(
                profiles::REFEREE,
                &[json!({"name": "Rbra", "weight": 1_000}), json!({"name": "RbraTie", "weight": 1})],
                &[json!({"name": "RbraTie", "args": {"seed": SEED}})],
            ),
            only(profiles::LOAD_VARIATION, &[json!({"name": "LoadVariation", "weight": 1})], &[]),
        ]);
        started.run(control_plane, "referee", Component::Referee, configuration(&referee, None)).await?;
        Ok(started)
    }

    async fn run(
        &mut self,
        control_plane: &ControlPlane,
        name: &str,
        program: Component,
        configuration: Value,
    ) -> Result<(), Error> {
        let started = control_plane.start_scheduler(name, program, configuration).await;
        self.programs.push(started.map_err(|error| Error::ControlPlane(Box::new(error)))?);
        Ok(())
    }

    /// Starts a scheduler and its extender, and waits until that has listed everything.
    async fn extended(
        &mut self,
        control_plane: &ControlPlane,
        client: &Client,
        Extended { deviation, alone, profiles }: Extended,
    ) -> Result<(), Error> {
        let settings = Settings {
            bind: ([127, 0, 0, 1], 0).into(),
            health_bind: None,
            metrics_bind: None,
            resources: RESOURCES.map(|name| name.parse().expect("the scheduler sums it")).to_vec(),
            scoring: Scoring { deviation, seed: SEED, alone_in: alone.to_owned() },
        };
        let mut tasks = Tasks::new();
        let metrics = ExtenderMetrics::new(env!("CARGO_PKG_VERSION"));
        let started =
            bps_extender::start(&mut tasks, &Shutdown::new(), client.clone(), settings, metrics).await;
        let Started { address, shared } = started.map_err(|error| Error::Extender(Box::new(error)))?;
        let late =
            |_| Error::Find { what: format!("all nodes and Pods within {} s", READY_WITHIN.as_secs()) };
        timeout(READY_WITHIN, shared.until(NodeSums::is_ready)).await.map_err(late)?;
        self.tasks.push(tasks);
        self.extenders.push(shared);
        let configuration = configuration(&profiles, Some(&format!("http://{address}")));
        self.run(control_plane, alone, Component::Scheduler, configuration).await
    }
}

/// The profiles that the chart configures.
fn of_the_chart() -> Result<Value, Error> {
    let unreadable = |what: String| Error::Find { what: format!("the profiles of the chart: {what}") };
    let arguments = ["--set", "scheduler.enabled=true", "--show-only", "templates/scheduler/deployment.yaml"];
    let rendered =
        chart::render("backuppodset-system", KUBERNETES_VERSION, &arguments).map_err(unreadable)?;
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&rendered).map_err(|error| unreadable(error.to_string()))?;
    let file = objects.iter().find_map(|object| object["data"]["config.yaml"].as_str()).unwrap_or_default();
    let configuration: Value = serde_saphyr::from_str(file).map_err(|error| unreadable(error.to_string()))?;
    Ok(configuration["profiles"].clone())
}

fn configuration(profiles: &Value, extender: Option<&str>) -> Value {
    let extender = extender.map(|url| {
        json!({"urlPrefix": url, "prioritizeVerb": "prioritize", "weight": 1, "nodeCacheCapable": true,
               "httpTimeout": HTTP_TIMEOUT, "ignorable": true})
    });
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": profiles,
        "extenders": extender.into_iter().collect::<Vec<_>>(),
    })
}

fn profile(name: &str, plugins: &Value) -> Value {
    json!({"schedulerName": name, "plugins": plugins})
}

/// A profile in which nothing scores but these plugins.
fn only(name: &str, scores: &[Value], arguments: &[Value]) -> Value {
    let all = json!([{"name": "*"}]);
    // Those of kube-scheduler prepare their score before; those of the referee do not.
    let prepared: Vec<&Value> =
        scores.iter().filter(|one| one["name"].as_str().is_some_and(is_prepared)).collect();
    let plugins = json!({"preScore": {"disabled": all, "enabled": prepared}, "score": {"disabled": all, "enabled": scores}});
    json!({"schedulerName": name, "plugins": plugins, "pluginConfig": arguments})
}

fn is_prepared(plugin: &str) -> bool {
    plugin.starts_with("NodeResources")
}

fn balanced_arguments() -> Value {
    let resources = RESOURCES.map(|name| json!({"name": name, "weight": 1}));
    json!({"name": BALANCED, "args": {"resources": resources}})
}
