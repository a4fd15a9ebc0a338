//! Schedulers beside each other on one control plane, told apart by the names of their profiles.

use bps_extender::metrics::ExtenderMetrics;
use bps_extender::{Deviation, Profiles, Scoring, Settings};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use kube::Client;
use serde_json::{Value, json};

use crate::bench::Error;
use crate::binaries::Component;
use crate::control_plane::ControlPlane;
use crate::daemon::Tether;

/// Resources that are to be used evenly: those of the paper.
pub const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Seed of all ties: trials differ by the names of their Pods.
const SEED: u64 = 0;
/// How long the scheduler waits for an answer, as in the chart.
const HTTP_TIMEOUT: &str = "500ms";
/// Parts of kube-scheduler that belong to the score of balance.
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
    /// No score at all.
    pub const NOTHING: &str = "nothing";
}

/// Running schedulers and extenders; they end with this value.
pub struct Schedulers {
    _programs: Vec<Tether>,
    // The tasks end when they are dropped.
    _extenders: Vec<Tasks>,
}

impl Schedulers {
    /// Starts one that knows no extender, one for each reading of the paper's deviation, and the referee.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub async fn start(control_plane: &ControlPlane, client: &Client) -> Result<Self, Error> {
        let mut started = Self { _programs: Vec::new(), _extenders: Vec::new() };
        let plain = json!([
            profile(profiles::STOCK, &json!({})),
            only(profiles::BALANCED, &[json!({"name": BALANCED, "weight": 1})], &[balanced_arguments()]),
            only(profiles::NOTHING, &[], &[]),
        ]);
        started.run(control_plane, "plain", Component::Scheduler, configuration(&plain, None)).await?;

        let with_rbra = json!([
            only(profiles::RBRA, &[], &[]),
            only(profiles::LEAST_AND_RBRA, &[json!({"name": "NodeResourcesFit", "weight": 1})], &[]),
            profile(profiles::SCHEDULER, &json!({"multiPoint": {"disabled": [{"name": BALANCED}]}})),
        ]);
        started.extended(control_plane, client, Deviation::Population, (profiles::RBRA, &with_rbra)).await?;
        let literal = json!([only(profiles::RBRA_LITERAL, &[], &[])]);
        started
            .extended(control_plane, client, Deviation::Literal, (profiles::RBRA_LITERAL, &literal))
            .await?;

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
        self._programs.push(started.map_err(|error| Error::ControlPlane(Box::new(error)))?);
        Ok(())
    }

    /// Starts a scheduler and its extender.
    async fn extended(
        &mut self,
        control_plane: &ControlPlane,
        client: &Client,
        deviation: Deviation,
        (alone, profiles): (&str, &Value),
    ) -> Result<(), Error> {
        let settings = Settings {
            bind: ([127, 0, 0, 1], 0).into(),
            health_bind: None,
            metrics_bind: None,
            resources: RESOURCES.map(str::to_owned).to_vec(),
            scoring: Scoring { deviation, seed: SEED, profiles: Profiles { alone: alone.to_owned() } },
        };
        let mut tasks = Tasks::new();
        let metrics = ExtenderMetrics::new(env!("CARGO_PKG_VERSION"));
        let address =
            bps_extender::start(&mut tasks, &Shutdown::new(), client.clone(), settings, metrics).await;
        let address = address.map_err(|error| Error::Extender(Box::new(error)))?;
        self._extenders.push(tasks);
        let configuration = configuration(profiles, Some(&format!("http://{address}")));
        self.run(control_plane, alone, Component::Scheduler, configuration).await
    }
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
