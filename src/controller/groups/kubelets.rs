//! How kubelets are, asked for once for all groups.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bps_core::model::NodeName;
use bps_runtime::boot_clock;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use super::gone::{ASK_EACH, Heard, Renewal};

/// Where kubelets renew the Leases of their nodes.
const NAMESPACE: &str = "kube-node-lease";
/// How long a Lease is good for that does not say so. 40 s: what kubelets write (`nodeLeaseDurationSeconds`).
const DURATION: Duration = Duration::from_secs(40);
/// How long an answer is given to others, too. Half of how often a group asks: so each node is asked six times a minute at most,
/// however many pairs were lost with it.
const GOOD_FOR: Duration = Duration::from_secs(ASK_EACH.as_secs() / 2);

/// What was heard last.
#[derive(Debug, Default)]
pub(super) struct Kubelets(Mutex<BTreeMap<NodeName, Heard>>);

impl Kubelets {
    /// How the kubelet of a node is. Where that may not be read, as by an operator of single namespaces, nothing is known.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn ask(&self, client: &Client, node: &NodeName) -> Result<Heard, kube::Error> {
        let asked = boot_clock::now();
        let known = {
            let mut known = self.0.lock().expect("no holder of this lock panics");
            known.retain(|_, heard| asked < heard.answered + GOOD_FOR);
            known.get(node).cloned()
        };
        if let Some(heard) = known {
            return Ok(heard);
        }
        let api: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
        let found = match api.get_opt(&node.0).await {
            Err(kube::Error::Api(status)) if status.code == 403 => None,
            found => found?,
        };
        let renewal = found.as_ref().and_then(renewal);
        let heard = Heard { asked, answered: boot_clock::now(), renewal };
        self.0.lock().expect("no holder of this lock panics").insert(node.clone(), heard.clone());
        Ok(heard)
    }
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
