//! Claims about pairs that nothing befalls.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use bps_api::HAGroup;
use bps_protocol::{Hold, Timing};
use bps_wire::lease::Record;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::notes::note;
use crate::pairs::{paired, start_stateful_set};
use crate::stage::Stage;
use crate::wait;

/// Who has written nothing for so long has nothing left to say about how the pair came about.
const QUIET: Duration = Duration::from_secs(5);
/// How long it is watched: more than a period of its Lease.
const WATCHED: Duration = Duration::from_secs(40);

/// Uid and version of all objects of a kind.
async fn versions_of<K>(stage: &Stage) -> BTreeSet<[String; 2]>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned,
{
    let objects = stage.api::<K>().list(&ListParams::default()).await.unwrap();
    objects.iter().map(|object| [object.uid().unwrap(), object.resource_version().unwrap()]).collect()
}

/// The same of everything that a pair consists of, but its Lease.
async fn versions(stage: &Stage) -> [BTreeSet<[String; 2]>; 6] {
    [
        versions_of::<HAGroup>(stage).await,
        versions_of::<StatefulSet>(stage).await,
        versions_of::<Pod>(stage).await,
        versions_of::<Secret>(stage).await,
        versions_of::<Service>(stage).await,
        versions_of::<EndpointSlice>(stage).await,
    ]
}

pub(crate) async fn nothing_is_written_about_an_idle_pair_but_that_its_lease_is_held(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    let record = async || Record::read(&stage.api::<Lease>().get(&pair.name).await.unwrap()).unwrap();
    let quiet = async {
        loop {
            let seen = versions(&stage).await;
            sleep(QUIET).await;
            if versions(&stage).await == seen {
                return seen;
            }
        }
    };
    let before = timeout(wait::LIMIT, quiet).await.expect("a moment without a write");
    let held = record().await;
    sleep(WATCHED).await;
    assert_eq!(versions(&stage).await, before);
    let still_held = record().await;
    assert_eq!((still_held.lease.epoch, still_held.lease.hold), (held.lease.epoch, Hold::Peer));
    let writes = still_held.lease.writes - held.lease.writes;
    note(format!("{writes} writes of the Lease in {} s", WATCHED.as_secs()));
    let periods = WATCHED.div_duration_f64(Timing::default().keep_alive_period).ceil();
    assert!((1.0..=periods).contains(&f64::from(u32::try_from(writes).unwrap())), "{writes} writes");
}
