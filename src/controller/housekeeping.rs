//! What has to be done every now and then: keys, objects that nobody confirmed, and the process's pulse.

use std::time::Duration;

use bps_core::manifests::GateSettings;
use bps_observe::KnownKeys;
use bps_runtime::health::{Health, TICK_PERIOD};
use bps_runtime::lease::Leadership;
use bps_runtime::metrics::sets::{SetMetrics, Tier};
use bps_runtime::shutdown::Shutdown;
use kube::{Api, Client};
use tracing::warn;

use super::watch::Sink;
use crate::apply::{Applier, GateKit};
use crate::tickets::keys::KeyRing;
use crate::tickets::secret::{DEFAULT_ROTATION_PERIOD, KeyStore};

/// How often keys, and objects that only our own writes have shown, are looked at.
const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(10);

/// How often it is checked whether the caches are complete, while they are not.
pub(super) const SYNC_POLL_PERIOD: Duration = Duration::from_millis(5);

/// The keys of the cold gates and what is made with them.
pub(super) struct GateKeys {
    pub(super) store: KeyStore,
    image: String,
}

impl GateKeys {
    pub(super) fn new(client: &Client, namespace: &str, image: String) -> Self {
        let api = Api::namespaced(client.clone(), namespace);
        Self { store: KeyStore { api, rotation_period: DEFAULT_ROTATION_PERIOD }, image }
    }

    pub(super) fn kit(&self, ring: &KeyRing) -> GateKit {
        let public_keys = ring.public_keys().map(|key| (key.id().to_string(), hexadecimal(&key.to_string())));
        let settings = GateSettings { image: self.image.clone(), public_keys: public_keys.into() };
        GateKit { ring: ring.clone(), settings }
    }
}

/// The key's part of `<id>:<hex public key>`.
fn hexadecimal(entry: &str) -> String {
    entry.rsplit(':').next().unwrap_or_default().to_owned()
}

/// Rotates keys and has everything listed again when a watch does not confirm what we wrote.
pub(super) struct Housekeeper {
    pub(super) keys: GateKeys,
    /// The present keys, for whoever derives others from them.
    pub(super) ring: tokio::sync::watch::Sender<KeyRing>,
    pub(super) applier: Applier,
    pub(super) sink: Sink,
    pub(super) metrics: SetMetrics,
}

impl Housekeeper {
    fn measure(&self) {
        let (has_storm, pods, at_risk) = {
            let cache = self.sink.cache();
            (cache.storm(self.sink.clock.now()).is_some(), cache.count_pods(), cache.count_at_risk())
        };
        self.metrics.set_storm_brake(has_storm);
        for ((role, is_ready), count) in pods {
            let state = if is_ready { "ready" } else { "not-ready" };
            self.metrics.set_pods(&Tier { role: role.as_str(), state }, count);
        }
        for (loss, count) in at_risk {
            self.metrics.set_at_risk(loss, count);
        }
    }

    pub(super) async fn run(self, leadership: Leadership, shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(HOUSEKEEPING_PERIOD);
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return,
                _ = ticks.tick() => {}
            }
            let now = self.sink.clock.now();
            if self.sink.cache().has_overdue(now) {
                self.metrics.asked_for_relist();
                self.sink.relist.ask();
            }
            self.measure();
            let known = self.ring.borrow().clone();
            // Only the leader rotates; the others read what it wrote, so that they can sign when they lead.
            let ring = if leadership.is_leader() {
                self.keys.store.rotate_if_due(&known, now).await
            } else {
                self.keys.store.load_or_restore(&known).await
            };
            match ring {
                Ok(ring) => {
                    self.sink.change(|cache| cache.know_keys(known_keys(&ring)));
                    self.applier.replace_gate_kit(self.keys.kit(&ring));
                    // Who derives others from them does so for each group anew.
                    self.ring.send_if_modified(|known| {
                        let is_other = known.fingerprint() != ring.fingerprint();
                        *known = ring;
                        is_other
                    });
                }
                Err(error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "Could not read the keys of the cold gates"
                    );
                }
            }
        }
    }
}

pub(super) fn known_keys(ring: &KeyRing) -> KnownKeys {
    let all = [&ring.current, &ring.next].into_iter().chain(&ring.previous);
    KnownKeys(all.map(|key| key.id().to_string()).collect())
}

/// Says whether the process lives and knows the cluster, until shutdown.
///
/// Goes through the cache's lock: a process in which that is stuck stops ticking and is restarted.
pub(super) async fn beat(sink: Sink, health: Health, shutdown: Shutdown) {
    loop {
        let is_synced = sink.cache().is_synced();
        health.set_ready(is_synced);
        health.tick();
        let pause = if is_synced { TICK_PERIOD } else { SYNC_POLL_PERIOD };
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
