//! A group of 128 Pods that are ready already: how long until each has its state and each pair its Lease.
//!
//! With a control plane and an operator of their own. The Pods are on hollow nodes and run no agents, so nobody acts:
//! every Pod bears the label of a standby. What is measured is the operator's part.

use std::collections::BTreeSet;
use std::time::Duration;

use bps_api::{HAGroup, keys};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::Course;
use super::report::{Report, Row, Unit};
use super::target::Target;
use crate::bench::scale::place::Place;
use crate::bench::scale::process::Operator;
use crate::bench::{Error, NAMESPACE};
use crate::hollow::{self, Binding, HollowNodes, is_ready};
use crate::image::APP_IMAGE;

/// Name of the row.
const WHAT: &str = "assignment: group of 128 Ready Pods made, until 64 Leases and 128 labels (no agents)";
/// Pods.
const PODS: usize = 128;
/// Hollow nodes.
const NODES: u16 = 3;
/// What it should take.
const TARGET: Target = Target::Worst(1.0);
/// The same of the thesis' controller, Pods that start included: Deployment and StatefulSet.
const ELSEWHERE: &str = "thesis 148 / 845 s";
/// How long anything may take.
const WITHIN: Duration = Duration::from_secs(60);
/// Pods that are created at the same time.
const CREATED_AT_ONCE: usize = 16;
/// Pause between two looks, while nothing is measured.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Measures, if it is wanted.
///
/// # Errors
/// See [`enum@Error`]; the control plane ends in any case.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    if !course.options.wants(WHAT) {
        return Ok(());
    }
    let place = Place::start().await?;
    let client = &place.client;
    let settings = hollow::Options { binding: Binding::FewestPods, ..hollow::Options::default() };
    let nodes = HollowNodes::start(client.clone(), NODES, settings).await;
    let _nodes = nodes.map_err(|error| Error::Hollow(Box::new(error)))?;
    let operator = Operator::start(&place.program, client).await?;
    let mut row = Row {
        what: WHAT.to_owned(),
        target: TARGET,
        elsewhere: ELSEWHERE,
        unit: Unit::Seconds,
        ..Row::default()
    };
    course
        .repeat((WHAT, course.options.rounds), &mut report.failures, async |number| {
            let group = format!("many-{number}");
            let time = round(client, &group).await;
            clear(client, &group).await?;
            row.took(time?);
            Ok(())
        })
        .await;
    course.keep(report, [row]);
    operator.stop().await
}

async fn round(client: &Client, group: &str) -> Result<Duration, Error> {
    let pods: &Api<Pod> = &Api::namespaced(client.clone(), NAMESPACE);
    let labels = format!("{}={group}", keys::LABEL_GROUP);
    let parameters = &PostParams::default();
    let created = stream::iter(0..PODS).map(async |number| {
        let made = pods.create(parameters, &pod(group, number)).await;
        made.map(drop).map_err(Error::request("create", "a Pod"))
    });
    created.buffer_unordered(CREATED_AT_ONCE).try_collect::<()>().await?;
    await_ready(pods, &labels).await?;
    let events = watcher::watcher(pods.clone(), watcher::Config::default().labels(&labels));
    let mut events = std::pin::pin!(events);
    while !matches!(events.next().await, Some(Ok(Event::InitDone)) | None) {}
    let groups: Api<HAGroup> = Api::namespaced(client.clone(), NAMESPACE);
    let document = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup", "metadata": {"name": group}, "spec": {},
    });
    let document =
        serde_json::from_value(document).map_err(|error| Error::Find { what: error.to_string() })?;
    let began = Instant::now();
    groups.create(parameters, &document).await.map_err(Error::request("create", "the group"))?;
    let assigned = async {
        let mut labelled = BTreeSet::new();
        while labelled.len() < PODS {
            if let Some(Ok(Event::Apply(pod))) = events.next().await
                && pod.labels().contains_key(keys::LABEL_HA_STATE)
            {
                labelled.insert(pod.name_any());
            }
        }
    };
    let overdue = |_| Error::Find { what: "a state of each of 128 Pods".to_owned() };
    timeout(WITHIN, assigned).await.map_err(overdue)?;
    let time = began.elapsed();
    // Labels show Leases, so these are there before.
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let leases = leases.list(&ListParams::default().labels(&labels)).await;
    let leases = leases.map_err(Error::request("list", "the Leases"))?.items.len();
    if leases == PODS / 2 { Ok(time) } else { Err(Error::Find { what: format!("64 Leases: {leases}") }) }
}

/// Takes the group and its Pods away, so that the next round finds what the first one found.
async fn clear(client: &Client, group: &str) -> Result<(), Error> {
    let groups: Api<HAGroup> = Api::namespaced(client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let deleted = groups.delete(group, &DeleteParams::default()).await;
    deleted.map_err(Error::request("delete", "the group"))?;
    let labels = ListParams::default().labels(&format!("{}={group}", keys::LABEL_GROUP));
    let deleted = pods.delete_collection(&DeleteParams::default().grace_period(0), &labels).await;
    deleted.map(drop).map_err(Error::request("delete", "the Pods"))
}

async fn await_ready(pods: &Api<Pod>, labels: &str) -> Result<(), Error> {
    let deadline = Instant::now() + WITHIN;
    while Instant::now() < deadline {
        let listed = pods.list(&ListParams::default().labels(labels)).await;
        let listed = listed.map_err(Error::request("list", "the Pods"))?;
        if listed.items.iter().filter(|pod| is_ready(pod)).count() == PODS {
            return Ok(());
        }
        sleep(LOOK_EVERY).await;
    }
    Err(Error::Find { what: "128 ready Pods".to_owned() })
}

fn pod(group: &str, number: usize) -> Pod {
    let pod = json!({
        "metadata": {
            "name": format!("{group}-{number}"), "namespace": NAMESPACE, "labels": {(keys::LABEL_GROUP): group},
        },
        // Hollow nodes bind by themselves; no scheduler feels responsible for this name.
        "spec": {"schedulerName": "hollow", "containers": [{"name": "app", "image": APP_IMAGE}]},
    });
    serde_json::from_value(pod).expect("a Pod")
}
