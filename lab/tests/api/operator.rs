//! An operator in this process that acts in one namespace.

use std::sync::Arc;

use backuppodset::controller::{Settings, StormThreshold, Surroundings, start};
use bps_runtime::clock::Clock;
use bps_runtime::metrics::Metrics;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use bps_wakeup::protocol::Answer;
use futures::FutureExt as _;
use kube::Client;

/// Starts it; it ends with what is returned.
pub(crate) async fn operate(client: Client, namespace: &str) -> (Tasks, Shutdown) {
    let (mut tasks, shutdown) = (Tasks::new(), Shutdown::new());
    // Pods that run nowhere have no gate that listens: they wake when their label changes.
    let send_ticket = Arc::new(|_, _| async { Ok(Answer::Accepted) }.boxed());
    let surroundings = Surroundings { client, clock: Clock::system(), send_ticket };
    let settings = Settings {
        namespace: namespace.into(),
        pod: "operator".into(),
        watched_namespaces: vec![namespace.into()],
        wakeup_image: "none".into(),
        agent_image: None,
        storm_threshold: StormThreshold::default(),
        health_bind: None,
        metrics_bind: None,
    };
    start(&mut tasks, &shutdown, (surroundings, settings, Metrics::new("test"))).await.expect("an operator");
    (tasks, shutdown)
}
