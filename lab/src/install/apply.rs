//! Applies objects server-side, in the order in which they are given.

use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Error, READY_WITHIN};

/// Who these writes are by.
const FIELD_MANAGER: &str = "lab";
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(100);

/// Applies objects; what others own of them is taken over.
///
/// # Errors
/// `Apply` for the first that the API server does not take; the ones before it are applied.
pub async fn apply(client: &Client, objects: &[Value]) -> Result<(), Error> {
    for object in objects {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let failed = |source| Error::Apply { object: format!("{kind} {name}"), source: Box::new(source) };
        apply_one(client, object).await.map_err(failed)?;
    }
    Ok(())
}

async fn apply_one(client: &Client, object: &Value) -> Result<(), kube::Error> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap_or_default());
    let (resource, capabilities) = pinned_kind(client, &kind).await?;
    let object: DynamicObject = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&object.name_any(), &parameters, &Patch::Apply(&object)).await.map(drop)
}

/// Waits until BackupPodSets can be listed.
///
/// # Errors
/// `Establish` if that takes too long.
pub async fn establish(client: &Client) -> Result<(), Error> {
    let api: Api<bps_api::BackupPodSet> = Api::all(client.clone());
    let deadline = Instant::now() + READY_WITHIN;
    while api.list(&kube::api::ListParams::default().limit(1)).await.is_err() {
        if Instant::now() >= deadline {
            return Err(Error::Establish);
        }
        sleep(POLL).await;
    }
    Ok(())
}
