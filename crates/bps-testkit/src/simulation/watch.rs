//! WATCH: a stream of JSON lines from a revision on, filtered as the real server filters, and its faults.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use crate::simulation::api::Hub;
use futures::{Stream, stream};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::simulation::fault::Choice;
use crate::simulation::fault::Fault;
use crate::simulation::list::shape;
use crate::simulation::list::too_old;
use crate::simulation::refusal::Refusal;
use crate::simulation::request::Request;
use crate::simulation::selector::Selector;
use crate::simulation::world::Event;
use crate::simulation::world::World;

/// An idle watch tells the client how far it is this often; the real server does so about once a minute.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A lagging watch catches up after this time at the latest.
const LAG_MAX: Duration = Duration::from_secs(30);
/// Length of a watch that names no `timeoutSeconds`; the real server picks 30 to 60 minutes.
const DEFAULT_TIMEOUT_SECONDS: u64 = 1_800;

/// One open watch.
pub struct Watch {
    hub: Hub,
    incarnation: u32,
    request: Request,
    selector: Selector,
    /// Revision up to which events were looked at.
    cursor: u64,
    ready: VecDeque<Bytes>,
    ends_at: Instant,
    /// Deliveries wait until this revision is reached or this time has come.
    held: Option<(u64, Instant)>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Ends when `ready` is drained.
    Closing,
    Stalled,
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

impl Watch {
    /// Opens a watch; what it must deliver first is already in it.
    ///
    /// # Errors
    /// 400 and 422 for bad parameters. A revision that is too old is no error here but the stream's first
    /// line, as on the real server.
    pub fn open(hub: &Hub, world: &World, request: Request, incarnation: u32) -> Result<Self, Refusal> {
        let kind = request.key.kind;
        let selector =
            Selector::parse(kind, request.parameter("labelSelector"), request.parameter("fieldSelector"))?;
        let is_streaming = request.parameter("sendInitialEvents") == "true";
        let bookmarks = request.parameter("allowWatchBookmarks") == "true";
        if is_streaming && (!bookmarks || request.parameter("resourceVersionMatch") != "NotOlderThan") {
            let why = "Forbidden: sendInitialEvents requires resourceVersionMatch=NotOlderThan and bookmarks";
            return Err(Refusal::invalid(&request.key, "sendInitialEvents", why));
        }
        let from: u64 = match request.parameter("resourceVersion") {
            "" => 0,
            text => text.parse().map_err(|_| Refusal::bad_request("resourceVersion: not a number"))?,
        };
        let seconds = request.parameter("timeoutSeconds").parse().unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        let mut watch = Self {
            hub: hub.clone(),
            incarnation,
            request,
            selector,
            cursor: from,
            ready: VecDeque::new(),
            ends_at: Instant::now() + Duration::from_secs(seconds),
            held: None,
            state: State::Open,
        };
        if from == 0 || is_streaming {
            watch.list_first(world, is_streaming);
        } else if from < world.compacted() {
            watch.fail(&too_old(from, world));
        }
        Ok(watch)
    }

