//! The API server that all tests of this program ask.

use std::path::{Path, PathBuf};

use kube::Client;
use lab::control_plane::ControlPlane;
use lab::paths;
use tokio::sync::OnceCell;

/// Never dropped, and it need not be: a control plane ends with the process that started it.
static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// A client of the cluster that `KUBECONFIG` names, else of a control plane that the first caller starts.
pub(crate) async fn client() -> Client {
    if paths::set("KUBECONFIG").is_some() {
        return Client::try_default().await.expect("a cluster");
    }
    let control_plane = CONTROL_PLANE.get_or_init(start).await;
    control_plane.client().await.expect("a client")
}

/// Path of a kubeconfig for the same cluster.
pub(crate) async fn kubeconfig() -> PathBuf {
    match paths::set("KUBECONFIG") {
        Some(path) => path,
        None => CONTROL_PLANE.get_or_init(start).await.kubeconfig_path(),
    }
}

async fn start() -> ControlPlane {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("api-tests");
    if directory.exists() {
        // Of an earlier run, which has ended: cargo runs one at a time in a target directory.
        std::fs::remove_dir_all(&directory).expect("an old directory can be removed");
    }
    ControlPlane::start(directory).await.expect("a control plane")
}
