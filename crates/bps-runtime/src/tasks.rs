//! Joins every task of a process: the first to end, for whatever reason, stops all others.
//!
//! A process that has lost one of its tasks is half alive, which nobody notices; a process that ended is
//! restarted by the kubelet. So nothing here restarts a task.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::shutdown::{Shutdown, Signals};

/// How long tasks may take to end after a stop was requested.
///
/// 10 s: a third of Kubernetes' default `terminationGracePeriodSeconds` of 30 s, so that the lease is released
/// and logs are written well before the kubelet's SIGKILL.
pub const GRACE_MAX: Duration = Duration::from_secs(10);

/// How long to wait for tasks that were aborted; only a task that blocks its thread takes longer than an instant.
pub const ABORT_MAX: Duration = Duration::from_secs(1);

/// What a task may fail with: the error of any verb.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// The tasks of one process.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<Ended>,
    running: Vec<&'static str>,
}

/// Why a process stopped, when it was not simply asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A task returned without an error although nobody had asked it to stop.
    #[error("task {task} ended although nobody asked it to")]
    EndedEarly {
        /// The task's name.
        task: &'static str,
    },
    /// A task returned an error.
    #[error("task {task} failed")]
    Failed {
        /// The task's name.
        task: &'static str,
        /// What it returned.
        #[source]
        source: TaskError,
    },
    /// A task panicked.
    #[error("task {task} panicked: {message}")]
    Panicked {
        /// The task's name.
        task: &'static str,
        /// The panic's message.
        message: String,
    },
    /// Tasks were still running [`GRACE_MAX`] after they had been asked to stop, and were aborted.
    #[error("aborted after the grace period: {}", tasks.join(", "))]
    Unfinished {
        /// Their names, in the order of their start.
        tasks: Vec<&'static str>,
    },
    /// A second signal came while tasks were still ending.
    #[error("aborted by a second signal, {signal}")]
    Aborted {
        /// Name of that signal.
        signal: &'static str,
    },
}

/// A task that is over.
#[derive(Debug)]
struct Ended {
    task: &'static str,
    how: How,
}

#[derive(Debug)]
enum How {
    Returned,
    Failed(TaskError),
    Panicked(String),
}

/// Why the process begins to stop.
enum Cause {
    Signal(&'static str),
    Requested,
    Ended(Ended),
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task that cannot fail; see [`Tasks::spawn`].
    pub fn spawn_infallible(&mut self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn(task, async move {
            work.await;
            Ok(())
        });
    }

    /// Starts a task at once; its end, by value, error or panic, is seen by [`Tasks::run`].
    pub fn spawn<Work>(&mut self, task: &'static str, work: Work)
    where
        Work: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        self.running.push(task);
        self.set.spawn(async move {
            // Unwind safety: nothing of a panicked task is used again, the process stops.
            let how = match AssertUnwindSafe(work).catch_unwind().await {
                Ok(Ok(())) => How::Returned,
                Ok(Err(error)) => How::Failed(error),
                Err(panic) => How::Panicked(panic_message(panic.as_ref())),
            };
            Ended { task, how }
        });
    }

    /// Runs until a signal comes, `shutdown` is requested or a task ends; then asks all tasks to stop and joins them.
    ///
    /// Takes at most [`GRACE_MAX`] plus [`ABORT_MAX`] from then on; a second signal cuts that short.
    ///
    /// # Errors
    /// The first reason why this was more than a requested stop: see [`Error`].
    pub async fn run(mut self, shutdown: &Shutdown, mut signals: Signals) -> Result<(), Error> {
        let first = match self.first_cause(shutdown, &mut signals).await {
            Cause::Signal(signal) => {
                info!(reason = signal, "Received signal");
                None
            }
            Cause::Requested => None,
            Cause::Ended(ended) => Some(ended.unasked()),
        };
        shutdown.request();
        let rest = self.drain(&mut signals).await;
        self.set.abort_all();
        if timeout(ABORT_MAX, async { while self.set.join_next().await.is_some() {} }).await.is_err() {
            warn!(task = %self.running.join(", "), "Left tasks that block their thread");
        }
        first.map_or(rest, Err)
    }

    async fn first_cause(&mut self, shutdown: &Shutdown, signals: &mut Signals) -> Cause {
        // Ends come first: a task that failed is the news, even if a stop is requested in the same instant.
        tokio::select! {
            biased;
            Some(ended) = self.next_end() => Cause::Ended(ended),
            signal = signals.next() => Cause::Signal(signal),
            () = shutdown.requested() => Cause::Requested,
        }
    }

    /// Waits until all tasks are over and returns the first failure.
    async fn drain(&mut self, signals: &mut Signals) -> Result<(), Error> {
        let deadline = Instant::now() + GRACE_MAX;
        let mut outcome = Ok(());
        loop {
            // Ends come first: when the last task ends together with a second signal, nothing is left to abort.
            let ended = tokio::select! {
                biased;
                ended = timeout_at(deadline, self.next_end()) => ended,
                signal = signals.next() => return Err(Error::Aborted { signal }),
            };
            match ended {
                Ok(Some(ended)) => outcome = outcome.and(ended.asked()),
                Ok(None) => return outcome,
                Err(_) => return outcome.and(Err(Error::Unfinished { tasks: self.running.clone() })),
            }
        }
    }

    /// The next task that ends, `None` once all are over.
    async fn next_end(&mut self) -> Option<Ended> {
        let ended =
            self.set.join_next().await?.expect("no task is aborted before the drain and panics are caught");
        if let Some(position) = self.running.iter().position(|task| *task == ended.task) {
            self.running.remove(position);
        }
        Some(ended)
    }
}

impl Ended {
    /// The error of a task that ended before anybody asked it to.
    fn unasked(self) -> Error {
        match self.how {
            How::Returned => Error::EndedEarly { task: self.task },
            How::Failed(source) => Error::Failed { task: self.task, source },
            How::Panicked(message) => Error::Panicked { task: self.task, message },
        }
    }

    /// The outcome of a task that was asked to stop.
    fn asked(self) -> Result<(), Error> {
        match self.how {
            How::Returned => Ok(()),
            How::Failed(_) | How::Panicked(_) => {
                let error = self.unasked();
                warn!(error = &error as &dyn std::error::Error, "Task did not stop cleanly");
                Err(error)
            }
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    if let Some(message) = panic.downcast_ref::<&str>() {
        return (*message).to_owned();
    }
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests;