    /// The lines, as the body of a response.
    pub fn into_stream(self) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
        stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            Some((Ok(Frame::data(line)), watch))
        })
    }

    fn list_first(&mut self, world: &World, is_streaming: bool) {
        for (_, object) in world.objects(self.request.key.kind, &self.request.key.namespace) {
            if self.selector.matches(object) {
                self.ready.push_back(line("ADDED", &shape(object, self.request.metadata_only)));
            }
        }
        self.cursor = world.revision();
        if is_streaming {
            self.ready.push_back(self.bookmark(&json!({"k8s.io/initial-events-end": "true"})));
        }
    }

    fn fail(&mut self, refusal: &Refusal) {
        self.ready.push_back(line("ERROR", &refusal.to_status()));
        self.state = State::Closing;
    }

    fn bookmark(&self, annotations: &Value) -> Bytes {
        let kind = self.request.key.kind;
        let (kind, version) = if self.request.metadata_only {
            ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned())
        } else {
            (kind.kind.to_owned(), kind.api_version())
        };
        let metadata = json!({"resourceVersion": self.cursor.to_string(), "annotations": annotations});
        line("BOOKMARK", &json!({"kind": kind, "apiVersion": version, "metadata": metadata}))
    }

    async fn next(&mut self) -> Option<Bytes> {
        let hub = self.hub.clone();
        let bookmarks = self.request.parameter("allowWatchBookmarks") == "true";
        let bookmark_at = Instant::now() + BOOKMARK_EVERY;
        loop {
            // Made before the look at the log, so that a commit after the look wakes it.
            let changed = hub.changed.notified();
            if !hub.is_alive(self.incarnation) || self.state == State::Stalled {
                return std::future::pending().await;
            }
            if self.held.is_none() {
                self.collect();
            }
            self.release();
            if self.held.is_none() {
                if let Some(line) = self.ready.pop_front() {
                    return Some(line);
                }
                if self.state != State::Open || Instant::now() >= self.ends_at {
                    return None;
                }
            }
            let held_until = self.held.map_or(self.ends_at, |(_, until)| until);
            // Biased: news before time, so that a run does not depend on which branch is polled first.
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(held_until) => {}
                () = tokio::time::sleep_until(bookmark_at), if bookmarks && self.held.is_none() => {
                    return Some(self.bookmark(&json!({})));
                }
            }
        }
    }

    fn release(&mut self) {
        let Some((revision, until)) = self.held else { return };
        if Instant::now() >= until || self.hub.with(|state| state.world.revision() >= revision) {
            self.held = None;
        }
    }

    /// Looks at the events since the cursor until one is found that concerns this watch.
    fn collect(&mut self) {
        let hub = self.hub.clone();
        hub.with(|state| {
            while self.ready.is_empty() && self.state == State::Open {
                let Some(event) = state.world.events_after(self.cursor).first().cloned() else { return };
                let before = self.cursor;
                self.cursor = event.revision;
                let Some(line) = self.concern(&event) else { continue };
                state.events += 1;
                let choice = Choice::Event(state.events);
                let fault = state.strike(choice);
                match fault {
                    Some(Fault::Drop) => {}
                    Some(Fault::Duplicate) => self.ready.extend([line.clone(), line]),
                    Some(Fault::Gap) => {
                        state.world.compact();
                        self.fail(&too_old(before, &state.world));
                    }
                    Some(Fault::Close) => self.state = State::Closing,
                    Some(Fault::Stall) => self.state = State::Stalled,
                    Some(Fault::Lag(events)) => {
                        self.held = Some((event.revision + u64::from(events), Instant::now() + LAG_MAX));
                        self.ready.push_back(line);
                    }
                    Some(_) | None => self.ready.push_back(line),
                }
            }
        });
    }

    /// The line for an event, if the watch is to hear of it.
    ///
    /// An object that stops matching is DELETED with its former content and the event's revision.
    fn concern(&self, event: &Event) -> Option<Bytes> {
        let wanted = &self.request.key;
        let is_near = wanted.namespace.is_empty() || event.key.namespace == wanted.namespace;
        if event.key.kind != wanted.kind || !is_near {
            return None;
        }
        let matching = |object: &&crate::simulation::world::Object| self.selector.matches(object);
        let shaped = |object: &Value| shape(object, self.request.metadata_only);
        match (event.old.as_ref().filter(matching), event.new.as_ref().filter(matching)) {
            (None, None) => None,
            (None, Some(new)) => Some(line("ADDED", &shaped(new))),
            (Some(_), Some(new)) => Some(line("MODIFIED", &shaped(new))),
            (Some(old), None) => {
                let mut last = shaped(old);
                last["metadata"]["resourceVersion"] = json!(event.revision.to_string());
                Some(line("DELETED", &last))
            }
        }
    }
}
