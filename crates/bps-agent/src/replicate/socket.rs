//! The Unix socket on which an application asks for barriers, and the command that asks for one.
//!
//! ```text
//! sync\n   ->   ok <epoch> <sequence>\n      the standby has on its disk all that was there when this was asked
//!               alone <epoch> <sequence>\n   this disk has it, and no other one may be acted with
//!               error <text>\n               neither is certain
//! ```

use std::fs::Permissions;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::time::Duration;

use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::ledger::{Answer, BARRIER_MAX, Kept};
use super::remove_socket;

/// Most connections; further ones wait in the kernel.
const CONNECTIONS_MAX: usize = 256;
/// Longest line. Unit: bytes.
const LINE_MAX_BYTES: u64 = 64;
/// How long an application may take to read its answer.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// Pause after an error of the socket that accepts.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
const REQUEST: &str = "sync\n";

/// Where barriers are asked for.
type Barriers = mpsc::Sender<oneshot::Sender<Answer>>;

/// Why a barrier was not kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no agent at the socket.
    #[error("talk to the agent at {path}")]
    Talk {
        /// The socket.
        path: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The agent's answer.
    #[error("not kept: {0}")]
    Refused(String),
}

/// Makes the socket anew, for every user of the container: a barrier harms nobody.
///
/// # Errors
/// What the kernel refused; a path of more than 107 bytes, for example.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    remove_socket(path)?;
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Answers applications.
///
/// # Errors
/// None: an application that gets no answer is no reason to stop it.
pub(super) async fn serve(
    listener: UnixListener,
    barriers: Barriers,
    shutdown: Shutdown,
) -> Result<(), TaskError> {
    let mut conversations = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            // An application that breaks off asks nothing more.
            Some(_) = conversations.next() => {}
            accepted = listener.accept(), if conversations.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => conversations.push(converse(stream, barriers.clone())),
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "Could not accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

async fn converse(stream: UnixStream, barriers: Barriers) -> io::Result<()> {
    let (requests, mut answers) = stream.into_split();
    let mut requests = tokio::io::BufReader::new(requests);
    let mut line = String::new();
    loop {
        line.clear();
        if (&mut requests).take(LINE_MAX_BYTES).read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let text =
            if line == REQUEST { barrier(&barriers).await } else { "error expected the line sync\n".into() };
        timeout(WRITE_MAX, answers.write_all(text.as_bytes())).await??;
    }
}

async fn barrier(barriers: &Barriers) -> String {
    let (waiter, answer) = oneshot::channel();
    let answer = match barriers.send(waiter).await {
        Ok(()) => answer.await.unwrap_or(Err("the agent ends".into())),
        Err(_) => Err("the agent ends".into()),
    };
    match answer {
        Ok(Kept { epoch, sequence, is_alone }) => {
            let word = if is_alone { "alone" } else { "ok" };
            format!("{word} {} {sequence}\n", u64::from(epoch))
        }
        Err(reason) => format!("error {reason}\n"),
    }
}

/// Asks for one barrier and waits for it; returns what the agent says.
///
/// # Errors
/// It was not kept.
pub fn ask(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Talk { path: path.display().to_string(), source };
    let mut stream = BlockingStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(2 * BARRIER_MAX)).map_err(failed)?;
    stream.write_all(REQUEST.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    let mut answers = BufReader::new(stream).take(4 * LINE_MAX_BYTES);
    answers.read_line(&mut answer).map_err(failed)?;
    let answer = answer.trim_end();
    match answer.split_once(' ') {
        Some(("ok" | "alone", _)) => Ok(answer.to_owned()),
        Some(("error", reason)) => Err(Error::Refused(reason.to_owned())),
        Some(_) | None => Err(Error::Refused("the agent broke off".to_owned())),
    }
}
