//! Shows the own address in an EndpointSlice while this agent is active, or is about to take over from one that has ended.
//!
//! Never on the path of acting: the application runs whether or not anything is published.

use std::net::IpAddr;
use std::time::Duration;

use bps_api::keys;
use bps_protocol::{BootTime, Epoch, Showing};
use bps_runtime::backoff::backoff;
use bps_runtime::client::connecting_anew;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use bps_wire::shown::{self, NotAnEpoch};
use bps_wire::uid::format_uid;
use futures::FutureExt as _;
use futures::future::select_ok;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, ReplaceOperation, TestOperation};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::world::Machine;
use crate::identity::Identity;

/// First pause before another attempt; each further one is twice as long, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause between two attempts. 2 s: an API server that comes back is not met by every agent each 50 ms.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long the first way to the API server has before a second one is tried beside it. 100 ms: some ten times what it takes
/// that has nothing else to do.
const SECOND_WAY_AFTER: Duration = Duration::from_millis(100);
/// How long one attempt, a read and a write, may take.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// HTTP status: somebody wrote the object since it was read.
const CONFLICT: u16 = 409;
/// HTTP status: a test of a JSON patch failed.
const UNPROCESSABLE: u16 = 422;

/// Where to publish what.
pub struct Publisher<On: Machine> {
    machine: On,
    /// The slices of the namespace.
    api: Api<EndpointSlice>,
    /// The same, with a connection for each request.
    anew: Api<EndpointSlice>,
    /// Name of the slice; `None`: there is none.
    names: Receiver<Option<String>>,
    own: Identity,
    /// The last epoch that the slice showed with the own address, and since when.
    shown: Sender<Option<Shown>>,
    retries: Counter,
}

/// An epoch, and when the slice showed it.
pub type Shown = (Epoch, BootTime);

/// Why the slice does not show this agent yet.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("no answer in time")]
    Overdue,
    #[error("ask the API server")]
    Request(#[source] Box<kube::Error>),
    #[error(transparent)]
    Epoch(NotAnEpoch),
}

/// How an attempt ended that need not be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Shown,
    Overtaken,
}

impl<On: Machine> Publisher<On> {
    /// For the slice of the name that is given, in the agent's own namespace.
    pub fn new(
        machine: On,
        (client, names): (Client, Receiver<Option<String>>),
        own: Identity,
        retries: Counter,
    ) -> Self {
        let anew = Api::namespaced(connecting_anew(&client), &own.namespace);
        let (api, shown) = (Api::namespaced(client, &own.namespace), Sender::new(None));
        Self { machine, api, anew, names, own, shown, retries }
    }

    /// What the slice shows, as it changes.
    pub fn shown(&self) -> Receiver<Option<Shown>> {
        self.shown.subscribe()
    }

    /// Publishes whatever this agent is to show, as long as it is.
    ///
    /// # Errors
    /// None: an address that is not shown is no reason to stop an application.
    pub async fn run(
        mut self,
        mut showings: Receiver<Option<Showing>>,
        shutdown: Shutdown,
    ) -> Result<(), TaskError> {
        loop {
            let epoch = showings.borrow_and_update().map(|showing| showing.epoch);
            let (latest, name) = (showings.clone(), self.names.borrow_and_update().clone());
            let mut names = self.names.clone();
            tokio::select! {
                // Once it does not act any more, it must not publish that it does.
                biased;
                () = shutdown.requested() => return Ok(()),
                // What was begun before the tenure is not begun anew because it begins.
                changed = showings.wait_for(|now| now.map(|showing| showing.epoch) != epoch) => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                changed = names.changed() => if changed.is_err() { return Ok(()) },
                () = self.show(latest, name.as_deref()) => {}
            }
        }
    }

    /// Ends only by being dropped.
    async fn show(&self, latest: Receiver<Option<Showing>>, name: Option<&str>) {
        if let Some(name) = name {
            self.repeat(latest, name).await;
        }
        std::future::pending::<()>().await;
    }

