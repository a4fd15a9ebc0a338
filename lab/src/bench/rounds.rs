//! One round of each group: a fresh set, the act, the figures, and the set removed again.

use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::client::{self, Visit};
use super::rows::Group;
use super::timeline::{self, Entry};
use super::{Error, NAMESPACE, gate, metrics};
use crate::cluster::Cluster;
use crate::image::NGINX_IMAGE;
use crate::machine::clock::Instant;
use crate::stage::{Act, Counts, Stage};

/// Pause after a set is in place before it is broken, so that the acts do not overlap: kube-proxy programs one
/// change a second, and the kubelet looks at its containers once a second.
const QUIET: Duration = Duration::from_millis(1_500);
/// How long reconciles are counted after a set is in place.
const LATE_RECONCILES: Duration = Duration::from_secs(2);
/// One of each.
const ONE: Counts = Counts::of_each(1);

/// What one round measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Figures by row, in the unit of the row.
    pub values: Vec<(&'static str, f64)>,
    /// What happened.
    pub timeline: Vec<Entry>,
}

/// The means to measure.
pub struct Bench {
    /// Talks to the API server.
    pub client: Client,
    /// The local cluster.
    pub cluster: Cluster,
    /// The measuring client's program.
    pub app: PathBuf,
}

impl Bench {
    /// Measures once.
    ///
    /// # Errors
    /// Why the round did not come to its end; its set is removed all the same.
    pub async fn round(&self, group: Group, number: u16) -> Result<Round, Error> {
        let run = jiff::Timestamp::now().as_second() % 100_000;
        let set = format!("{}-{run}-{number}", group.word());
        let mut stage = Stage::open(&self.client, NAMESPACE, &set).await?;
        let measured = match group {
            Group::Cycle => cycle(&mut stage).await,
            Group::PlainGate => plain_gate(&mut stage).await,
            Group::ClientDelete => self.client_delete(&mut stage).await,
            Group::ClientKill => self.client_kill(&mut stage).await,
            Group::Gate => self.gate(&mut stage).await,
            Group::Counters => self.counters(&mut stage).await,
        };
        let removed = stage.remove().await;
        let round = measured?;
        removed?;
        Ok(round)
    }

    async fn client_delete(&self, stage: &mut Stage) -> Result<Round, Error> {
        stage.create(&exposed(&stage.set), ONE).await?;
        sleep(QUIET).await;
        let visit = client::start(self, stage).await?;
        let act = stage.delete_primary(ONE).await?;
        let (began, exposed) = (act.began, act.until_succeeded());
        let seen = finish(visit, act, "delete the primary").await?;
        let mut values = vec![("client-delete-failed", seen.failed), ("client-delete-out", seen.out)];
        values.extend(exposed.map(|time| ("client-delete-exposed", time.as_secs_f64())));
        Ok(Round { values, timeline: seen.timeline(began) })
    }

    async fn client_kill(&self, stage: &mut Stage) -> Result<Round, Error> {
        stage.create(&exposed(&stage.set), ONE).await?;
        sleep(QUIET).await;
        let victim = stage.victim()?;
        let aim = stage.aim(&self.cluster, &victim.name)?;
        let visit = client::start(self, stage).await?;
        let began = aim.fire(rustix::process::Signal::KILL)?;
        let act = stage.recover(began, (&victim, ONE)).await?;
        let seen = finish(visit, act, "kill the primary's process").await?;
        let values = vec![("client-kill-out", seen.out), ("client-kill-failed", seen.failed)];
        Ok(Round { values, timeline: seen.timeline(began) })
    }

    async fn gate(&self, stage: &mut Stage) -> Result<Round, Error> {
        let counts = Counts { primaries: 0, hot: 0, cold: 1 };
        stage.create(&with_counts(plain(&stage.set), counts), counts).await?;
        sleep(QUIET).await;
        let woken = gate::wake(self, stage).await?;
        let values =
            vec![("gate-gone", woken.gone.as_secs_f64() * 1e3), ("gate-ready", woken.ready.as_secs_f64())];
        Ok(Round { values, timeline: woken.timeline })
    }

    async fn counters(&self, stage: &mut Stage) -> Result<Round, Error> {
        let reader = metrics::Reader::of_leader(&self.client).await?;
        let node = self.first_node()?;
        sleep(LATE_RECONCILES).await;
        let before = reader.read_inside(&self.cluster, &node).await?;
        let act = stage.create(&plain(&stage.set), Counts::of_each(2)).await?;
        sleep(LATE_RECONCILES).await;
        let after = reader.read_inside(&self.cluster, &node).await?;
        let values = vec![
            ("reconciles", after.reconciles() - before.reconciles()),
            ("conflicts", after.conflicts() - before.conflicts()),
        ];
        Ok(Round { values, timeline: timeline::of_act("create 2/2/2", &act) })
    }

