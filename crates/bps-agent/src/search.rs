//! Looks for the Lease that the agent belongs to: one that it was told by name, or the one of a group that names it.
//!
//! Who finds none in a group whose pairs are all whole is a spare: it waits for somebody to fail, and is as ready as it can
//! be. A Deployment goes on with a rollout only when the Pod that it has added is ready, which belongs to no pair before
//! another Pod goes. While a place is free, or soon will be, the agent is not ready: a rollout would go on to the Pod that
//! acts alone. Who acts says by the mode that it lives in whether its standby answers, within the time of a promise.
//!
//! Never writes anything, and knows nothing of the protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use bps_api::keys;
use bps_protocol::Hold;
use bps_wire::lease::Record;
use bps_wire::level::Level;
use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::identity::Identity;
use super::outages::Outages;
use super::seats::choice::LeaseLevel;

/// Pause after a watch that failed. 1 s: a group whose API server comes back does not meet it all at once.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long one watch is trusted. 60 s: a connection that died without a word delays an agent without a Lease by at
/// most this, and to be told of one group's Leases once a minute is nothing.
const WATCH_MAX: Duration = Duration::from_secs(60);
/// How long an agent that no Lease names waits for one before it is a spare. 1 s: the operator gives a new Pod its place
/// within some 100 ms, and one that gets a place should be ready because of that.
const SPARE_AFTER: Duration = Duration::from_secs(1);
/// How long a watch is silent before its Leases are taken for all that there are. 50 ms: what is at hand comes at once.
const TOLD_WITHIN: Duration = Duration::from_millis(50);
/// How long a watch is silent before its Leases are taken for all that may need a copy which is to be replaced. 250 ms:
/// such a copy may be the last one, and a seat that gets another Lease has time.
const ALL_TOLD_WITHIN: Duration = Duration::from_millis(250);
/// How long the Lease that was found may take to be told again. 5 s: an API server that is so slow answers the next
/// time.
const OWN_TOLD_WITHIN: Duration = Duration::from_secs(5);
/// Version that a watch begins at: whatever the API server has at hand, told first, and then what changes. One request
/// instead of a list and a watch, which counts where many Pods start at once. It may be old: whoever writes the Lease
/// compares its version, and reads it anew if that is another one. Who may have written it before asks for what it is now,
/// see [`Search::present`].
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
#[derive(Clone)]
pub struct Search {
    api: Api<Lease>,
    membership: Membership,
    own: Identity,
    /// Uids of the Leases that other seats of this agent have.
    taken: BTreeSet<u128>,
}

/// Whether the agent is a spare.
struct Spare<Tell> {
    /// Since when it looks for a Lease.
    since: Instant,
    /// `None`: that is not known yet.
    is_it: Option<bool>,
    /// Is told when that changes.
    tell: Tell,
}

impl Search {
    /// For an agent, in its own namespace.
    pub fn new(client: Client, membership: Membership, own: Identity) -> Self {
        Self { api: Api::namespaced(client, &own.namespace), membership, own, taken: BTreeSet::new() }
    }

    /// Finds none of these Leases, which other seats of this agent have.
    #[must_use]
    pub fn except(self, taken: BTreeSet<u128>) -> Self {
        Self { taken, ..self }
    }

