//! Measures what the README quotes: the same steps often, beside the paper, the original controller and the target.
//!
//! Needs the local cluster with its nodes, to itself. Each round uses a set of a fresh name and removes it again.
//!
//! | module | what it does |
//! |---|---|
//! | [`rows`] | the rows of the table, with the figures they stand beside; pure |
//! | [`summary`] | median, 90th percentile and worst; the table and the raw samples; pure |
//! | [`rounds`] | one round of each group of rows |
//! | [`client`] | a client of the exposed Service while a primary goes away |
//! | [`gate`] | a ticket to a cold Pod |
//! | [`metrics`] | reads counters from the operator |
//! | [`requests`] | counts what reaches the API server |
//! | [`inside`] | work in the network of a node |
//! | [`timeline`] | one round, event by event |
//! | [`hardware`] | what it was measured on |
//! | [`pairs`] | pairs of active and standby |
//! | [`scale`] | thousands of Pods on hollow nodes |
//! | [`placement`] | where schedulers put Pods, with our extender and without |

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::PathBuf;

use bps_runtime::error::chain;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::cluster::{self, Cluster};
use crate::faults;
use crate::image::Profile;
use crate::install::{self, images};
use crate::machine::{self, process::ProcessId};
use crate::stage;
use crate::state::Purpose;
use crate::story::{self, site};

pub mod client;
pub mod gate;
pub mod hardware;
pub mod inside;
pub mod metrics;
pub mod pairs;
pub mod placement;
pub mod requests;
pub mod rounds;
pub mod rows;
pub mod scale;
pub mod summary;
pub mod timeline;

use rounds::{Bench, Round};
use rows::Group;
use summary::Samples;

