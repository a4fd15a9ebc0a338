//! Clients of the exposed Service, and a witness of how many Pods it led to.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::{WatchStreamExt as _, watcher};
use lab::app::Outage;
use lab::app::outage::spells;
use lab::app::sample::{Sample, parse_csv};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;

use crate::notes::note;
use crate::stage::{Stage, WEB, exposed};
use crate::wait;

/// Time between two requests of a client.
const INTERVAL_MILLISECONDS: u32 = 10;
/// A client ends by itself after this, whatever becomes of the claim.
const CLIENT_SECONDS_MAX: u32 = 300;

/// A client in a node's network that opens a new connection for each request.
pub(crate) struct Load {
    child: Child,
    from_node: String,
    target: SocketAddr,
}

impl Load {
    /// Starts to send to the Service of the set; the Service must exist.
    pub(crate) async fn start(stage: &Stage, from_node: &str) -> Self {
        let address = wait::until(stage.api(), "", |services: &[Service]| {
            let service = services.iter().find(|one| one.metadata.name.as_deref() == Some(WEB));
            let address = service.and_then(|one| one.spec.as_ref()?.cluster_ip.clone());
            address.ok_or_else(|| "there is no Service".to_owned())
        })
        .await;
        Self::start_at(stage, from_node, format!("{address}:80").parse().unwrap()).await
    }

    /// Starts to send to this address.
    pub(crate) async fn start_at(stage: &Stage, from_node: &str, target: SocketAddr) -> Self {
        await_answer(stage, from_node, target).await;
        let mut command =
            stage.bench.cluster.command_in(from_node, stage.bench.app.to_str().unwrap()).unwrap();
        command.args(["client", "--target", &target.to_string()]);
        command.args(["--interval-ms", &INTERVAL_MILLISECONDS.to_string()]);
        command.args(["--duration-s", &CLIENT_SECONDS_MAX.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        Self { child, from_node: from_node.to_owned(), target }
    }

    /// Waits until a client of the node is answered: its rules may lead to where somebody has left.
    pub(crate) async fn answered(&self, stage: &Stage) {
        await_answer(stage, &self.from_node, self.target).await;
    }

    /// Stops sending and says what became of the requests.
    pub(crate) async fn stop(self) -> Outage {
        Outage::from_samples(&self.samples().await)
    }

    /// Stops sending and returns every request in the order of their starts.
    pub(crate) async fn samples(self) -> Vec<Sample> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        let output =
            tokio::task::spawn_blocking(move || self.child.wait_with_output()).await.unwrap().unwrap();
        let mut samples = parse_csv(std::str::from_utf8(&output.stdout).unwrap()).unwrap();
        samples.sort_by_key(|sample| sample.start_ns);
        if let Some(spells) = spells(&samples) {
            note(format!("failed: {spells}"));
        }
        samples
    }
}

/// Waits until the node has programmed the Service: before, every request fails and nothing is claimed.
async fn await_answer(stage: &Stage, from_node: &str, target: SocketAddr) {
    let script = format!("exec 3<>/dev/tcp/{}/{}", target.ip(), target.port());
    let ask = || {
        let mut command = stage.bench.cluster.command_in(from_node, "timeout").unwrap();
        command.args(["1", "bash", "-c", &script]).stderr(Stdio::null());
        command.status().unwrap().success()
    };
    let asked = async {
        while !ask() {
            // Nothing can be watched: the node's packet filter tells nobody when it has changed.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(wait::LIMIT, asked).await.expect("the Service answers");
}

/// Every number of Pods that the Service led to, from the moment of its start.
pub(crate) struct Witness {
    seen: Arc<Mutex<BTreeSet<usize>>>,
    task: JoinHandle<()>,
}

impl Witness {
    pub(crate) fn start(stage: &Stage) -> Self {
        let seen: Arc<Mutex<BTreeSet<usize>>> = Arc::default();
        let (notes, api) = (Arc::clone(&seen), stage.api::<EndpointSlice>());
        let task = tokio::spawn(async move {
            let labels = watcher::Config::default().labels("kubernetes.io/service-name=web");
            let slices = watcher(api, labels).default_backoff().applied_objects();
            pin_mut!(slices);
            while let Some(slice) = slices.next().await {
                if let Ok(slice) = slice {
                    notes.lock().unwrap().insert(exposed(&[slice]).len());
                }
            }
        });
        Self { seen, task }
    }

    /// Waits until the first number is known, so that nothing after that is missed.
    pub(crate) async fn begun(&self) {
        let begun = async {
            while self.seen.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(wait::LIMIT, begun).await.expect("a slice is seen");
    }

    /// The fewest Pods that the Service led to.
    pub(crate) fn fewest(self) -> usize {
        self.task.abort();
        let seen = self.seen.lock().unwrap();
        *seen.first().expect("a slice was seen")
    }
}
