//! Reads, writes and watches the Lease, each in a task of its own, so that nothing waits for the API server.
//!
//! Never decides anything: a write that was not applied is repeated by the protocol, or is not.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use bps_api::keys;
use bps_protocol::{Timing, Version, Write};
use bps_runtime::client::connecting_anew;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::{TaskError, Tasks};
use bps_wire::lease::{Directory, Error as LeaseError, Record, patch};
use futures::stream::FuturesUnordered;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use super::outages::Outages;
use super::search::Found;

/// Writes that wait to be sent, which takes microseconds: a copy, and the write that may follow it.
const WRITES_WAITING_MAX: usize = 2;
/// Copies of a write that are on their way at the same time. 16: more than the protocol asks for within [`COPY_MAX`], which is one
/// for each third of a hold of 0.45 s or more, so that none has to wait for another one.
const COPIES_MAX: usize = 16;
/// How long each of them waits for its answer. 2 s: longer than a hold, so that a slow API server is not asked in vain.
const COPY_MAX: Duration = Duration::from_secs(2);
/// Changes of annotations that wait for the one on its way; who asks for one asks again.
const NOTES_WAITING_MAX: usize = 1;
/// Reads that wait for the one on its way. One: it begins after whatever asked for it.
const READS_WAITING_MAX: usize = 1;
/// Reports that wait for the agent's loop, which takes each within microseconds.
const REPORTS_WAITING_MAX: usize = 16;
/// Pause after a read that failed, and between reads while the watch is down. 1 s: without it an agent
/// would read ten times a second as long as there is no Lease.
const READ_PAUSE: Duration = Duration::from_secs(1);
/// How long a read may take. 2 s: as long as the API server may be slow for a write, four times
/// over.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the API server keeps one watch open. 290 s: less than the 5 minutes for which it remembers old versions. Unit:
/// seconds.
const WATCH_SECONDS: u32 = 290;
/// How long a watch may last. 5 s more: it should end by itself.
const WATCH_MAX: Duration = Duration::from_secs(295);
/// HTTP status: the object has another version than a write asks for.
const CONFLICT: u16 = 409;
/// HTTP status: there is no such object.
const NOT_FOUND: u16 = 404;

/// What became of a request, or what the watch saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The Lease as it is.
    Read(Box<Record>),
    /// The API server applied the write of this number.
    Applied {
        /// Number of the write.
        number: u64,
        /// The Lease as it is since then.
        record: Box<Record>,
    },
    /// The Lease had another version than the base of a write.
    Conflicted,
    /// There is no Lease of this name; it was deleted.
    Gone,
}

/// Annotations by their keys; without a value one is removed.
pub type Annotations = BTreeMap<&'static str, Option<String>>;

/// A change of annotations beside the protocol's own writes, refused unless the Lease has this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The version that the decision was based on.
    pub base: Version,
    /// What to change.
    pub annotations: Annotations,
}

/// The other end of the tasks.
#[derive(Debug)]
pub struct Store {
    notes: Sender<Note>,
    writes: Sender<Wanted>,
    reads: Sender<()>,
    /// What they report.
    pub reports: Receiver<Report>,
}

/// A write, how to reach those that it names, and what else it says.
#[derive(Debug)]
struct Wanted {
    write: Write,
    directory: Directory,
    annotations: Annotations,
}

/// What the tasks share.
#[derive(Clone)]
struct Access {
    api: Api<Lease>,
    /// The same, with a connection for each request.
    anew: Api<Lease>,
    name: String,
    timing: Timing,
    reports: Sender<Report>,
    shutdown: Shutdown,
}

impl Store {
    /// Starts the tasks for one Lease; what was found of it is the first report, so that the loop need not ask for it.
    pub fn start(tasks: &mut Tasks, shutdown: &Shutdown, of: (Client, &str, Found), timing: Timing) -> Self {
        let (client, namespace, Found { name, record }) = of;
        let (writes, writes_wanted) = mpsc::channel(WRITES_WAITING_MAX);
        let (reads, reads_wanted) = mpsc::channel(READS_WAITING_MAX);
        let (notes, notes_wanted) = mpsc::channel(NOTES_WAITING_MAX);
        let (reporter, reports) = mpsc::channel(REPORTS_WAITING_MAX);
        let found = record.version;
        reporter.try_send(Report::Read(Box::new(record))).expect("nothing waits in a new channel");
        let access = Access {
            anew: Api::namespaced(connecting_anew(&client), namespace),
            api: Api::namespaced(client, namespace),
            name,
            timing,
            reports: reporter,
            shutdown: shutdown.clone(),
        };
        tasks.spawn(
            "lease writes",
            access.clone().until_stopped(Access::write_all, writes_wanted).in_current_span(),
        );
        tasks.spawn(
            "lease reads",
            access.clone().until_stopped(Access::read_all, reads_wanted).in_current_span(),
        );
        tasks.spawn(
            "lease notes",
            access.clone().until_stopped(Access::note_all, notes_wanted).in_current_span(),
        );
        tasks.spawn("lease watch", access.until_stopped(Access::watch, found).in_current_span());
        Self { notes, writes, reads, reports }
    }

