//! Makes a control line and a lifeline to the other agent, again and again, and reports the certificate they end with.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bps_protocol::{AgentId, Epoch};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use bps_wire::key_ring::KeyRing;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::info;

use super::frame::{Frame, Session, Word};
use super::listener::draw;
use super::{GREETING_MAX, Line, Partner, prepare};

/// Pause between two pairs of lines. 200 ms: the next tenure of the other agent has a lifeline soon, and a refused
/// connection costs nothing worth speaking of.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How long the processes of an application may end after their agent. 2 s: then the Lease has decided.
const ENDING_MAX: Duration = Duration::from_secs(2);
/// How long an agent may end after its application. 100 ms: whoever kills a container does so at once, and a lifeline
/// that ends beside a living agent is soon void.
const AGENT_ENDING_MAX: Duration = Duration::from_millis(100);

/// Both lines, and what was agreed on them.
struct Lines {
    control: TcpStream,
    lifeline: TcpStream,
    session: Session,
    keys: KeyRing,
    from: AgentId,
}

/// Watches the application of the other member.
///
/// # Errors
/// None: without a certificate the Lease decides.
pub async fn run(
    line: Line,
    (certificates, confirmed): (Sender<Epoch>, watch::Sender<bool>),
    shutdown: Shutdown,
) -> Result<(), TaskError> {
    let mut partners = line.partner.clone();
    loop {
        let partner = *partners.borrow_and_update();
        confirmed.send_replace(false);
        tokio::select! {
            // Nothing is worth finishing once the process stops, or with an agent that is no member any more.
            biased;
            () = shutdown.requested() => return Ok(()),
            changed = partners.changed() => if changed.is_err() { return Ok(()) },
            certificate = watch(&line, partner, &confirmed) => {
                if let Some(epoch) = certificate {
                    info!(%epoch, "The application of the peer has certainly ended");
                    // Without a receiver the process is about to end.
                    let _: Result<(), SendError<Epoch>> = certificates.send(epoch).await;
                }
            }
        }
    }
}

/// One pair of lines, from the first word to the end; then a pause.
async fn watch(line: &Line, partner: Option<Partner>, confirmed: &watch::Sender<bool>) -> Option<Epoch> {
    let Some(partner) = partner else { return std::future::pending().await };
    let certificate = match timeout(GREETING_MAX, Lines::make(line, partner)).await {
        Ok(Ok(lines)) => lines.certificate(confirmed).await.ok(),
        Ok(Err(_)) | Err(_) => None,
    };
    confirmed.send_replace(false);
    if certificate.is_none() {
        sleep(RETRY_PAUSE).await;
    }
    certificate
}

impl Lines {
    async fn make(line: &Line, (to, address): Partner) -> io::Result<Self> {
        let keys = line.keys.borrow().clone();
        let mut control = connect(address).await?;
        let session = Session { connected: draw()?, accepted: 0 };
        let hello = Frame { group: line.group, from: line.own, to, session, word: Word::Hello };
        control.write_all(&hello.seal(&keys)).await?;
        let answer = Frame::receive(&mut control, &keys).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let session = Session { accepted: answer.session.accepted, ..session };
        let expected = Frame { from: to, to: line.own, session, word: Word::Challenge, ..hello };
        if answer != expected {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut lifeline = connect(address).await?;
        let attach = Frame { session, word: Word::Attach, ..hello };
        lifeline.write_all(&attach.seal(&keys)).await?;
        Ok(Self { control, lifeline, session, keys, from: to })
    }

    /// The tenure whose application has ended, once it is confirmed and both lines have ended in order.
    ///
    /// # Errors
    /// Anything else happened to one of the lines.
    async fn certificate(mut self, confirmed: &watch::Sender<bool>) -> io::Result<Epoch> {
        let Word::Confirm(epoch) = self.word().await? else { return Err(io::ErrorKind::InvalidData.into()) };
        confirmed.send_replace(true);
        tokio::select! {
            ended = end(&mut self.control) => {
                ended?;
                timeout(ENDING_MAX, end(&mut self.lifeline)).await??;
            }
            ended = end(&mut self.lifeline) => {
                ended?;
                timeout(AGENT_ENDING_MAX, end(&mut self.control)).await??;
            }
        }
        Ok(epoch)
    }

    /// The next word on the control line, while the lifeline is silent.
    async fn word(&mut self) -> io::Result<Word> {
        let frame = tokio::select! {
            frame = Frame::receive(&mut self.control, &self.keys) => frame?,
            _ = end(&mut self.lifeline) => None,
        };
        let frame = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
        if (frame.session, frame.from) != (self.session, self.from) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(frame.word)
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let line = TcpStream::connect(address).await?;
    prepare(&line)?;
    Ok(line)
}

/// Waits until a line ends in order.
///
/// # Errors
/// It broke, or something was said on it: a void, or what nobody may say.
async fn end(line: &mut TcpStream) -> io::Result<()> {
    match line.read(&mut [0]).await? {
        0 => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
