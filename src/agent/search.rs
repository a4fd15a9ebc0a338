//! Looks for the Lease that the agent belongs to: one that it was told by name, or the one of a group that names it.
//!
//! Never writes anything, and knows nothing of the protocol.

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{WatchEvent, WatchParams};
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
/// most this, and to be told of one group's Leases once a minute is nothing.
const WATCH_MAX: Duration = Duration::from_secs(60);
/// Version that a watch begins at: whatever the API server has at hand, told first, and then what changes. One request
/// instead of a list and a watch, which counts where many Pods start at once. It may be old: whoever writes the Lease
/// compares its version, and reads it anew if that is another one.
const AT_HAND: &str = "0";

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
            match timeout(WATCH_MAX, self.watch(&mut outages)).await {
                Ok(Ok(Some(found))) => {
                    info!(lease = found.name, "Found the Lease");
                    return found;
                }
                Ok(Err(error)) => {
                    outages.begin("Could not look for the Lease", &error);
                    sleep(RETRY_PAUSE).await;
                }
                // The API server ended it early: it must not be asked in a loop.
                Ok(Ok(None)) => sleep(RETRY_PAUSE).await,
                Err(_) => {}
            }
        }
    }

    /// Looks until it has found the Lease; `None` if the watch ended before.
    async fn watch(&self, outages: &mut Outages) -> Result<Option<Found>, kube::Error> {
        let mut events = pin!(self.api.watch(&self.selection(), AT_HAND).await?);
        outages.end("Saw the Leases again");
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                    if let Some(found) = self.look(&lease) {
                        return Ok(Some(found));
                    }
                }
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
        Ok(None)
    }

    fn selection(&self) -> WatchParams {
        let parameters = WatchParams::default().disable_bookmarks();
        match &self.membership {
            Membership::Lease(name) => parameters.fields(&format!("metadata.name={name}")),
            Membership::Group(group) => parameters.labels(&format!("{}={group}", keys::LABEL_GROUP)),
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