/// Namespace of everything that is measured.
pub const NAMESPACE: &str = "bps-bench";
/// How long a new namespace may take to get its ServiceAccount.
const NAMESPACE_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);
/// What is measured is what ships.
const PROFILE: Profile = Profile::Dist;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no cluster, or the operator does not run on it.
    #[error("prepare the cluster")]
    Prepare(#[source] Box<story::Error>),
    /// The cluster of `KUBECONFIG` is not the local one.
    #[error(
        "only the local cluster can be measured: unset KUBECONFIG, or point it to what `lab kubeconfig` prints"
    )]
    NeedLocal,
    /// The local cluster does not answer.
    #[error("find the local cluster")]
    FindCluster(#[source] Box<cluster::Error>),
    /// The binaries are missing.
    #[error("build the binaries")]
    Build(#[source] Box<images::Error>),
    /// The operator or its manifest could not be brought in.
    #[error("install")]
    Install(#[source] Box<install::Error>),
    /// The API server refused.
    #[error("{verb} {what}")]
    Request {
        /// What was asked.
        verb: &'static str,
        /// About what.
        what: &'static str,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
    /// A set did not get into its state.
    #[error("act on a set")]
    Act(#[source] Box<stage::Error>),
    /// The machine refused.
    #[error("{action}")]
    Machine {
        /// What was tried.
        action: &'static str,
        /// Why not.
        #[source]
        source: Box<machine::Error>,
    },
    /// Something that was expected was not there.
    #[error("find {what}")]
    Find {
        /// What was looked for.
        what: String,
    },
    /// The file for the raw samples.
    #[error("write {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The control plane did not start.
    #[error("start a control plane")]
    ControlPlane(#[source] Box<crate::control_plane::Error>),
    /// The extender of the scheduler did not start.
    #[error("start the extender")]
    Extender(#[source] Box<bps_extender::Error>),
    /// The hollow nodes did not do what they were told.
    #[error("use hollow nodes")]
    Hollow(#[source] Box<crate::hollow::Error>),
    /// Some rounds did not come to their end.
    #[error("{failed} rounds did not come to their end")]
    Incomplete {
        /// How many.
        failed: usize,
    },
}

impl Error {
    /// An error of a request.
    pub(crate) fn request(verb: &'static str, what: &'static str) -> impl Fn(kube::Error) -> Self {
        move |source| Self::Request { verb, what, source: Box::new(source) }
    }
}

impl From<stage::Error> for Error {
    fn from(source: stage::Error) -> Self {
        Self::Act(Box::new(source))
    }
}

impl From<faults::Error> for Error {
    fn from(source: faults::Error) -> Self {
        stage::Error::Break(Box::new(source)).into()
    }
}

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Rounds of each group.
    pub rounds: u16,
    /// Only these rows; all if empty.
    pub only: BTreeSet<String>,
    /// Whether one round of each group is printed event by event.
    pub has_timeline: bool,
    /// Where the raw samples go as JSON.
    pub out: Option<PathBuf>,
    /// Instead of the shipped manifest of the operator.
    pub manifest: Option<String>,
}

/// Measures and prints.
///
/// # Errors
/// `Incomplete` after all other rounds if some failed; see [`enum@Error`].
pub async fn run(options: &Options) -> Result<(), Error> {
    let bench = bench(options.manifest.as_deref()).await?;
    let client = bench.client.clone();
    let description = hardware::describe(&client).await;
    println!("{description}\n");
    let mut samples = Samples::default();
    let is_wanted = |id: &str| options.only.is_empty() || options.only.contains(id);
    for group in Group::ALL {
        if rows::ROWS.iter().any(|row| row.group == group && is_wanted(row.id)) {
            measure(&bench, (group, options), &mut samples).await;
        }
    }
    clear(&client).await?;
    println!("{}", summary::table(&samples, is_wanted));
    if let Some(path) = &options.out {
        let text = json!({"hardware": description, "samples": samples}).to_string();
        std::fs::write(path, text).map_err(|source| Error::Write { path: path.clone(), source })?;
    }
    match samples.failures.len() {
        0 => Ok(()),
        failed => Err(Error::Incomplete { failed }),
    }
}

/// The means to measure on the local cluster, which is started if there is none.
async fn bench(manifest: Option<&str>) -> Result<Bench, Error> {
    let (client, cluster) = prepare(manifest).await?;
    let binaries = images::await_binaries(PROFILE).await.map_err(|error| Error::Build(Box::new(error)))?;
    Ok(Bench { client, cluster, app: binaries.app })
}

async fn prepare(manifest: Option<&str>) -> Result<(Client, Cluster), Error> {
    let prepared = |error| Error::Prepare(Box::new(error));
    let chosen = site::choose(crate::progress::Progress::Shown, Purpose::Show(ProcessId::current())).await;
    let (client, site) = chosen.map_err(|error| prepared(story::Error::FindCluster(error)))?;
    let site::Site::Local(cluster) = &site else { return Err(Error::NeedLocal) };
    story::provide(&client, (&site, PROFILE), manifest).await.map_err(prepared)?;
    ensure_namespace(&client).await?;
    clear(&client).await?;
    Ok((client, cluster.clone()))
}

/// Makes the namespace and waits until Pods can be created in it.
pub(crate) async fn ensure_namespace(client: &Client) -> Result<(), Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).expect("a namespace");
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        made => drop(made.map_err(Error::request("create", "the namespace"))?),
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let has_account = |account: Option<&ServiceAccount>| account.is_some();
    let made = kube::runtime::wait::await_condition(accounts, "default", has_account);
    let made = tokio::time::timeout(NAMESPACE_WITHIN, made).await;
    made.map_err(|_| Error::Find { what: "the ServiceAccount of the namespace".to_owned() })?.ok();
    Ok(())
}

/// Removes what an interrupted run may have left.
async fn clear(client: &Client) -> Result<(), Error> {
    let sets: Api<bps_api::BackupPodSet> = Api::namespaced(client.clone(), NAMESPACE);
    let deleted = sets.delete_collection(&DeleteParams::background(), &ListParams::default()).await;
    deleted.map(drop).map_err(Error::request("delete", "the sets of an earlier run"))
}

async fn measure(bench: &Bench, (group, options): (Group, &Options), samples: &mut Samples) {
    let mut last = None;
    for number in 1..=options.rounds {
        // On a terminal the line counts; in a file there is one line for the group.
        if std::io::stderr().is_terminal() {
            eprint!("\r{:<40} {number:>3} of {}", group.title(), options.rounds);
        } else if number == 1 {
            eprint!("{:<40} {} rounds", group.title(), options.rounds);
        }
        match bench.round(group, number).await {
            Ok(round) => {
                samples.extend(&round);
                last = Some(round);
            }
            Err(error) => {
                let text = chain(&error);
                eprintln!("\n  round {number} of `{}` failed: {text}", group.title());
                samples.failures.push(text);
            }
        }
    }
    eprintln!();
    if let Some(Round { timeline, .. }) = last.filter(|_| options.has_timeline) {
        println!("One round of `{}`:\n{}", group.title(), timeline::print(&timeline));
    }
}
