//! What the agent adds to a request: the application under an agent and the same one alone, on the same node, in turn.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use serde_json::json;

use super::Course;
use super::report::{Report, Row, Unit, median_latency};
use super::site::{Serving, Site};
use super::watch::Watch;
use super::workload::{PORT, container};
use crate::bench::client::{Habit, visit};
use crate::bench::{Error, NAMESPACE};
use crate::hollow::is_ready;

/// First words of the rows.
pub const WHAT: &str = "request:";
/// Name of the Pod without an agent.
const ALONE: &str = "alone";
/// How long that Pod may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Where the requests of a round go.
struct Ways {
    alone: SocketAddr,
    active: SocketAddr,
    standby: SocketAddr,
}

/// Measures, if it is wanted: four rows.
///
/// # Errors
/// `Request`, or `Find` if the Pod without an agent does not start.
pub async fn run(course: &Course<'_>, site: &Site, report: &mut Report) -> Result<(), Error> {
    if !course.options.wants(WHAT) {
        return Ok(());
    }
    let active = site.settled().await?;
    let pods: Api<Pod> = site.api();
    // It has somebody to tell as well, so that the agent is the only difference.
    let watch = Watch::start(&course.bench.cluster, course.lookout).await?;
    let measured = match start(&pods, (&active, &watch)).await {
        Ok(alone) => measure(course, (site, &active, alone), report).await,
        Err(error) => Err(error),
    };
    let deleted = pods.delete(ALONE, &DeleteParams::default().grace_period(0)).await;
    measured?;
    deleted.map(drop).map_err(Error::request("delete", "the Pod without an agent"))
}

async fn measure(
    course: &Course<'_>,
    (site, active, alone): (&Site, &Serving, SocketAddr),
    report: &mut Report,
) -> Result<(), Error> {
    let pods = site.pods().await?;
    let of = |is_active: bool| {
        let pod = pods.iter().find(|pod| (pod.name_any() == active.pod) == is_active);
        pod.and_then(address).ok_or_else(|| Error::Find { what: "the address of a Pod".to_owned() })
    };
    let ways = Ways { alone, active: of(true)?, standby: of(false)? };
    let row = |what: &str| Row { what: format!("{WHAT} {what}"), unit: Unit::Microseconds, ..Row::default() };
    let mut alone = row("application alone");
    let mut wrapped = row("application under its agent");
    let mut added = row("added by the agent");
    let mut relayed = row("added by the standby's relay");
    wrapped.beside.clone_from(&alone.what);
    // A round has some 280 requests of each.
    course
        .repeat((WHAT, course.options.rounds), &mut report.failures, async |number| {
            let [one, other, relay] = round(course, &ways, number).await?;
            alone.samples.push(one);
            wrapped.samples.push(other);
            added.samples.push(other - one);
            relayed.samples.push(relay - other);
            Ok(())
        })
        .await;
    course.keep(report, [alone, wrapped, added, relayed]);
    Ok(())
}

/// Median latencies alone, under the agent, and through the relay; every second round in the other order.
async fn round(course: &Course<'_>, ways: &Ways, number: u16) -> Result<[f64; 3], Error> {
    let mut order = [(0, ways.alone), (1, ways.active), (2, ways.standby)];
    if number.is_multiple_of(2) {
        order.reverse();
    }
    let mut medians = [0.0; 3];
    for (index, target) in order {
        // It runs for two margins: enough requests for a median.
        let (_, samples) = visit(course.bench, course.lookout, (Habit::Fresh, target)).await?.end().await?;
        let none = || Error::Find { what: format!("an answer of {target}") };
        medians[index] = median_latency(&samples).ok_or_else(none)?;
    }
    Ok(medians)
}

/// Starts the application without an agent on the node of the active; returns where it listens.
async fn start(pods: &Api<Pod>, (active, watch): (&Serving, &Watch)) -> Result<SocketAddr, Error> {
    let containers = [container(Some(watch.address))];
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": ALONE, "namespace": NAMESPACE},
        "spec": {"nodeName": active.node, "terminationGracePeriodSeconds": 1, "containers": containers},
    });
    let applied = pods.patch(ALONE, &PatchParams::apply("bench").force(), &Patch::Apply(pod)).await;
    applied.map_err(Error::request("create", "the Pod without an agent"))?;
    let is_there = |pod: Option<&Pod>| pod.is_some_and(|pod| is_ready(pod) && address(pod).is_some());
    let ready = tokio::time::timeout(READY_WITHIN, await_condition(pods.clone(), ALONE, is_there)).await;
    let pod = ready.ok().and_then(|waited| waited.ok().flatten());
    pod.as_ref().and_then(address).ok_or_else(|| Error::Find { what: "the Pod without an agent".to_owned() })
}

fn address(pod: &Pod) -> Option<SocketAddr> {
    let address: IpAddr = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    Some(SocketAddr::new(address, PORT))
}
