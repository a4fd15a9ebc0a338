//! Tells the story of the BPS paper's section III on a running cluster, with the paper's own manifest.
//!
//! Prints for people; `bench` measures the same steps often.
//!
//! | module | what it does |
//! |---|---|
//! | `pair` | the second act: active and standby |
//! | [`site`] | chooses the cluster: the user's own, or a local one |
//! | [`steps`] | the steps, and what the paper measured for each; pure |
//! | [`table`] | tables as the API server prints them for `kubectl get` |

use std::path::PathBuf;

use kube::Client;
use serde_json::Value;

use crate::image::Profile;
use crate::install::{self, images, manifests};
use crate::machine::process::ProcessId;
use crate::paths;
use crate::progress::Progress;
use crate::stage::{self, Act, Counts, Stage};
use crate::state::Purpose;

mod pair;
pub mod site;
pub mod steps;
pub mod table;

use site::Site;
use steps::{Deed, STEPS, Step};

/// The paper's Fig. 3.
pub const MANIFEST: &str = include_str!("../../../examples/paper-fig3.yaml");
/// Namespace of the demonstration.
const NAMESPACE: &str = "default";
/// How long the columns of `kubectl get bps` may lag behind the Pods.
const COLUMNS_WITHIN: std::time::Duration = std::time::Duration::from_secs(15);

