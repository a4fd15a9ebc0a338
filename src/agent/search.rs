//! Looks for the Lease that the agent belongs to: one that it was told by name, or the one of a group that names it.
//!
//! Never writes anything, and knows nothing of the protocol.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::identity::Identity;
use super::lease::Record;
use super::outages::Outages;
use crate::api::keys;

/// Pause after a watch that failed. 1 s: a group whose API server comes back does not meet it all at once.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long one watch is trusted. 60 s: a connection that died without a word delays an agent without a Lease by at
/// most this, and a list of one group's Leases a minute is nothing.
const WATCH_MAX: Duration = Duration::from_secs(60);

/// Which Lease an agent belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The one of this name, for ever.
    Lease(String),
    /// Whichever Lease of this group names the own Pod, one at a time.
    Group(String),
}

/// Where an agent belongs for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Name of the Lease.
    pub name: String,
    /// What it said.
    pub record: Record,
}

/// The search.
pub struct Search {
    api: Api<Lease>,
    membership: Membership,
    own: Identity,
}

impl Search {
    /// For an agent, in its own namespace.
    pub fn new(client: Client, membership: Membership, own: Identity) -> Self {
        Self { api: Api::namespaced(client, &own.namespace), membership, own }
    }

    /// Waits until there is such a Lease; of several the first one seen. May be dropped and called again.
    pub async fn find(&self) -> Found {
        let mut outages = Outages::default();
        loop {
            if let Ok(found) = timeout(WATCH_MAX, self.watch(&mut outages)).await {
                info!(lease = found.name, "Found the Lease");
                return found;
            }
        }
    }

    async fn watch(&self, outages: &mut Outages) -> Found {
        let mut events = watcher(self.api.clone(), self.selection()).boxed();
        loop {
            match events.next().await {
                Some(Ok(Event::Apply(lease) | Event::InitApply(lease))) => {
                    if let Some(found) = self.look(&lease) {
                        outages.end("Saw the Leases again");
                        return found;
                    }
                }
                Some(Ok(Event::InitDone)) => outages.end("Saw the Leases again"),
                Some(Ok(Event::Init | Event::Delete(_))) => {}
                Some(Err(error)) => {
                    outages.begin("Could not look for the Lease", &error);
                    sleep(RETRY_PAUSE).await;
                }
                // A watch does not end; one that did must not be asked in a loop.
                None => sleep(RETRY_PAUSE).await,
            }
        }
    }

    fn selection(&self) -> watcher::Config {
        match &self.membership {
            Membership::Lease(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
            Membership::Group(group) => {
                watcher::Config::default().labels(&format!("{}={group}", keys::LABEL_GROUP))
            }
        }
    }

    fn look(&self, lease: &Lease) -> Option<Found> {
        let name = lease.name_any();
        match Record::read(lease) {
            Ok(record) => {
                let is_it = match self.membership {
                    Membership::Lease(_) => true,
                    Membership::Group(_) => record.lease.names(self.own.id),
                };
                is_it.then_some(Found { name, record })
            }
            Err(error) => {
                warn!(lease = name, error = &error as &dyn std::error::Error, "Could not understand a Lease");
                None
            }
        }
    }
}
