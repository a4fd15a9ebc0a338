//! How long a person waits for the answer of `kubectl bps whatif`, from the start of the program to its end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bps_api::{BackupPodSet, keys};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use tokio::time::{Instant, sleep};

use super::process::WITHIN;
use super::sets::set;
use crate::bench::summary::Figures;
use crate::bench::{Error, NAMESPACE};
use crate::machine::command::run_command;
use crate::stage::{Counts, PodSight, sight};

/// Name of the set that is asked about.
const NAME: &str = "large";
/// Its Pods: 100.
const COUNTS: Counts = Counts { primaries: 50, hot: 25, cold: 25 };
/// Questions that are counted.
const ASKED: usize = 20;
/// Longest time for an answer, many times what any should take.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Begins the verdict on a set that has room on what is left.
const OUTLIVED: &str = "The set outlives this: ";
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(500);

/// The programs that a person starts.
#[derive(Debug, Clone)]
pub struct Clients {
    /// `kubectl-bps`.
    pub plugin: PathBuf,
    /// `kubectl`.
    pub kubectl: PathBuf,
    /// The cluster that they ask.
    pub kubeconfig: PathBuf,
}

/// What was measured. Unit: milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Foresight {
    /// `kubectl bps whatif` of the set, without a node of its primaries.
    pub(super) whatif: Figures,
    /// `kubectl get pods` of all namespaces, which lists the same Pods and no more.
    pub(super) list: Figures,
}

/// Makes a set, asks what would become of it, and lists all Pods, in turn.
pub(super) async fn ask(client: &Client, clients: &Clients) -> Result<Foresight, Error> {
    let sets: Api<BackupPodSet> = Api::namespaced(client.clone(), NAMESPACE);
    let made = sets.create(&PostParams::default(), &set(NAME, COUNTS)).await;
    made.map(drop).map_err(Error::request("create", "the large set"))?;
    let node = node_of_a_primary(client).await?;

    let (mut whatif, mut list) = (Vec::with_capacity(ASKED), Vec::with_capacity(ASKED));
    for _ in 0..ASKED {
        let (milliseconds, answer) = timed(clients.question(&node)).await?;
        if !answer.contains(OUTLIVED) {
            return Err(Error::Find { what: format!("room for {NAME} on what is left: {answer}") });
        }
        whatif.push(milliseconds);
        list.push(timed(clients.plain_list()).await?.0);
    }
    let figures =
        |samples: &[f64]| Figures::of(samples).ok_or_else(|| Error::Find { what: "an answer".to_owned() });
    Ok(Foresight { whatif: figures(&whatif)?, list: figures(&list)? })
}

impl Clients {
    fn question(&self, node: &str) -> Command {
        let words = ["whatif", NAME, "--namespace", NAMESPACE, "--node", node];
        self.command(&self.plugin, &words)
    }

    fn plain_list(&self) -> Command {
        self.command(&self.kubectl, &["get", "pods", "--all-namespaces"])
    }

    fn command(&self, program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }
}

/// Runs a program to its end. Returns the time that took, in milliseconds, and what it printed.
async fn timed(command: Command) -> Result<(f64, String), Error> {
    let began = Instant::now();
    let ran = tokio::task::spawn_blocking(move || run_command(command, ANSWER_WITHIN)).await;
    let milliseconds = began.elapsed().as_secs_f64() * 1e3;
    let failed = |source| Error::Machine { action: "ask as a person does", source: Box::new(source) };
    Ok((milliseconds, ran.expect("a command does not panic").map_err(failed)?))
}

/// Waits until all Pods are in place; the node of the first primary.
async fn node_of_a_primary(client: &Client) -> Result<String, Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let parameters = ListParams::default().labels(&format!("{}={NAME}", keys::LABEL_SET)).match_any();
    let began = Instant::now();
    while began.elapsed() < WITHIN {
        let seen = pods.list(&parameters).await.map_err(Error::request("list", "the pods"))?.items;
        let sights: Vec<PodSight> = seen.iter().map(PodSight::of).collect();
        let node = seen.first().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
        if let Some(node) = node.filter(|_| sight::are_in_place(&sights, COUNTS)) {
            return Ok(node);
        }
        sleep(POLL).await;
    }
    Err(Error::Find { what: "all pods of the large set in place".to_owned() })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use kubectl_bps::Arguments;
    use kubectl_bps::arguments::Verb;

    use super::*;

    #[test]
    fn the_plugin_is_asked_in_words_that_it_understands() {
        let path = |name: &str| PathBuf::from(name);
        let clients =
            Clients { plugin: path("kubectl-bps"), kubectl: path("kubectl"), kubeconfig: path("/config") };
        let question = clients.question("n7");
        let words = std::iter::once(question.get_program()).chain(question.get_args());
        let Arguments { target, verb } = Arguments::try_parse_from(words).expect("a command line");
        let Verb::Whatif(asked) = verb else { panic!("it is a question") };
        assert_eq!((asked.set.as_deref(), asked.nodes), (Some(NAME), vec!["n7".to_owned()]));
        assert_eq!(
            (target.namespace.as_deref(), target.kubeconfig),
            (Some(NAMESPACE), Some(path("/config")))
        );
    }

    #[test]
    fn the_set_has_a_hundred_pods() {
        let BackupPodSet { spec, .. } = set(NAME, COUNTS);
        assert_eq!(spec.replicas + spec.hot_backups + spec.cold_backups, 100);
    }
}
