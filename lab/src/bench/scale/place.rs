//! A control plane and the programs that are started beside it, in a directory that goes with them.

use kube::Client;
use tempfile::TempDir;

use super::foresight::Clients;
use super::process::Program;
use crate::bench::{Error, PROFILE, ensure_namespace};
use crate::control_plane::ControlPlane;
use crate::install::{self, images, manifests};
use crate::story::site;

/// Ends with this value.
pub struct Place {
    /// The administrator.
    pub client: Client,
    /// The operator to start.
    pub program: Program,
    /// What a person starts.
    pub clients: Clients,
    // Its files go after it.
    _control_plane: ControlPlane,
    _directory: TempDir,
}

impl Place {
    /// Builds the operator and the kubectl plugin, and starts a control plane that knows the operator's kinds.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub async fn start() -> Result<Self, Error> {
        let failed = |error| Error::Build(Box::new(error));
        let program = images::await_binaries(PROFILE).await.map_err(failed)?.operator;
        let plugin = images::await_plugin(PROFILE).await.map_err(failed)?;
        let kubectl = tokio::task::spawn_blocking(site::kubectl).await.expect("a build does not panic");
        let kubectl = kubectl.ok_or_else(|| Error::Find { what: "kubectl".to_owned() })?;
        let directory =
            tempfile::tempdir().map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
        let failed = |error| Error::ControlPlane(Box::new(error));
        let control_plane =
            ControlPlane::start(directory.path().join("control-plane")).await.map_err(failed)?;
        let client = control_plane.client().await.map_err(failed)?;
        prepare(&client).await?;
        let log = directory.path().join("operator.log");
        let kubeconfig = control_plane.kubeconfig_path();
        let clients = Clients { plugin, kubectl, kubeconfig: kubeconfig.clone() };
        let program = Program { program, kubeconfig, log };
        Ok(Self { client, program, clients, _control_plane: control_plane, _directory: directory })
    }
}

/// The kind, the operator's namespace and the right to read metrics; no Deployment.
async fn prepare(client: &Client) -> Result<(), Error> {
    let failed = |error| Error::Install(Box::new(error));
    let objects = manifests::parse(manifests::SHIPPED);
    let objects = objects.map_err(|error| failed(install::Error::ReadManifest(error)))?;
    let of = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).cloned().collect::<Vec<_>>();
    for kind in [manifests::DEFINITION, "Namespace", "ClusterRole"] {
        install::apply(client, &of(kind)).await.map_err(failed)?;
    }
    install::establish(client).await.map_err(failed)?;
    ensure_namespace(client).await
}