    /// Waits until there is such a Lease; of several the first one seen. Tells meanwhile whether this agent is a spare,
    /// as soon as that is known and when it changes. May be dropped and called again.
    pub async fn find(&self, tell: impl Fn(bool)) -> Found {
        let mut outages = Outages::default();
        let mut spare = Spare { since: Instant::now(), is_it: None, tell };
        loop {
            match timeout(WATCH_MAX, self.watch(&mut outages, &mut spare)).await {
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

    /// What a Lease that was found says now, by an answer that is not behind any write; `None`, after a pause, if it is not
    /// the own one any more. An agent that acted by this Lease before needs it: in an older version there is room for a write
    /// that would be taken for the one by which it acted.
    pub async fn present(&self, Found { name, record: before }: &Found) -> Option<Found> {
        let mut outages = Outages::default();
        loop {
            let is_same = |record: &Record| record.group == before.group && self.is_it(record);
            let answer = timeout(WATCH_MAX, self.api.get_opt(name)).await;
            if let Ok(Ok(lease)) = &answer
                && let Some(record) = lease.as_ref().and_then(Self::read).filter(is_same)
            {
                return Some(Found { name: name.clone(), record });
            }
            // Or what is at hand catches up.
            sleep(RETRY_PAUSE).await;
            match answer {
                Ok(Ok(_)) => return None,
                Ok(Err(error)) => outages.begin("Could not read the Lease again", &error),
                Err(_) => {}
            }
        }
    }

    /// What all Leases but this one, which is among those searched, say of state directories.
    ///
    /// # Errors
    /// What the API server answered; or it told of this one not in time, so that others may be missing as well.
    pub async fn others(&self, lease: u128) -> Result<Vec<LeaseLevel>, kube::Error> {
        let mut events = pin!(self.api.watch(&self.selection(), AT_HAND).await?);
        // By name: a Lease may change or go meanwhile.
        let mut told = BTreeMap::new();
        let is_told = |told: &BTreeMap<String, LeaseLevel>| told.values().any(|other| other.lease == lease);
        loop {
            let within = if is_told(&told) { ALL_TOLD_WITHIN } else { OWN_TOLD_WITHIN };
            let Ok(event) = timeout(within, events.try_next()).await else { break };
            match event? {
                Some(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                    let read = Self::read(&lease).map(|Record { group, level, .. }| (group, level));
                    if let Some((group, level)) = read {
                        told.insert(lease.name_any(), LeaseLevel { lease: group, level });
                    }
                }
                Some(WatchEvent::Deleted(lease)) => drop(told.remove(&lease.name_any())),
                Some(WatchEvent::Bookmark(_)) => {}
                Some(WatchEvent::Error(status)) => return Err(kube::Error::Api(status)),
                None => break,
            }
        }
        if !is_told(&told) {
            return Err(kube::Error::Service("the API server did not tell of all Leases in time".into()));
        }
        Ok(told.into_values().filter(|other| other.lease != lease).collect())
    }

    /// Looks until it has found the Lease; `None` if the watch ended before.
    async fn watch(
        &self,
        outages: &mut Outages,
        spare: &mut Spare<impl Fn(bool)>,
    ) -> Result<Option<Found>, kube::Error> {
        let mut events = pin!(self.api.watch(&self.selection(), AT_HAND).await?);
        outages.end("Saw the Leases again");
        // Of each Lease, whether it has no place for this agent.
        let mut pairs = BTreeMap::new();
        loop {
            let told = (spare.since + SPARE_AFTER).max(Instant::now() + TOLD_WITHIN);
            let event = if let Ok(event) = timeout_at(told, events.try_next()).await {
                event?
            } else {
                spare.see(!pairs.is_empty() && pairs.values().all(|is_whole| *is_whole));
                events.try_next().await?
            };
            match event {
                Some(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                    let name = lease.name_any();
                    let is_whole = match Self::read(&lease) {
                        Some(record) if self.is_it(&record) => return Ok(Some(Found { name, record })),
                        Some(record) => {
                            let is_awaited = !self.is_taken(&record) && is_successor(&self.own, &record);
                            is_whole(&record) && !is_awaited
                        }
                        None => false,
                    };
                    pairs.insert(name, is_whole);
                }
                Some(WatchEvent::Deleted(lease)) => drop(pairs.remove(&lease.name_any())),
                Some(WatchEvent::Bookmark(_)) => {}
                Some(WatchEvent::Error(status)) => return Err(kube::Error::Api(status)),
                None => return Ok(None),
            }
        }
    }

    fn selection(&self) -> WatchParams {
        let parameters = WatchParams::default().disable_bookmarks();
        match &self.membership {
            Membership::Lease(name) => parameters.fields(&format!("metadata.name={name}")),
            Membership::Group(group) => parameters.labels(&format!("{}={group}", keys::LABEL_GROUP)),
        }
    }

    fn read(lease: &Lease) -> Option<Record> {
        let name = lease.name_any();
        Record::read(lease)
            .inspect_err(|error| {
                warn!(lease = name, error = error as &dyn std::error::Error, "Could not understand a Lease");
            })
            .ok()
    }

    fn is_it(&self, record: &Record) -> bool {
        match self.membership {
            Membership::Lease(_) => true,
            Membership::Group(_) => record.lease.names(self.own.id) && !self.is_taken(record),
        }
    }

    fn is_taken(&self, record: &Record) -> bool {
        self.taken.contains(&record.group)
    }
}

impl<Tell: Fn(bool)> Spare<Tell> {
    fn see(&mut self, is_spare: bool) {
        let before = self.is_it.replace(is_spare);
        if before == Some(is_spare) {
            return;
        }
        if is_spare {
            info!("Is a spare: every pair of the group is whole");
        } else if before.is_some() {
            info!("Is no spare any more: a pair of the group is not whole");
        }
        (self.tell)(is_spare);
    }
}

/// Whether a pair has an active and a standby that answers and lacks nothing.
fn is_whole(record: &Record) -> bool {
    let is_level = match &record.level {
        Level::Unsaid => true,
        Level::Only(directories) => directories.len() >= record.lease.members.len(),
        Level::Unreadable => false,
    };
    record.lease.hold == Hold::Peer && record.lease.pending.is_none() && is_level
}

/// Whether this agent's Pod is the successor of either: one of a StatefulSet has the name of the Pod that it replaces.
fn is_successor(own: &Identity, record: &Record) -> bool {
    record.directory.values().any(|member| member.pod == own.pod)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::sync::Mutex;

    use bps_protocol::AgentId;
    use bps_wire::uid::format_uid;
    use futures::stream::{self, StreamExt as _};
    use http::{Request, Response};
    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    const OWN: u128 = 1;

    /// In which these two Pods are, and that was written so often.
    fn lease(uid: u128, members: [u128; 2], writes: u64) -> Value {
        let member = |number: u128| json!({"uid": format_uid(number), "pod": "web", "address": format!("10.0.0.{number}:20001")});
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "web-0", "uid": format_uid(uid), "resourceVersion": "5", "annotations": {
                (keys::ANNOTATION_HA_PAIR): "0", (keys::ANNOTATION_HA_SEQUENCE): "0",
                (keys::ANNOTATION_HA_HOLD): "Api", (keys::ANNOTATION_HA_WRITES): writes.to_string(),
                (keys::ANNOTATION_HA_MEMBERS): json!(members.map(member)).to_string(),
            }},
            "spec": {"leaseTransitions": 1},
        })
    }

