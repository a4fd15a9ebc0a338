//! Keeps connections to the API server open, for who must write at once after a long silence.
//!
//! Over HTTP/1.1 every request that is on its way at the same time has a connection of its own. The API server closes
//! one that is silent for 90 s (`IdleTimeout` of its listener), and a new one costs a TLS handshake: most of the time
//! of a request.

use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::debug;

use crate::shutdown::Shutdown;
use crate::tasks::TaskError;

/// Time between two uses of the connections. 45 s: half of the API server's limit, and less than the 60 s after which
/// some load balancers forget a silent connection.
const PERIOD: Duration = Duration::from_secs(45);

/// How long after the beginning they are used first. 5 s: where many Pods start at once, the processor time of these
/// handshakes, an agent's and the API server's, delays those that come after; who needs a connection earlier makes it.
const FIRST_AFTER: Duration = Duration::from_secs(5);

/// Keeps so many connections open until the process stops, by asking for the server's version on all at once.
///
/// Everybody who is authenticated may ask for that, and it is answered without a look into the store.
///
/// # Errors
/// None: who needs a connection that is not there makes one.
pub async fn keep_open(client: Client, count: usize, shutdown: Shutdown) -> Result<(), TaskError> {
    let mut ticks = interval_at(Instant::now() + FIRST_AFTER, PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let used = async {
            ticks.tick().await;
            use_all(&client, count).await;
        };
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            () = used => {}
        }
    }
}

/// Asks on so many connections at the same time.
pub(super) async fn use_all(client: &Client, count: usize) {
    let answers = join_all((0..count).map(|_| client.apiserver_version())).await;
    // A refusal keeps a connection open as well, and who cannot reach the server at all says so elsewhere.
    for error in answers.into_iter().filter_map(Result::err) {
        debug!(error = &error as &dyn std::error::Error, "Could not use a connection to keep it open");
    }
}
