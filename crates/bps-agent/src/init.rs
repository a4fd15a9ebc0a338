//! What a good init does: passes signals on, reaps orphans, and ends with the code of its application.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use bps_runtime::telemetry::last_words;
use futures::stream::{BoxStream, SelectAll, StreamExt as _, poll_fn, select_all};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::application::Application;
use super::tree::{self, Ending, Environment};
use super::world::Kernel;

/// How long what the command has left is waited for. 1 s: nobody waits for it, and the end of a container kills the rest.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// Signals that are meant for the application; the others are for this process, or cannot be caught.
pub(super) const PASSED_ON: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::WINCH];

/// Starts the command and stays until it and all that it started have ended.
///
/// `launcher` is this program. Call it on the main thread, see [`tree::Tree::start`].
///
/// # Errors
/// What the kernel refused. That the command does not exist, or fails, is an ending and no error.
pub async fn run(launcher: &Path, command: &[OsString]) -> io::Result<Ending> {
    tree::adopt_orphans()?;
    // Before the start: an early SIGTERM is for the application, and must not end this process instead.
    let mut signals = passed_on()?;
    let mut application = Application::start(Kernel, launcher, command, &Environment::new())?;
    loop {
        tokio::select! {
            // An ended application needs no signal.
            biased;
            ended = application.command_ended() => {
                let ending = ended?;
                if let Err(error) = application.kill_within(GONE_WITHIN).await {
                    last_words(format_args!("bps-agent: leaves it to the kernel to end the container: {error}"));
                }
                return Ok(ending);
            }
            Some(signal) = signals.next() => application.pass(signal)?,
        }
    }
}

/// Every signal that is meant for the application, as it comes.
pub(super) fn passed_on() -> io::Result<SelectAll<BoxStream<'static, Signal>>> {
    let streams = PASSED_ON.into_iter().map(|passed| {
        let mut received = signal(SignalKind::from_raw(passed.as_raw()))?;
        let stream = poll_fn(move |context| received.poll_recv(context));
        Ok(stream.map(move |()| passed).boxed())
    });
    Ok(select_all(streams.collect::<io::Result<Vec<_>>>()?))
}