    /// Where annotations are to be written. What was written is reported as read; what was not is as good as lost.
    pub fn notes(&self) -> Sender<Note> {
        self.notes.clone()
    }

    /// Has the Lease written, unless too many writes wait already: then this one counts as lost.
    pub fn write(&self, write: Write, directory: &Directory, annotations: Annotations) {
        drop(self.writes.try_send(Wanted { write, directory: directory.clone(), annotations }));
    }

    /// Has the Lease read, after this call.
    pub fn read(&self) {
        // One that waits already begins after this call, too.
        let _: Result<(), TrySendError<()>> = self.reads.try_send(());
    }
}

impl Access {
    /// Does one kind of work until the process stops.
    async fn until_stopped<Wanted>(
        self,
        work: impl AsyncFnOnce(&Self, Wanted),
        wanted: Wanted,
    ) -> Result<(), TaskError> {
        let shutdown = self.shutdown.clone();
        tokio::select! {
            // Nothing is worth finishing once the process stops.
            biased;
            () = shutdown.requested() => {}
            () = work(&self, wanted) => {}
        }
        Ok(())
    }

    /// A copy is sent beside those before it: a slow answer may still come, and where one of several API servers is gone, the
    /// way of the next copy leads to another one.
    async fn write_all(&self, mut wanted: Receiver<Wanted>) {
        let mut outages = Outages::default();
        let (mut newest, mut sent, mut is_applied) = (0, 0_usize, false);
        let mut copies = FuturesUnordered::new();
        loop {
            let answer = tokio::select! {
                biased;
                Some(answer) = copies.next() => answer,
                next = wanted.recv() => {
                    let Some(next) = next else { return };
                    // The Lease has moved on, and the copies of the write before it change nothing any more.
                    if newest != next.write.number {
                        copies.clear();
                        (newest, sent, is_applied) = (next.write.number, 0, false);
                    }
                    if !is_applied && copies.len() < COPIES_MAX {
                        let api = if sent % 2 == 0 { &self.api } else { &self.anew };
                        copies.push(self.write(api, next));
                        sent += 1;
                    }
                    continue;
                }
            };
            match answer {
                Ok(report) => {
                    outages.end("Wrote the Lease again");
                    is_applied = matches!(report, Report::Applied { .. });
                    if is_applied {
                        copies.clear();
                    }
                    self.report(report).await;
                }
                Err(error) => outages.begin("Could not write the Lease", &error),
            }
        }
    }

    async fn write(&self, api: &Api<Lease>, wanted: Wanted) -> Result<Report, Error> {
        let Wanted { write, directory, annotations } = wanted;
        let mut patch = patch(&write, &directory, &self.timing, Timestamp::now()).map_err(Error::Content)?;
        for (key, value) in annotations {
            patch["metadata"]["annotations"][key] = json!(value);
        }
        // One that brings nothing is repeated by the protocol.
        match self.patch(api, &patch, COPY_MAX).await? {
            Ok(lease) => {
                let record = Record::read(&lease).map_err(Error::Content)?;
                Ok(Report::Applied { number: write.number, record: Box::new(record) })
            }
            Err(report) => Ok(report),
        }
    }

    async fn note_all(&self, mut wanted: Receiver<Note>) {
        let mut outages = Outages::default();
        while let Some(note) = wanted.recv().await {
            match self.note(&note).await {
                Ok(report) => {
                    outages.end("Wrote annotations of the Lease again");
                    self.report(report).await;
                }
                Err(error) => outages.begin("Could not write annotations of the Lease", &error),
            }
        }
    }

    async fn note(&self, note: &Note) -> Result<Report, Error> {
        let version = note.base.0.to_string();
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": note.annotations}});
        match self.patch(&self.api, &patch, self.timing.request_timeout).await? {
            Ok(lease) => seen(&lease),
            Err(report) => Ok(report),
        }
    }