    /// A node whose network is worked in.
    ///
    /// # Errors
    /// `FindCluster` or `Find` if there is none.
    pub fn first_node(&self) -> Result<String, Error> {
        let nodes = self.cluster.nodes().map_err(|error| Error::FindCluster(Box::new(error)))?;
        let first = nodes.into_iter().next().map(|node| node.name);
        first.ok_or_else(|| Error::Find { what: "a node".to_owned() })
    }
}

/// The paper's story, once.
async fn cycle(stage: &mut Stage) -> Result<Round, Error> {
    let mut values = Vec::new();
    let create = stage.create(&plain(&stage.set), Counts::of_each(2)).await?;
    note(&mut values, &create, ("handling-create", "actions-create", "total-create"));
    sleep(QUIET).await;
    let update = stage.resize(Counts::of_each(3)).await?;
    note(&mut values, &update, ("handling-update", "actions-update", "total-update"));
    sleep(QUIET).await;
    let decrease = stage.resize(ONE).await?;
    note(&mut values, &decrease, ("handling-decrease", "actions-decrease", "total-decrease"));
    sleep(QUIET).await;
    let failure = stage.delete_primary(ONE).await?;
    note(&mut values, &failure, ("handling-failure", "actions-failure", "delete-restored"));
    values.extend(failure.until_succeeded().map(|time| ("delete-successor", time.as_secs_f64())));
    let mut entries = timeline::of_act("create 2/2/2", &create);
    for (title, act) in
        [("update to 3/3/3", &update), ("decrease to 1/1/1", &decrease), ("delete the primary", &failure)]
    {
        let later = act.began.monotonic.saturating_sub(create.began.monotonic);
        entries.extend(timeline::shifted(timeline::of_act(title, act), later));
    }
    Ok(Round { values, timeline: entries })
}

/// A creation whose cold Pods have one init container instead of two.
async fn plain_gate(stage: &mut Stage) -> Result<Round, Error> {
    let mut set = plain(&stage.set);
    set["spec"]["coldStart"] = json!({"imageGate": false});
    let create = stage.create(&set, Counts::of_each(2)).await?;
    let values = vec![("total-create-plain", create.total().as_secs_f64())];
    Ok(Round { values, timeline: timeline::of_act("create 2/2/2 without imageGate", &create) })
}

/// Rows of handling, of its actions, and of the total time.
type ActRows = (&'static str, &'static str, &'static str);

fn note(values: &mut Vec<(&'static str, f64)>, act: &Act, (handling, actions, total): ActRows) {
    if let Some(times) = act.handling() {
        values.extend([(handling, times.first_ms), (actions, times.actions_ms)]);
        values.extend(times.promoted_ms.map(|promoted| ("promoted", promoted)));
    }
    values.push((total, act.total().as_secs_f64()));
}

/// What a client saw and what else happened.
struct Seen {
    failed: f64,
    out: f64,
    act: Vec<Entry>,
    samples: Vec<crate::app::sample::Sample>,
}

impl Seen {
    fn timeline(self, began: Instant) -> Vec<Entry> {
        let mut entries = self.act;
        entries.extend(timeline::of_client(began, &self.samples));
        entries
    }
}

#[expect(clippy::cast_precision_loss, reason = "fewer requests than a float has digits")]
async fn finish(visit: Visit, act: Act, title: &str) -> Result<Seen, Error> {
    let (outage, samples) = visit.end().await?;
    let never = || Error::Find { what: "an answer after the outage".to_owned() };
    Ok(Seen {
        failed: outage.failed as f64,
        out: outage.out.ok_or_else(never)?.as_secs_f64(),
        act: timeline::of_act(title, &act),
        samples,
    })
}

/// The paper's set under another name, without a Service.
fn plain(name: &str) -> Value {
    json!({
        "apiVersion": "backup.example.com/v1alpha1",
        "kind": "BackupPodSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": 2, "hotBackups": 2, "coldBackups": 2,
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "nginx", "image": NGINX_IMAGE, "imagePullPolicy": "IfNotPresent",
                }]},
            },
        },
    })
}

/// A set of one each with a Service.
fn exposed(name: &str) -> Value {
    let mut set = with_counts(plain(name), ONE);
    set["spec"]["service"] = json!({"name": name, "ports": [{"port": 80}]});
    set
}

fn with_counts(mut set: Value, Counts { primaries, hot, cold }: Counts) -> Value {
    set["spec"]["replicas"] = json!(primaries);
    set["spec"]["hotBackups"] = json!(hot);
    set["spec"]["coldBackups"] = json!(cold);
    set
}
