//! The operator's side of one wake-up: one connection, one frame, one answer, one deadline.
//!
//! Never tries again; whether to repeat or to take another Pod is a decision, and made by `plan`.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use crate::protocol::{ANSWER_BYTES, Answer, AnswerError, SignedTicket};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Why there is no answer.
///
/// A refusal is an answer; see [`Answer::Refused`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens: the gate has not started yet, or has opened already and the Pod is past it.
    #[error("connection refused by {address}")]
    ConnectionRefused {
        /// The gate.
        address: SocketAddr,
    },
    /// No answer within the deadline: the node or the network is gone, or the gate is flooded.
    #[error("no answer from {address} within {deadline:?}")]
    TimedOut {
        /// The gate.
        address: SocketAddr,
        /// The deadline of the whole wake-up.
        deadline: Duration,
    },
    /// The network failed in another way.
    #[error("talk to {address}")]
    Talk {
        /// The gate.
        address: SocketAddr,
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// Something answered that is not a gate of this version.
    #[error("understand {address}")]
    Understand {
        /// The gate.
        address: SocketAddr,
        /// What is wrong with the answer.
        #[source]
        source: AnswerError,
    },
}

impl Error {
    /// Whether the Pod may be past its gate already, so that its status and not the gate tells the outcome.
    ///
    /// After a lost answer or to a closed port the ticket may have worked; sending it again is harmless.
    pub const fn may_be_woken(&self) -> bool {
        match self {
            Self::ConnectionRefused { .. } | Self::TimedOut { .. } | Self::Talk { .. } => true,
            Self::Understand { .. } => false,
        }
    }
}

/// Hands a ticket to the gate at `address` and returns its answer, all within `deadline`.
///
/// # Errors
/// [`Error`] if there is no answer of a gate.
pub async fn wake(address: SocketAddr, ticket: &SignedTicket, deadline: Duration) -> Result<Answer, Error> {
    let exchange = tokio::time::timeout(deadline, exchange(address, ticket));
    let answer = match exchange.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(source)) => return Err(talk_error(address, deadline, source)),
        Err(_elapsed) => return Err(Error::TimedOut { address, deadline }),
    };
    Answer::decode(&answer).map_err(|source| Error::Understand { address, source })
}

async fn exchange(address: SocketAddr, ticket: &SignedTicket) -> io::Result<[u8; ANSWER_BYTES]> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&ticket.encode()).await?;
    let mut answer = [0; ANSWER_BYTES];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

fn talk_error(address: SocketAddr, deadline: Duration, source: io::Error) -> Error {
    if source.kind() == ErrorKind::ConnectionRefused {
        Error::ConnectionRefused { address }
    } else if source.kind() == ErrorKind::TimedOut {
        Error::TimedOut { address, deadline }
    } else {
        Error::Talk { address, source }
    }
}