    /// The Lease as it is after a patch, or why the API server refused it.
    async fn patch(
        &self,
        api: &Api<Lease>,
        patch: &Value,
        within: Duration,
    ) -> Result<Result<Lease, Report>, Error> {
        let parameters =
            PatchParams { field_manager: Some(keys::FIELD_MANAGER_AGENT.into()), ..PatchParams::default() };
        let patch = Patch::Merge(patch);
        let request = api.patch(&self.name, &parameters, &patch);
        match timeout(within, request).await {
            Err(_) => Err(Error::Overdue),
            Ok(Ok(lease)) => Ok(Ok(lease)),
            Ok(Err(kube::Error::Api(status))) if status.code == CONFLICT => Ok(Err(Report::Conflicted)),
            Ok(Err(kube::Error::Api(status))) if status.code == NOT_FOUND => Ok(Err(Report::Gone)),
            Ok(Err(source)) => Err(Error::Request(source)),
        }
    }

    async fn read_all(&self, mut wanted: Receiver<()>) {
        let mut outages = Outages::default();
        while wanted.recv().await.is_some() {
            match self.read().await {
                Ok(report) => {
                    outages.end("Read the Lease again");
                    let is_gone = report == Report::Gone;
                    self.report(report).await;
                    if is_gone {
                        sleep(READ_PAUSE).await;
                    }
                }
                Err(error) => {
                    outages.begin("Could not read the Lease", &error);
                    sleep(READ_PAUSE).await;
                }
            }
        }
    }

    /// From the store: a GET without resource version is no answer of a cache.
    async fn read(&self) -> Result<Report, Error> {
        match timeout(READ_TIMEOUT, self.api.get_opt(&self.name)).await {
            Err(_) => Err(Error::Overdue),
            Ok(lease) => match lease.map_err(Error::Request)? {
                Some(lease) => seen(&lease),
                None => Ok(Report::Gone),
            },
        }
    }

    /// Watches exactly this Lease, from the version that was found: nothing is listed. While the watch is down, reads it
    /// from time to time.
    async fn watch(&self, found: Version) {
        let (mut outages, mut known) = (Outages::default(), found.0.to_string());
        loop {
            if let Err(error) = self.follow(&mut known, &mut outages).await {
                outages.begin("Lost the watch of the Lease", &error);
            }
            sleep(READ_PAUSE).await;
            match self.read().await {
                Ok(report) => {
                    if let Report::Read(record) = &report {
                        known = record.version.0.to_string();
                    }
                    outages.end("Saw the Lease again");
                    self.report(report).await;
                }
                Err(error) => outages.begin("Could not see the Lease", &error),
            }
        }
    }

    /// Watches again and again; returns when that must not go on at once.
    async fn follow(&self, known: &mut String, outages: &mut Outages) -> Result<(), Error> {
        loop {
            let began = Instant::now();
            // After that time the connection has died without a word.
            timeout(WATCH_MAX, self.watch_once(known, outages)).await.unwrap_or(Ok(()))?;
            // It ends when its time is over; one that ends at once must not be asked for in a loop.
            if began.elapsed() < READ_PAUSE {
                return Ok(());
            }
        }
    }

    /// Reports what changes after the version `known`, and keeps that.
    async fn watch_once(&self, known: &mut String, outages: &mut Outages) -> Result<(), Error> {
        let only_it = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        let events = self.api.watch(&only_it.timeout(WATCH_SECONDS), known).await;
        let mut events = pin!(events.map_err(Error::Request)?);
        while let Some(event) = events.try_next().await.map_err(Error::Request)? {
            let (version, report) = match event {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                    (lease.resource_version(), Some(seen(&lease)))
                }
                WatchEvent::Deleted(lease) => (lease.resource_version(), Some(Ok(Report::Gone))),
                WatchEvent::Bookmark(mark) => (Some(mark.metadata.resource_version), None),
                WatchEvent::Error(status) => return Err(Error::Request(kube::Error::Api(status))),
            };
            *known = version.unwrap_or_default();
            match report {
                Some(Ok(report)) => {
                    outages.end("Saw the Lease again");
                    self.report(report).await;
                }
                Some(Err(error)) => outages.begin("Could not see the Lease", &error),
                None => {}
            }
        }
        Ok(())
    }

    async fn report(&self, report: Report) {
        // Without a receiver the process is about to end.
        drop(self.reports.send(report).await);
    }
}

fn seen(lease: &Lease) -> Result<Report, Error> {
    Record::read(lease).map(|record| Report::Read(Box::new(record))).map_err(Error::Content)
}

/// Why a request brought nothing.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// No answer came in time.
    #[error("no answer in time")]
    Overdue,
    /// The API server refused it or was not reached.
    #[error("ask the API server")]
    Request(#[source] kube::Error),
    /// The Lease is not one of a pair.
    #[error("understand the Lease")]
    Content(#[source] LeaseError),
}

#[cfg(test)]
mod tests;
