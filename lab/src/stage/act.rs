//! Creates, resizes and breaks a set, and measures how long it takes to be in place again.

use std::time::Duration;

use bps_api::BackupPodSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::{Value, json};

use super::Error;
use super::journal::{self, Line};
use super::scene::{Moment, Scene};
use super::sight::{Counts, PodSight};
use crate::cluster::Cluster;
use crate::faults::{Aim, Target};
use crate::machine::clock::Instant;

/// How long a set may take to get into a state. Source: the slowest of the paper's transitions took 5.3 s; a
/// busy machine takes some times that.
pub const IN_PLACE_WITHIN: Duration = Duration::from_secs(60);
/// How long a deleted set may take to be gone with its Pods: the default grace period and some more.
const GONE_WITHIN: Duration = Duration::from_secs(90);
/// How long the operator's log may lag behind what the API server shows.
const LOG_WITHIN: Duration = Duration::from_secs(3);

/// Time that the operator spent on a change, by its own log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Handling {
    /// The look that took the first steps: from the arrival of the event to the acknowledgement of its last
    /// write, the status included. Unit: milliseconds.
    pub first_ms: f64,
    /// The same without the status: to the acknowledgement of its last action. Unit: milliseconds.
    pub actions_ms: f64,
    /// The same to the promotion of the last successor, if a primary was lost. Unit: milliseconds.
    pub promoted_ms: Option<f64>,
    /// All looks that took steps until the set was in place, added up. Unit: milliseconds.
    pub all_ms: f64,
    /// Number of these looks.
    pub looks: usize,
}

impl Handling {
    /// What a log says about one change; `None` if it has no look with steps.
    pub fn of(lines: &[Line]) -> Option<Self> {
        let mut handled = lines.iter().filter(|line| line.is_handled()).peekable();
        let first = *handled.peek()?;
        let (first_ms, actions_ms, promoted_ms) = (first.elapsed_ms, first.steps_ms, first.promoted_ms);
        let (looks, all_ms) = handled.fold((0, 0.0), |(looks, sum), line| (looks + 1, sum + line.elapsed_ms));
        Some(Self { first_ms, actions_ms, promoted_ms, all_ms, looks })
    }
}

/// Something that was done to a set, and what followed.
#[derive(Debug, Clone)]
pub struct Act {
    /// Right before the request or the signal.
    pub began: Instant,
    /// When a successor of a broken primary was primary and ready, and, if the set has a Service, behind it.
    pub succeeded: Option<Instant>,
    /// When everything was in place.
    pub settled: Instant,
    /// What the operator says about it.
    pub log: Vec<Line>,
    /// What was seen meanwhile.
    pub moments: Vec<Moment>,
}

impl Act {
    /// From the beginning until everything was in place.
    pub fn total(&self) -> Duration {
        self.settled.monotonic.saturating_sub(self.began.monotonic)
    }

    /// From the beginning until a successor served.
    pub fn until_succeeded(&self) -> Option<Duration> {
        Some(self.succeeded?.monotonic.saturating_sub(self.began.monotonic))
    }

    /// How long the operator worked.
    pub fn handling(&self) -> Option<Handling> {
        Handling::of(&self.log)
    }
}

/// One set and the means to act on it.
pub struct Stage {
    /// Talks to the API server.
    pub client: Client,
    /// Namespace of the set.
    pub namespace: String,
    /// Name of the set.
    pub set: String,
    /// What is seen of it.
    pub scene: Scene,
}

impl Stage {
    /// Begins to watch a set, which need not exist yet.
    ///
    /// # Errors
    /// `Watch` if the API server does not answer.
    pub async fn open(client: &Client, namespace: &str, set: &str) -> Result<Self, Error> {
        let scene = Scene::open(client, namespace, set).await?;
        Ok(Self { client: client.clone(), namespace: namespace.to_owned(), set: set.to_owned(), scene })
    }

    /// Creates the set from a manifest and waits until it is in place.
    ///
    /// # Errors
    /// `Request` if it is refused, `Overdue` if it does not get there.
    pub async fn create(&mut self, manifest: &Value, counts: Counts) -> Result<Act, Error> {
        let set: BackupPodSet = serde_json::from_value(manifest.clone())
            .map_err(|error| self.refused("create")(kube::Error::SerdeError(error)))?;
        let began = Instant::now();
        self.sets().create(&PostParams::default(), &set).await.map_err(self.refused("create"))?;
        self.settle(began, counts).await
    }