    /// Ends when the slice shows what it should, or nothing is to be shown.
    async fn repeat(&self, mut latest: Receiver<Option<Showing>>, name: &str) {
        for attempts in 1_u32.. {
            let Some(showing) = *latest.borrow_and_update() else { return };
            let (epoch, has_begun) = (showing.epoch, showing.has_begun());
            let attempt = timeout(ATTEMPT_MAX, self.attempt(showing, name)).await;
            match attempt.unwrap_or(Err(Error::Overdue)) {
                Ok(Outcome::Shown) => {
                    // Who was shown before its tenure began is shown since then.
                    let shown = (epoch, self.machine.now());
                    self.shown.send_if_modified(|known| match known {
                        Some((known, _)) if *known == epoch => false,
                        _ => known.replace(shown) != Some(shown),
                    });
                    return info!(%epoch, has_begun, "Published the own address");
                }
                Ok(Outcome::Overtaken) if has_begun => {
                    return info!(%epoch, "Left the slice to a later epoch");
                }
                // Another one claims the same epoch; if this one has it, it comes first.
                Ok(Outcome::Overtaken) => match latest.changed().await {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                // The operator wrote the slice meanwhile.
                Err(Error::Request(error)) if attempts == 1 && is_conflict(&error) => continue,
                Err(error) if attempts == 1 => {
                    warn!(error = &error as &dyn std::error::Error, "Could not publish the own address yet");
                }
                Err(_) => {}
            }
            self.retries.inc();
            sleep(backoff(PAUSE_MIN, attempts, PAUSE_MAX)).await;
        }
    }

    /// Goes another way as well if the first one takes long: the API server of that connection may be gone, with the node that was
    /// lost. Both write the same.
    async fn attempt(&self, showing: Showing, name: &str) -> Result<Outcome, Error> {
        let mut first = self.attempt_by(&self.api, showing, name).boxed();
        if let Ok(outcome) = timeout(SECOND_WAY_AFTER, &mut first).await {
            return outcome;
        }
        let second = self.attempt_by(&self.anew, showing, name).boxed();
        select_ok([first, second]).await.map(|(outcome, _)| outcome)
    }

    async fn attempt_by(
        &self,
        api: &Api<EndpointSlice>,
        showing: Showing,
        name: &str,
    ) -> Result<Outcome, Error> {
        if let Some(last) = showing.follows
            && self.succeed(api, (last, showing.epoch), name).await?
        {
            return Ok(Outcome::Shown);
        }
        let slice = api.get(name).await.map_err(request)?;
        if shows(&slice, &self.own, showing.epoch)? {
            return Ok(Outcome::Shown);
        }
        if is_overtaken(&slice, showing)? {
            return Ok(Outcome::Overtaken);
        }
        let patch = Patch::Merge(patch(&slice, &self.own, showing.epoch));
        api.patch(name, &parameters(), &patch).await.map_err(request)?;
        Ok(Outcome::Shown)
    }

    /// Takes the place of the address that is shown with the epoch `last`; whether it was. One request instead of two,
    /// as long as nobody serves.
    async fn succeed(
        &self,
        api: &Api<EndpointSlice>,
        (last, epoch): (Epoch, Epoch),
        name: &str,
    ) -> Result<bool, Error> {
        let patch = Patch::Json::<()>(succession(&self.own, last, epoch));
        match api.patch(name, &parameters(), &patch).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == UNPROCESSABLE => Ok(false),
            Err(error) => Err(request(error)),
        }
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == CONFLICT)
}

fn request(source: kube::Error) -> Error {
    Error::Request(Box::new(source))
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(keys::FIELD_MANAGER_AGENT.into()), ..PatchParams::default() }
}

/// Whether an earlier request did it whose answer has not come.
fn shows(slice: &EndpointSlice, own: &Identity, epoch: Epoch) -> Result<bool, Error> {
    let shown = shown::read(slice.annotations()).map_err(Error::Epoch)?;
    let [endpoint] = &slice.endpoints[..] else { return Ok(false) };
    let uid = endpoint.target_ref.as_ref().and_then(|pod| pod.uid.as_deref());
    let is_own = uid == Some(&*format_uid(own.id.0)) && endpoint.addresses == [own.ip.to_string()];
    Ok(is_own && shown == Some(epoch))
}

/// Whether the slice shows a later tenure, or the very one whose holder comes before this agent.
fn is_overtaken(slice: &EndpointSlice, own: Showing) -> Result<bool, Error> {
    let Some(shown) = shown::read(slice.annotations()).map_err(Error::Epoch)? else { return Ok(false) };
    Ok(own.epoch < shown || (own.epoch == shown && !own.has_begun()))
}

/// The API server refuses it if somebody wrote the slice since it was read.
fn patch(slice: &EndpointSlice, own: &Identity, epoch: Epoch) -> Value {
    let address_type = match own.ip {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    };
    json!({
        "metadata": {
            "resourceVersion": slice.resource_version(),
            "annotations": {(keys::ANNOTATION_HA_EPOCH): shown::text(epoch)},
        },
        "addressType": address_type,
        "endpoints": endpoints(own),
    })
}

/// The API server refuses it unless the slice shows the epoch `last`.
fn succession(own: &Identity, last: Epoch, epoch: Epoch) -> json_patch::Patch {
    let [last, epoch] = [last, epoch].map(|epoch| Value::from(shown::text(epoch)));
    let annotation = PointerBuf::from_tokens(["metadata", "annotations", keys::ANNOTATION_HA_EPOCH]);
    let shown = PointerBuf::from_tokens(["endpoints"]);
    json_patch::Patch(vec![
        PatchOperation::Test(TestOperation { path: annotation.clone(), value: last }),
        PatchOperation::Replace(ReplaceOperation { path: annotation, value: epoch }),
        PatchOperation::Add(AddOperation { path: shown, value: endpoints(own) }),
    ])
}

fn endpoints(own: &Identity) -> Value {
    json!([{
        "addresses": [own.ip.to_string()],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {
            "kind": "Pod", "namespace": own.namespace, "name": own.pod, "uid": format_uid(own.id.0),
        },
    }])
}

#[cfg(test)]
mod tests;
