//! Makes a control line and a lifeline to the other agent, again and again, and reports the certificate they end with.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bps_protocol::{AgentId, Epoch};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use bps_wire::frame::Question;
use bps_wire::key_ring::KeyRing;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::frame::{Frame, Origin, Session, Word};
use super::question::{Answer, ask_once_more};
use super::{GREETING_MAX, Line, Partner, Watching, prepare};
use crate::draw::draw;

/// Pause between two pairs of lines. 200 ms: the next tenure of the other agent has a lifeline soon, and a refused
/// connection costs nothing worth speaking of.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// The same once something was found between the two that has connections of its own. 60 s: that stays so until somebody changes it,
/// which needs other Pods as a rule.
const PROXIED_PAUSE: Duration = Duration::from_secs(60);
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

/// How a pair of lines ended.
enum Ended {
    /// As they do when the application and its agent have ended.
    Certain(Epoch),
    /// In another way, or there were none.
    Unknown,
    /// They were no lines to the other agent.
    Proxied,
}

/// What the watcher tells, and what it is told.
#[derive(Debug)]
pub struct Words {
    /// Tenures whose application has ended.
    pub certificates: Sender<Epoch>,
    /// How far it is.
    pub watching: watch::Sender<Watching>,
    /// What the other agent denied last.
    pub denied: watch::Receiver<Option<Question>>,
    /// Time within which a living agent must answer.
    pub answered_within: Duration,
}

/// Watches the application of the other member.
///
/// # Errors
/// None: without a certificate the Lease decides.
pub async fn run(line: Line, mut words: Words, shutdown: Shutdown) -> Result<(), TaskError> {
    let mut partners = line.partner.clone();
    loop {
        let partner = *partners.borrow_and_update();
        words.watching.send_replace(Watching::Nobody);
        tokio::select! {
            // Nothing is worth finishing once the process stops, or with an agent that is no member any more.
            biased;
            () = shutdown.requested() => return Ok(()),
            changed = partners.changed() => if changed.is_err() { return Ok(()) },
            () = watch(&line, partner, &mut words) => {}
        }
    }
}

/// One pair of lines after the other, while the partner is the same.
async fn watch(line: &Line, partner: Option<Partner>, words: &mut Words) {
    let Some(partner) = partner else { return std::future::pending().await };
    loop {
        let ended = watch_once(line, partner, words).await;
        let was_proxied = *words.watching.borrow() == Watching::Proxied;
        match ended {
            Ended::Certain(epoch) => {
                words.watching.send_replace(Watching::Nobody);
                info!(%epoch, "The application of the peer has certainly ended");
                // Without a receiver the process is about to end.
                let _: Result<(), SendError<Epoch>> = words.certificates.send(epoch).await;
            }
            Ended::Unknown => {
                words.watching.send_replace(Watching::Nobody);
                sleep(RETRY_PAUSE).await;
            }
            Ended::Proxied => {
                words.watching.send_replace(Watching::Proxied);
                if !was_proxied {
                    let (_, address) = partner;
                    warn!(
                        %address,
                        "Something between the two Pods has TCP connections of its own, so an application that is killed is followed \
                         by the Lease only: let the ports of the agents pass by the service mesh"
                    );
                }
                sleep(PROXIED_PAUSE).await;
            }
        }
    }
}

/// One pair of lines, from the first word to the end, and the question after it.
async fn watch_once(line: &Line, partner: Partner, words: &mut Words) -> Ended {
    let lines = match timeout(GREETING_MAX, Lines::make(line, partner)).await {
        Ok(Ok(Some(lines))) => lines,
        Ok(Ok(None)) => return Ended::Proxied,
        Ok(Err(_)) | Err(_) => return Ended::Unknown,
    };
    let Ok(epoch) = lines.certificate(&words.watching).await else { return Ended::Unknown };
    // What both lines said may have been said by something between the two that no word of theirs shows.
    match ask_once_more(line, partner, epoch, words).await {
        Answer::Denied => Ended::Proxied,
        Answer::Silence => Ended::Certain(epoch),
        Answer::Unknown => Ended::Unknown,
    }
}

impl Lines {
    /// Makes both; `None` if something between the two agents has connections of its own.
    ///
    /// # Errors
    /// Nobody answered, or not as the partner does.
    async fn make(line: &Line, (to, address): Partner) -> io::Result<Option<Self>> {
        let keys = line.keys.borrow().clone();
        let mut control = connect(address).await?;
        let session = Session { connected: draw()?, accepted: 0 };
        let word = Word::Hello(Origin::from(control.local_addr()?));
        let hello = Frame { group: line.group, from: line.own, to, session, word };
        control.write_all(&hello.seal(&keys)).await?;
        let answer = Frame::receive(&mut control, &keys).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let proxied = Frame { from: to, to: line.own, word: Word::Proxied, ..hello };
        if answer == proxied {
            return Ok(None);
        }
        let session = Session { accepted: answer.session.accepted, ..session };
        if answer != (Frame { session, word: Word::Challenge, ..proxied }) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut lifeline = connect(address).await?;
        let word = Word::Attach(Origin::from(lifeline.local_addr()?));
        lifeline.write_all(&Frame { session, word, ..hello }.seal(&keys)).await?;
        Ok(Some(Self { control, lifeline, session, keys, from: to }))
    }

    /// The tenure whose application has ended, once it is confirmed and both lines have ended in order.
    ///
    /// # Errors
    /// Anything else happened to one of the lines.
    async fn certificate(mut self, watching: &watch::Sender<Watching>) -> io::Result<Epoch> {
        let Word::Confirm(epoch) = self.word().await? else { return Err(io::ErrorKind::InvalidData.into()) };
        watching.send_replace(Watching::Confirmed);
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
