//! Carries the wish to stop from a signal, or from a task that ended, to every other task.
//!
//! Never ends a task by itself: each task waits for [`Shutdown::requested`] beside its work, and
//! [`super::tasks::Tasks`] bounds how long that may take.

use std::fmt;
use std::sync::Arc;

use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// A cloneable "please stop" that, once requested, stays requested.
#[derive(Clone, Debug)]
pub struct Shutdown {
    requested: Arc<watch::Sender<bool>>,
}

/// Why the process cannot listen for signals.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The handler could not be installed.
    #[error("listen for {signal}")]
    Listen {
        /// Name of the signal, such as `SIGTERM`.
        signal: &'static str,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
}

/// The signals that ask a process to stop: SIGTERM (kubelet) and SIGINT (a terminal).
pub struct Signals {
    source: BoxStream<'static, &'static str>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { requested: Arc::new(watch::Sender::new(false)) }
    }
}

impl Shutdown {
    /// A signal that nobody has requested yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks every holder of a clone to stop; asking again changes nothing.
    pub fn request(&self) {
        self.requested.send_replace(true);
    }

    /// Whether somebody has asked to stop.
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Returns as soon as somebody asks to stop, at once if that has already happened.
    pub async fn requested(&self) {
        let mut receiver = self.requested.subscribe();
        let outcome = receiver.wait_for(|requested| *requested).await;
        drop(outcome.expect("the sender lives in self"));
    }
}

impl Signals {
    /// Installs handlers for SIGTERM and SIGINT; from then on they no longer end the process by themselves.
    ///
    /// # Errors
    /// `Listen` if the operating system refuses a handler.
    pub fn install() -> Result<Self, Error> {
        let terminate = listen("SIGTERM", SignalKind::terminate())?;
        let interrupt = listen("SIGINT", SignalKind::interrupt())?;
        Ok(Self { source: stream::select(terminate, interrupt).boxed() })
    }

    /// Signals that never come, for a program that embeds the tasks and has its own handlers.
    pub fn none() -> Self {
        Self { source: stream::pending().boxed() }
    }

    /// The name of the next signal; never returns when no more can come.
    pub async fn next(&mut self) -> &'static str {
        match self.source.next().await {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }

    #[cfg(test)]
    pub(super) fn from_stream(source: impl Stream<Item = &'static str> + Send + 'static) -> Self {
        Self { source: source.boxed() }
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Signals")
    }
}

fn listen(name: &'static str, kind: SignalKind) -> Result<impl Stream<Item = &'static str>, Error> {
    let handler = signal(kind).map_err(|source| Error::Listen { signal: name, source })?;
    Ok(stream::unfold(handler, move |mut handler: Signal| async move {
        handler.recv().await.map(|()| (name, handler))
    }))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_request_reaches_clones_made_before_and_after_it() {
        let shutdown = Shutdown::new();
        let before = shutdown.clone();
        assert!(!before.is_requested());
        assert!(before.requested().now_or_never().is_none());

        shutdown.request();
        shutdown.request();

        before.requested().await;
        shutdown.clone().requested().await;
        assert!(before.is_requested());
    }

    #[tokio::test]
    async fn signals_are_named_in_the_order_they_came() {
        let mut signals = Signals::from_stream(stream::iter(["SIGTERM", "SIGINT"]));
        assert_eq!(signals.next().await, "SIGTERM");
        assert_eq!(signals.next().await, "SIGINT");
        assert!(signals.next().now_or_never().is_none());
    }
}
