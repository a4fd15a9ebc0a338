//! Counts the writes that reach the API server, and the operator's CPU time, while nothing happens.

use std::time::Duration;

use kube::Client;
use tokio::time::sleep;

use super::process::Operator;
use crate::bench::Error;
use crate::bench::requests::writes;

/// What idling costs.
pub(super) struct Idle {
    pub(super) writes_per_minute: f64,
    pub(super) cpu_percent: f64,
}

pub(super) async fn watch(client: &Client, operator: &Operator, time: Duration) -> Result<Idle, Error> {
    let (written, cpu) = (writes(client).await?, operator.cpu_seconds()?);
    sleep(time).await;
    let (writes_after, cpu_after) = (writes(client).await?, operator.cpu_seconds()?);
    let seconds = time.as_secs_f64();
    Ok(Idle {
        writes_per_minute: (writes_after - written) * 60.0 / seconds,
        cpu_percent: (cpu_after - cpu) * 100.0 / seconds,
    })
}
