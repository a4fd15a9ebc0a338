//! A witness of who acts: asks at each Pod of the workload, whatever labels and Leases say.
//!
//! A Pod that does not act relays to the one that does, so what counts is who says that it answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bps_api::{HAGroup, PairStatus};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::reflector::{Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::history::Turns;
use crate::stage::{PORT, Stage, WEB};
use crate::wait;

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(5);
/// How long an answer may take; where nobody acts, relays wait for somebody.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    /// Pods whose application answered, one after the other.
    answers: Vec<String>,
    /// The pair of each Pod that was in one.
    pairs: BTreeMap<String, String>,
    /// How often all were asked.
    rounds: usize,
}

/// Asks until it is stopped.
pub(crate) struct Actors {
    seen: Arc<Mutex<Seen>>,
    groups: Api<HAGroup>,
    task: JoinHandle<()>,
}

impl Actors {
    pub(crate) fn start(stage: &Stage) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (notes, pods, groups) = (Arc::clone(&seen), stage.api::<Pod>(), stage.api::<HAGroup>());
        let task = tokio::spawn(async move {
            let (known_pods, pods_writer) = store();
            let of_workload = watcher::Config::default().labels(&format!("app={WEB}"));
            let pods = watcher(pods, of_workload).default_backoff().reflect(pods_writer);
            let (known_groups, groups_writer) = store();
            let groups = watcher(groups, watcher::Config::default()).default_backoff().reflect(groups_writer);
            // None of them ends by itself.
            tokio::join!(
                pods.for_each(async |_| {}),
                groups.for_each(async |_| {}),
                ask(&notes, &known_pods, &known_groups)
            );
        });
        Self { seen, groups: stage.api(), task }
    }

    /// Asks all once more; who acted in each pair, one after the other.
    pub(crate) async fn stop(self) -> BTreeMap<String, Turns> {
        let rounds = || self.seen.lock().unwrap().rounds;
        // One round may have begun already.
        let enough = rounds() + 2;
        let asked = async {
            while rounds() < enough {
                sleep(PAUSE).await;
            }
        };
        timeout(wait::LIMIT, asked).await.expect("all are asked");
        self.task.abort();
        let group = self.groups.get(WEB).await.unwrap();
        let Seen { answers, pairs, rounds: _ } = std::mem::take(&mut *self.seen.lock().unwrap());
        // What the watch showed last may be older than the last answers.
        let pairs: BTreeMap<String, String> = pairs.into_iter().chain(pairs_of(&group)).collect();
        let mut turns: BTreeMap<String, Turns> = BTreeMap::new();
        for pod in answers {
            let pair = pairs.get(&pod).expect("a Pod that acts is in a pair");
            turns.entry(pair.clone()).or_default().note(&pod);
        }
        turns
    }
}

/// Asks each Pod that is known, again and again.
async fn ask(notes: &Mutex<Seen>, pods: &Store<Pod>, groups: &Store<HAGroup>) {
    loop {
        let pairs = groups.state().into_iter().flat_map(|group| pairs_of(&group));
        notes.lock().unwrap().pairs.extend(pairs);
        let addresses = pods.state().into_iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone());
        for address in addresses {
            if let Ok(Ok(Some(actor))) = timeout(ANSWER_WITHIN, actor(&address)).await {
                notes.lock().unwrap().answers.push(actor);
            }
        }
        notes.lock().unwrap().rounds += 1;
        sleep(PAUSE).await;
    }
}

/// Pods and their pair.
fn pairs_of(group: &HAGroup) -> Vec<(String, String)> {
    let pairs = group.status.iter().flat_map(|status| &status.pairs);
    let of_pair = |pair: &PairStatus| {
        let name = pair.name.clone();
        [&pair.active, &pair.standby].map(|pod| (pod.clone(), name.clone()))
    };
    pairs.flat_map(of_pair).filter(|(pod, _)| !pod.is_empty()).collect()
}

/// The Pod whose application answered.
async fn actor(address: &str) -> std::io::Result<Option<String>> {
    let mut stream = TcpStream::connect((address, PORT)).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    Ok(body.filter(|_| answer.starts_with("HTTP/1.1 200")))
}
