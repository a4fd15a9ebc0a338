//! A witness of who acts: asks at each Pod of the workload, whatever labels and Leases say.
//!
//! A Pod that does not act relays to the one that does, so what counts is who says that it answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backuppodset::api::HAGroup;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
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
    task: JoinHandle<()>,
}

impl Actors {
    pub(crate) fn start(stage: &Stage) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (notes, pods, groups) = (Arc::clone(&seen), stage.api::<Pod>(), stage.api::<HAGroup>());
        let task = tokio::spawn(async move {
            loop {
                let pairs = pairs(&groups).await;
                notes.lock().unwrap().pairs.extend(pairs);
                for address in addresses(&pods).await {
                    if let Ok(Ok(Some(actor))) = timeout(ANSWER_WITHIN, actor(&address)).await {
                        notes.lock().unwrap().answers.push(actor);
                    }
                }
                notes.lock().unwrap().rounds += 1;
                sleep(PAUSE).await;
            }
        });
        Self { seen, task }
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
        let Seen { answers, pairs, rounds: _ } = std::mem::take(&mut *self.seen.lock().unwrap());
        let mut turns: BTreeMap<String, Turns> = BTreeMap::new();
        for pod in answers {
            let pair = pairs.get(&pod).expect("a Pod that acts is in a pair");
            turns.entry(pair.clone()).or_default().note(&pod);
        }
        turns
    }
}

async fn pairs(groups: &Api<HAGroup>) -> Vec<(String, String)> {
    let status = groups.get(WEB).await.ok().and_then(|group| group.status).unwrap_or_default();
    let of_pair = |pair: backuppodset::api::PairStatus| {
        [pair.active, pair.standby].into_iter().map(move |pod| (pod, pair.name.clone()))
    };
    status.pairs.into_iter().flat_map(of_pair).filter(|(pod, _)| !pod.is_empty()).collect()
}

async fn addresses(pods: &Api<Pod>) -> Vec<String> {
    let of_workload = ListParams::default().labels(&format!("app={WEB}"));
    let listed = pods.list(&of_workload).await.map(|list| list.items).unwrap_or_default();
    listed.into_iter().filter_map(|pod| pod.status?.pod_ip).collect()
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
