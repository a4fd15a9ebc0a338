//! How kubelets are, asked for once for all groups that want to know.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bps_core::model::NodeName;
use bps_observe::group::{Heard, Renewal};
use bps_protocol::BootTime;
use bps_runtime::boot_clock;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

/// Where kubelets renew the Leases of their nodes.
const NAMESPACE: &str = "kube-node-lease";
/// How long a Lease is good for that does not say so. 40 s: what kubelets write (`nodeLeaseDurationSeconds`).
const DURATION: Duration = Duration::from_secs(40);
/// How long an answer is given to others, too. 2 s: so each node is asked 30 times a minute at most, however many pairs were lost
/// with it, and an answer is hardly older than for who asks alone.
const GOOD_FOR: Duration = Duration::from_secs(2);

/// What was heard of one kubelet last; whoever asks meanwhile waits for the same answer.
type Last = Arc<tokio::sync::Mutex<Option<Heard>>>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Kubelets(Mutex<BTreeMap<NodeName, Last>>);

impl Kubelets {
    /// How the kubelet of a node is. Where that may not be read, as by an operator of single namespaces, nothing is known.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn ask(&self, client: &Client, node: &NodeName) -> Result<Heard, kube::Error> {
        let last = self.last(node, boot_clock::now());
        let mut last = last.lock().await;
        let asked = boot_clock::now();
        if let Some(heard) = last.as_ref().filter(|heard| is_good(heard, asked)) {
            return Ok(heard.clone());
        }
        let api: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
        let found = match api.get_opt(&node.0).await {
            Err(kube::Error::Api(status)) if status.code == 403 => None,
            found => found?,
        };
        let renewal = found.as_ref().and_then(renewal);
        let heard = Heard { asked, answered: boot_clock::now(), renewal };
        *last = Some(heard.clone());
        Ok(heard)
    }

    /// That of this node; those that nobody asks for any more are forgotten.
    fn last(&self, node: &NodeName, now: BootTime) -> Last {
        let mut all = self.0.lock().expect("no holder of this lock panics");
        let is_asked = |last: &Last| {
            let heard = last.try_lock();
            heard.map_or(true, |heard| heard.as_ref().is_some_and(|heard| is_good(heard, now)))
        };
        all.retain(|_, last| is_asked(last));
        all.entry(node.clone()).or_default().clone()
    }
}

fn is_good(heard: &Heard, now: BootTime) -> bool {
    now < heard.asked + GOOD_FOR
}

fn renewal(lease: &Lease) -> Option<Renewal> {
    let spec = lease.spec.as_ref()?;
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let created: Timestamp = lease.creation_timestamp()?.0;
    Some(Renewal {
        lease: lease.uid()?,
        created,
        renewed: spec.renew_time.as_ref()?.0,
        duration: seconds.map_or(DURATION, Duration::from_secs),
    })
}