    /// How often the Lease was written by what is found of it, if the API server answers this after it was found.
    async fn writes_at_present(answers: impl IntoIterator<Item = (u16, Value)>) -> Option<u64> {
        let answers: Mutex<VecDeque<_>> = Mutex::new(answers.into_iter().collect());
        let server = service_fn(move |request: Request<Body>| {
            assert_eq!((request.method().as_str(), request.uri().query().unwrap_or_default()), ("GET", ""));
            let (status, body) = answers.lock().unwrap().pop_front().expect("one answer for each request");
            let body = Body::from(body.to_string().into_bytes());
            async move { Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap()) }
        });
        let ip = "10.0.0.1".parse().unwrap();
        let own = Identity { id: AgentId(OWN), pod: "web".to_owned(), namespace: "shop".to_owned(), ip };
        let search = Search::new(Client::new(server, "shop"), Membership::Group("web".to_owned()), own);
        let at_hand = serde_json::from_value(lease(50, [OWN, 2], 7)).unwrap();
        let found = Found { name: "web-0".to_owned(), record: Record::read(&at_hand).unwrap() };
        let present = timeout(Duration::from_secs(600), search.present(&found)).await;
        present.expect("an answer that it accepts").map(|found| found.record.lease.writes)
    }

    #[tokio::test(start_paused = true)]
    async fn who_acted_before_goes_by_what_the_lease_is_and_not_by_what_is_at_hand() {
        let failure = |code: u16, reason: &str| {
            (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}))
        };
        let lease = |uid, members, writes| (200, lease(uid, members, writes));
        assert_eq!(writes_at_present([lease(50, [OWN, 2], 8)]).await, Some(8));
        assert_eq!(writes_at_present([failure(500, "InternalError"), lease(50, [OWN, 2], 9)]).await, Some(9));
        for other in [failure(404, "NotFound"), lease(50, [2, 3], 8), lease(51, [OWN, 2], 1)] {
            assert_eq!(writes_at_present([other]).await, None);
        }
    }

    /// What is told of a spare within a minute, by a watch that shows this Lease; and whether the Lease is found.
    async fn told(members: [u128; 2], taken: &[u128]) -> (Vec<bool>, bool) {
        let mut shown = lease(50, members, 7);
        shown["metadata"]["annotations"][keys::ANNOTATION_HA_HOLD] = json!("Peer");
        let server = service_fn(move |_: Request<Body>| {
            let event = json!({"type": "ADDED", "object": shown}).to_string() + "\n";
            let event = stream::once(async { Ok::<_, Infallible>(Frame::data(Bytes::from(event))) });
            // Nothing changes any more.
            let body = StreamBody::new(event.chain(stream::pending()));
            async move { Ok::<_, Infallible>(Response::builder().status(200).body(body).unwrap()) }
        });
        let ip = "10.0.0.1".parse().unwrap();
        let own = Identity { id: AgentId(OWN), pod: "web".to_owned(), namespace: "shop".to_owned(), ip };
        let search = Search::new(Client::new(server, "shop"), Membership::Group("web".to_owned()), own);
        let told = Mutex::new(Vec::new());
        let search = search.except(taken.iter().copied().collect());
        let found =
            timeout(Duration::from_secs(50), search.find(|is_spare| told.lock().unwrap().push(is_spare)));
        let is_found = found.await.is_ok();
        (told.into_inner().unwrap(), is_found)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_another_seat_has_is_passed_over_and_waits_for_no_other_pod_of_its_name() {
        assert_eq!(told([OWN, 2], &[]).await, (vec![], true));
        assert_eq!(told([OWN, 2], &[50]).await, (vec![true], false));
        assert_eq!(
            told([3, 2], &[]).await,
            (vec![false], false),
            "it is of the Pod before it of the same name"
        );
        assert_eq!(told([3, 2], &[50]).await, (vec![true], false));
    }
}
