//! Counts the writes that reach the API server, and the operator's CPU time, while nothing happens.

use std::time::Duration;

use http::Request;
use kube::Client;
use tokio::time::sleep;

use super::process::Operator;
use crate::bench::Error;
use crate::bench::metrics::Exposition;

/// Verbs that change something.
const WRITES: [&str; 6] = ["APPLY", "DELETE", "DELETECOLLECTION", "PATCH", "POST", "PUT"];
/// What the operator writes, besides its lease.
const RESOURCES: [&str; 7] =
    ["backuppodsets", "controllerrevisions", "endpointslices", "events", "pods", "secrets", "services"];

/// What idling costs.
pub(super) struct Idle {
    pub(super) writes_per_minute: f64,
    pub(super) cpu_percent: f64,
}

pub(super) async fn watch(client: &Client, operator: &Operator, time: Duration) -> Result<Idle, Error> {
    let (writes, cpu) = (writes(client).await?, operator.cpu_seconds()?);
    sleep(time).await;
    let (writes_after, cpu_after) = (self::writes(client).await?, operator.cpu_seconds()?);
    let seconds = time.as_secs_f64();
    Ok(Idle {
        writes_per_minute: (writes_after - writes) * 60.0 / seconds,
        cpu_percent: (cpu_after - cpu) * 100.0 / seconds,
    })
}

async fn writes(client: &Client) -> Result<f64, Error> {
    let request = Request::get("/metrics").body(Vec::new()).expect("a constant request");
    let text = client.request_text(request).await;
    let text = text.map_err(Error::request("read", "the API server's metrics"))?;
    let has = |labels: &str, name: &str, words: &[&str]| {
        words.iter().any(|word| labels.contains(&format!("{name}=\"{word}\"")))
    };
    let is_write = |labels: &str| has(labels, "verb", &WRITES) && has(labels, "resource", &RESOURCES);
    Ok(Exposition::from(text).sum("apiserver_request_total", is_write))
}
