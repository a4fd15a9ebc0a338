//! How long a person waits for the answer of `kubectl bps whatif`, its lists included.

use std::time::Duration;

use bps_api::{BackupPodSet, keys};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use kubectl_bps::arguments::WhatifArguments;
use kubectl_bps::cluster::Cluster;
use kubectl_bps::scene::Scene;
use kubectl_bps::whatif::prospect;
use tokio::time::{Instant, sleep};

use super::process::WITHIN;
use super::sets::set;
use crate::bench::summary::Figures;
use crate::bench::{Error, NAMESPACE};
use crate::stage::{Counts, PodSight, sight};

/// Name of the set that is asked about.
const NAME: &str = "large";
/// Its Pods: 100.
const COUNTS: Counts = Counts { primaries: 50, hot: 25, cold: 25 };
/// Questions that are counted.
const ASKED: usize = 20;
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(500);

/// Makes a set and asks what would become of it without a node of its primaries. Unit: milliseconds.
pub(super) async fn ask(client: &Client) -> Result<Figures, Error> {
    let sets: Api<BackupPodSet> = Api::namespaced(client.clone(), NAMESPACE);
    let made = sets.create(&PostParams::default(), &set(NAME, COUNTS)).await;
    let made = made.map_err(Error::request("create", "the large set"))?;
    let node = node_of_a_primary(client).await?;

    let cluster = Cluster { client: client.clone(), namespace: NAMESPACE.to_owned() };
    let question = WhatifArguments { nodes: vec![node], ..WhatifArguments::default() };
    let mut samples = Vec::with_capacity(ASKED);
    for _ in 0..ASKED {
        let began = Instant::now();
        let foretold = match Scene::take(&cluster, made.clone()).await {
            Ok(scene) => prospect(scene, &question),
            Err(error) => Err(error),
        };
        let foretold =
            foretold.map_err(|error| Error::Find { what: format!("an answer: {}", error.chain()) })?;
        samples.push(began.elapsed().as_secs_f64() * 1e3);
        if !foretold.survives {
            return Err(Error::Find { what: format!("room for {NAME} on what is left: {foretold:?}") });
        }
    }
    Figures::of(&samples).ok_or_else(|| Error::Find { what: "an answer".to_owned() })
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