    /// Changes how many Pods there are, and waits until they are in place and surplus ones are terminating.
    ///
    /// # Errors
    /// `Request` if it is refused, `Overdue` if it does not get there.
    pub async fn resize(&mut self, counts: Counts) -> Result<Act, Error> {
        let Counts { primaries, hot, cold } = counts;
        let patch = json!({"spec": {"replicas": primaries, "hotBackups": hot, "coldBackups": cold}});
        let began = Instant::now();
        let patched = self.sets().patch(&self.set, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map_err(self.refused("resize"))?;
        self.settle(began, counts).await
    }

    /// Deletes a primary gracefully; waits until another one serves and then until all are in place.
    ///
    /// # Errors
    /// `FindPrimary`, `Request`, `Overdue`.
    pub async fn delete_primary(&mut self, counts: Counts) -> Result<Act, Error> {
        let victim = self.victim()?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let began = Instant::now();
        pods.delete(&victim.name, &DeleteParams::default()).await.map_err(self.refused("delete a pod of"))?;
        self.recover(began, (&victim, counts)).await
    }

    /// Kills the main process of a primary; waits until another one serves and then until all are in place, the
    /// killed one included, which its kubelet starts again.
    ///
    /// # Errors
    /// `FindPrimary`, `Break`, `Overdue`.
    pub async fn crash_primary(&mut self, cluster: &Cluster, counts: Counts) -> Result<Act, Error> {
        let victim = self.victim()?;
        let began = self.aim(cluster, &victim.name)?.fire(rustix::process::Signal::KILL);
        let began = began.map_err(|error| Error::Break(Box::new(error)))?;
        self.recover(began, (&victim, counts)).await
    }

    /// Whether the set exists.
    ///
    /// # Errors
    /// `Request` if the API server does not answer.
    pub async fn exists(&self) -> Result<bool, Error> {
        Ok(self.sets().get_opt(&self.set).await.map_err(self.refused("read"))?.is_some())
    }

    /// Deletes the set and waits until its Pods are gone.
    ///
    /// # Errors
    /// `Request` or `Overdue`.
    pub async fn remove(&mut self) -> Result<(), Error> {
        let sets = self.sets();
        let Some(set) = sets.get_opt(&self.set).await.map_err(self.refused("read"))? else { return Ok(()) };
        let uid = set.metadata.uid.unwrap_or_default();
        sets.delete(&self.set, &DeleteParams::background()).await.map_err(self.refused("delete"))?;
        let gone = await_condition(sets, &self.set, conditions::is_deleted(&uid));
        let overdue = |_| Error::Overdue {
            set: self.set.clone(),
            wanted: "gone".to_owned(),
            limit: GONE_WITHIN,
            seen: "it is still there".to_owned(),
        };
        tokio::time::timeout(GONE_WITHIN, gone)
            .await
            .map_err(overdue)?
            .map_err(|_| Error::Watch { set: self.set.clone() })?;
        self.scene.until(("gone", GONE_WITHIN), |scene| scene.pods().next().is_none()).await.map(drop)
    }

    /// Waits until everything is in place, and collects what the operator says about it.
    ///
    /// # Errors
    /// `Overdue` if it does not get there.
    pub async fn settle(&mut self, began: Instant, counts: Counts) -> Result<Act, Error> {
        let wanted = counts.to_string();
        let settled = self.scene.until((&wanted, IN_PLACE_WITHIN), |scene| scene.is_in_place(counts)).await?;
        self.report(began, None, settled).await
    }

    /// The main process of a Pod's application.
    ///
    /// # Errors
    /// `Break` if it does not run.
    pub fn aim(&self, cluster: &Cluster, pod: &str) -> Result<Aim, Error> {
        let target = Target { namespace: self.namespace.clone(), pod: pod.to_owned(), container: None };
        cluster.aim_at_process(&target).map_err(|error| Error::Break(Box::new(error)))
    }

    /// Waits until another Pod serves instead of the victim, and then until everything is in place.
    ///
    /// A victim whose process comes back before anybody saw it unready needs no successor; then there is none.
    ///
    /// # Errors
    /// `Overdue` if it does not get there.
    pub async fn recover(
        &mut self,
        began: Instant,
        (victim, counts): (&PodSight, Counts),
    ) -> Result<Act, Error> {
        let has_service = !self.scene.exposed().is_empty();
        let serves = |scene: &Scene| {
            let is_exposed = |name: &str| !has_service || scene.exposed().contains(name);
            scene.primary().is_some_and(|pod| pod.name != victim.name && is_exposed(&pod.name))
        };
        let is_back = |scene: &Scene| {
            // A Pod that crashed may look ready for a moment after its successor took over.
            let is_over = |pod: &PodSight| pod.is_terminating || pod.restarts > victim.restarts;
            scene.pod(&victim.name).is_none_or(is_over) && scene.is_in_place(counts)
        };
        let either = |scene: &Scene| serves(scene) || is_back(scene);
        let succeeded = self.scene.until(("served again", IN_PLACE_WITHIN), either).await?;
        let succeeded = serves(&self.scene).then_some(succeeded);
        let settled = self.scene.until((&counts.to_string(), IN_PLACE_WITHIN), is_back).await?;
        self.report(began, succeeded, settled).await
    }

    /// A primary that serves.
    ///
    /// # Errors
    /// `FindPrimary` if there is none.
    pub fn victim(&self) -> Result<PodSight, Error> {
        self.scene.primary().cloned().ok_or_else(|| Error::FindPrimary { set: self.set.clone() })
    }

    async fn report(
        &mut self,
        began: Instant,
        succeeded: Option<Instant>,
        settled: Instant,
    ) -> Result<Act, Error> {
        let since = (began.wall, LOG_WITHIN);
        // Without the right to read logs there is still a total time.
        let log = journal::await_handled(&self.client, &self.set, since).await.unwrap_or_default();
        self.scene.catch_up();
        let moments = self.scene.history().iter().filter(|moment| moment.at.monotonic >= began.monotonic);
        Ok(Act { began, succeeded, settled, log, moments: moments.cloned().collect() })
    }

    fn sets(&self) -> Api<BackupPodSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn refused(&self, verb: &'static str) -> impl Fn(kube::Error) -> Error + use<> {
        let what = format!("set {}", self.set);
        move |source| Error::Request { verb, what: what.clone(), source: Box::new(source) }
    }
}
