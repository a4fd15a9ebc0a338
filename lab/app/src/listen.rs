//! What every server of the stand-in does: a thread for each connection, up to a limit, and an end on a signal.

use std::io::{self, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendFlags, send};

/// Connections served at the same time; one more is closed at once. Holds the load client's 200 requests a
/// second through its deadline of one second, four times over.
const CONNECTIONS_MAX: usize = 1024;
/// Stack of a connection's thread. Unit: bytes. It holds one request and one answer.
const STACK_BYTES: usize = 64 * 1024;
/// Time for one read or write of a connection.
const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after the listener failed, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// How long an application that is asked to end may take to answer what it has taken. 50 ms: many times what an answer
/// takes, and well within what an agent gives it by default before it is killed.
pub const FINISH_WITHIN: Duration = Duration::from_millis(50);
/// How long connections stay open for another request that are kept, so that its answer is the last one and nobody asks what is
/// not answered any more. 10 ms: twice the time between two requests of a client of the lab.
const KEPT_WITHIN: Duration = Duration::from_millis(10);
/// Pause between two looks at what is not answered yet.
const FINISH_PAUSE: Duration = Duration::from_micros(100);

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port is taken or privileged.
    #[error("listen on port {port}")]
    Listen {
        /// The port.
        port: u16,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
    /// There is no socket for the sink.
    #[error("open a socket for the sink")]
    OpenSink(#[source] io::Error),
    /// A signal could not be caught.
    #[error("catch signals")]
    CatchSignals(#[source] io::Error),
}

/// Opens a port.
pub(super) fn open(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).map_err(|source| Error::Listen { port: address.port(), source })
}

/// What a server has taken and not answered yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Desk {
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    is_ending: Arc<AtomicBool>,
    /// Locked while a connection is taken, so that none is once it is locked for good.
    door: Arc<Mutex<()>>,
}

/// One of those that are counted, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Counted {
    fn one_of(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(all))
    }
}

/// What follows an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    End,
}

/// The requests of one connection, until it ends. The first one counts before it has come.
#[derive(Debug)]
pub(super) struct Requests {
    first: Option<Counted>,
    desk: Desk,
    _connection: Counted,
}

impl Requests {
    /// The next one, which has come; it counts until it is answered.
    pub(super) fn take(&mut self) -> Counted {
        self.first.take().unwrap_or_else(|| Counted::one_of(&self.desk.requests))
    }

    /// Whether the connection is to end with the next answer.
    pub(super) fn are_last(&self) -> bool {
        self.desk.is_ending()
    }

    /// Gives an answer that cannot say that it is the last one. If it is, the end of the connection goes with it in one
    /// segment: who asks at once after an answer sees it before that.
    pub(super) fn answer(&self, stream: &mut TcpStream, answer: &[u8]) -> io::Result<Then> {
        if !self.are_last() {
            return stream.write_all(answer).map(|()| Then::GoOn);
        }
        let mut rest = answer;
        while !rest.is_empty() {
            rest = &rest[send(&*stream, rest, SendFlags::MORE | SendFlags::NOSIGNAL)?..];
        }
        stream.shutdown(Shutdown::Write).map(|()| Then::End)
    }
}

impl Desk {
    /// Takes no connection any more, and waits until all that was taken is answered and connections that are kept have ended
    /// between two requests, but at most this long.
    pub(super) fn finish(&self, longest: Duration) {
        let door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_ending.store(true, Ordering::SeqCst);
        let began = Instant::now();
        let has_kept = || self.has_connections() && began.elapsed() < KEPT_WITHIN;
        while (!self.is_empty() || has_kept()) && began.elapsed() < longest {
            thread::sleep(FINISH_PAUSE);
        }
        // It stays shut until the process has ended.
        std::mem::forget(door);
    }

    /// Whether all that was taken is answered.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.load(Ordering::SeqCst) == 0
    }

    /// Whether it was asked to finish.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    fn has_connections(&self) -> bool {
        self.connections.load(Ordering::SeqCst) > 0
    }

    /// The next connection; `None` if there are as many as there may be.
    fn accept(&self, listener: &TcpListener) -> io::Result<Option<(TcpStream, Requests)>> {
        poll(&mut [PollFd::new(listener, PollFlags::IN)], None)?;
        let _open = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, _) = listener.accept()?;
        if self.connections.load(Ordering::SeqCst) >= CONNECTIONS_MAX {
            return Ok(None);
        }
        let (first, connection) = (Some(Counted::one_of(&self.requests)), Counted::one_of(&self.connections));
        Ok(Some((stream, Requests { first, desk: self.clone(), _connection: connection })))
    }
}

/// Serves for ever; each connection has its own thread.
pub(super) fn serve(
    listener: &TcpListener,
    desk: &Desk,
    converse: impl Fn(TcpStream, Requests) -> io::Result<()> + Send + Sync + 'static,
) {
    let converse = Arc::new(converse);
    loop {
        let Ok(accepted) = desk.accept(listener) else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some((stream, requests)) = accepted else { continue };
        let converse = Arc::clone(&converse);
        let serve = move || {
            // A peer that is gone has nobody to report to.
            let _ = prepare(&stream).and_then(|()| converse(stream, requests));
        };
        // Without a thread it is closed, as if it had never been taken.
        let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn(serve);
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    stream.set_nodelay(true)
}

/// Ends the process after a signal, once `prepare` has returned.
///
/// A process with id 1 ignores signals that it does not catch, so SIGTERM would only take effect as SIGKILL
/// after the grace period.
pub(super) fn exit_on_signal(prepare: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    wait_for_signal(prepare).map_err(Error::CatchSignals)
}

fn wait_for_signal(prepare: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let (mut woken, waker) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT] {
        signal_hook::low_level::pipe::register(signal, waker.try_clone()?)?;
    }
    let wait = move || {
        let mut byte = [0];
        // The other end stays open in the signal handler, so this returns only after a signal.
        let _ = woken.read(&mut byte);
        prepare();
        std::process::exit(0);
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(wait)?;
    Ok(())
}

/// Name of the Pod: the container runtime sets `HOSTNAME`, and the kernel knows it as well.
pub(super) fn pod_name() -> String {
    std::env::var("HOSTNAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"))
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