/// Why the story did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no cluster.
    #[error("find a cluster")]
    FindCluster(#[source] site::Error),
    /// There are no images.
    #[error("provide the images")]
    ProvideImages(#[source] images::Error),
    /// The operator could not be installed.
    #[error("install the operator")]
    Install(#[source] install::Error),
    /// A manifest cannot be read.
    #[error("read {what}")]
    ReadManifest {
        /// Which.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: manifests::Error,
    },
    /// A set of this name is on the user's cluster already.
    #[error(
        "there is a set {set} in the namespace {NAMESPACE} already; remove it first, if you do not need it"
    )]
    FindSet {
        /// Its name.
        set: String,
    },
    /// A step did not reach its state.
    #[error("step `{step}`")]
    Act {
        /// Which.
        step: &'static str,
        /// Why not.
        #[source]
        source: stage::Error,
    },
    /// The Pods are in place, but the set's own columns do not say so.
    #[error("`kubectl get bps` does not say {wanted} after {} s", COLUMNS_WITHIN.as_secs())]
    AwaitColumns {
        /// What they should say.
        wanted: Counts,
    },
    /// The pair did not get into its state.
    #[error("show a pair of active and standby")]
    Pair(#[source] Box<crate::bench::Error>),
    /// A table could not be read.
    #[error("read {what} as a table")]
    ReadTable {
        /// Of what.
        what: &'static str,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Finds or starts a cluster, installs the operator and tells the whole story.
///
/// `manifest` replaces the shipped manifest of the operator.
///
/// # Errors
/// See [`enum@Error`]; the cluster is left as it is then, to be looked at.
pub async fn tell(manifest: Option<&str>) -> Result<(), Error> {
    let (client, site) = choose_and_build().await?;
    println!("{site}\n");
    provide(&client, (&site, Profile::Quick), manifest).await?;
    let set = manifest_of_paper()?;
    let name = set["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let failed = |step| move |source| Error::Act { step, source };
    let mut stage = Stage::open(&client, NAMESPACE, &name).await.map_err(failed("watch"))?;
    clear(&mut stage, &site).await?;
    let mut told = Vec::new();
    for (index, step) in STEPS.iter().enumerate() {
        println!("{}. {}\n", index + 1, step.title);
        let Some(act) = take(&mut stage, (step, &site), &set).await? else {
            println!("   Left out: only a local cluster lets this program reach a container's process.\n");
            continue;
        };
        show(&stage, step.counts).await?;
        println!("{}\n", steps::line(step, &act));
        told.push((step, act));
    }
    println!("{}", steps::summary(&told));
    match &site {
        Site::Local(cluster) => pair::tell(&client, cluster, NAMESPACE).await?,
        Site::Foreign { .. } => {
            println!("The act about active and standby is left out: it needs the local images.\n");
        }
    }
    println!("{}", farewell(&site, &name));
    Ok(())
}

/// Chooses the cluster. If that must be built first, the programs of the images are built at the same time: each of the two
/// builds has stretches that keep one core busy.
async fn choose_and_build() -> Result<(Client, Site), Error> {
    let site = site::choose(Progress::Shown, Purpose::Show(ProcessId::current()));
    let site = async { site.await.map_err(Error::FindCluster) };
    if paths::set("KUBECONFIG").is_some() {
        return site.await;
    }

    let images = async {
        let step = Progress::Shown.step("build the programs of the images");
        images::await_binaries(Profile::Quick).await.map_err(Error::ProvideImages)?;
        step.done();
        Ok(())
    };
    let (site, ()) = tokio::try_join!(site, images)?;
    Ok(site)
}

/// Removes the set of an earlier demonstration; elsewhere it may be somebody's, and is left alone.
async fn clear(stage: &mut Stage, site: &Site) -> Result<(), Error> {
    let failed = |source| Error::Act { step: "remove an earlier set", source };
    match site {
        Site::Foreign { .. } if stage.exists().await.map_err(failed)? => {
            Err(Error::FindSet { set: stage.set.clone() })
        }
        Site::Foreign { .. } => Ok(()),
        Site::Local(_) => stage.remove().await.map_err(failed),
    }
}

/// Sees to it that the operator runs: in the lab always the one of this checkout, elsewhere the one that is
/// there, or else the shipped one. `profile` is for the images of the lab.
///
/// # Errors
/// `ProvideImages`, `Install`, `ReadManifest`.
pub async fn provide(
    client: &Client,
    (site, profile): (&Site, Profile),
    manifest: Option<&str>,
) -> Result<(), Error> {
    let read = |source| Error::ReadManifest { what: "the operator's manifest", source };
    let objects = manifests::parse(manifest.unwrap_or(manifests::SHIPPED)).map_err(read)?;
    let objects = match site {
        Site::Local(cluster) => {
            let cluster = cluster.clone();
            let archives =
                tokio::task::spawn_blocking(move || images::provide(&cluster, profile, Progress::Shown));
            let archives = archives.await.expect("providing images does not panic");
            let archives = archives.map_err(Error::ProvideImages)?;
            manifests::with_images(objects, &manifests::Images::of_lab(&images::combined_digest(&archives)))
        }
        Site::Foreign { .. } => objects,
    };
    let is_kept = matches!(site, Site::Foreign { .. })
        && manifest.is_none()
        && install::is_installed(client).await.map_err(Error::Install)?;
    let replicas = if is_kept {
        install::await_leader(client, install::READY_WITHIN).await
    } else {
        let step = Progress::Shown.step("install the operator");
        let replicas = install::install(client, &objects).await;
        step.done();
        replicas
    };
    let replicas = replicas.map_err(Error::Install)?;
    println!("The operator runs with {} replicas; {} leads.\n", replicas.ready, replicas.leader);
    Ok(())
}

fn manifest_of_paper() -> Result<Value, Error> {
    let read = |source| Error::ReadManifest { what: "examples/paper-fig3.yaml", source };
    let mut documents = manifests::parse(MANIFEST).map_err(read)?;
    Ok(documents.swap_remove(0))
}

async fn take(stage: &mut Stage, (step, site): (&Step, &Site), set: &Value) -> Result<Option<Act>, Error> {
    let taken = match (step.deed, site) {
        (Deed::Create, _) => stage.create(set, step.counts).await,
        (Deed::Resize, _) => stage.resize(step.counts).await,
        (Deed::DeletePrimary, _) => stage.delete_primary(step.counts).await,
        (Deed::CrashPrimary, Site::Local(cluster)) => stage.crash_primary(cluster, step.counts).await,
        (Deed::CrashPrimary, Site::Foreign { .. }) => return Ok(None),
    };
    taken.map(Some).map_err(|source| Error::Act { step: step.word, source })
}

/// Prints the Pods with their type and the set's columns, once these say what the Pods show.
async fn show(stage: &Stage, counts: Counts) -> Result<(), Error> {
    let read = |what| move |source| Error::ReadTable { what, source: Box::new(source) };
    let Stage { client, namespace, set, .. } = stage;
    let deadline = tokio::time::Instant::now() + COLUMNS_WITHIN;
    let sets = loop {
        let sets = table::sets(client, namespace, set).await.map_err(read("the set"))?;
        let wanted = [counts.primaries, counts.hot, counts.cold].map(|count| format!("{count}/{count}"));
        if wanted
            .iter()
            .zip(["REPLICAS", "HOTBACKUPS", "COLDBACKUPS"])
            .all(|(text, column)| sets.cell(0, column) == Some(text))
        {
            break sets;
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(Error::AwaitColumns { wanted: counts });
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    let pods = table::pods(client, namespace, set).await.map_err(read("the pods"))?;
    println!("{}", indented(&pods.to_string()));
    println!("{}", indented(&sets.to_string()));
    Ok(())
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |text, line| text + "   " + line + "\n")
}

fn farewell(site: &Site, set: &str) -> String {
    let look = |kubectl: &str| {
        format!(
            "  {kubectl} get pods -L type,HAState,peer\n  {kubectl} get bps,hag -o wide\n  {kubectl} describe bps {set}\n  \
             {kubectl} logs -n backuppodset-system -l app.kubernetes.io/component=operator --prefix"
        )
    };
    match site {
        Site::Local(cluster) => {
            let kubectl = site::kubectl().unwrap_or_else(|| PathBuf::from("kubectl"));
            let kubeconfig = cluster.kubeconfig_path();
            let too = match cluster.makes_room() {
                Ok(true) => "\n\n`make test` does so, too: it needs the machine for itself.",
                Ok(false) | Err(_) => "",
            };
            format!(
                "The cluster and the set {set} go on running. To look around:\n\n  export KUBECONFIG={}\n  \
                 alias kubectl={}\n{}\n\nTo stop and remove everything:\n\n  make down{too}",
                kubeconfig.display(),
                kubectl.display(),
                look("kubectl"),
            )
        }
        Site::Foreign { .. } => format!(
            "The set {set} goes on running. To look around:\n\n{}\n\nTo remove the set and the operator:\n\n  \
             kubectl delete bps {set}\n  kubectl delete -f deploy/install.yaml",
            look("kubectl"),
        ),
    }
}
