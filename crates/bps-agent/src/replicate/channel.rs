//! A connection between two agents on which every word is authenticated, counted, and carries the epoch of the active.
//!
//! ```text
//! frame; all numbers big endian
//!   0  4  length of the word
//!   4  8  epoch of the active
//!  12  n  the word, see `word`
//!     32  HMAC-SHA256 over DOMAIN, both numbers that were drawn for this connection, 1 byte for the direction,
//!         8 bytes that count the frames of this direction, and bytes 4 to 12 + n
//! ```
//!
//! Who connects sends the number that it drew before its hello, and who accepts before its challenge, in 16 bytes each. So no
//! frame can be used again, in another place or in another connection.

use std::io;
use std::time::Duration;

use bps_protocol::Epoch;
use bps_wire::key_ring::{KeyRing, TAG_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use super::word::{HELLO_GROUP_BYTES, WORD_MAX_BYTES, Word, hello_group};
use crate::doorman::Greeting;
use crate::draw::draw;

/// Separates these frames from everything else that the same key might ever sign.
const DOMAIN: &[u8] = b"backup.example.com/bps-state/v1\0";
/// Longest word before both sides have proved that they have a key. Unit: bytes.
const GREETING_MAX_BYTES: usize = 128;
/// Where the first word is: behind the number that who connected drew, a length and the epoch. Unit: bytes.
const FIRST_WORD_AT: usize = 16 + 4 + 8;
/// Where what is said first on a connection names the Lease.
pub const GREETING: Greeting = Greeting { bytes: FIRST_WORD_AT + HELLO_GROUP_BYTES, group_of };
/// How long one frame may take on its way. 10 s: the longest one needs that on a line of 100 kbit/s.
const FRAME_MAX: Duration = Duration::from_secs(10);
/// Longest silence of somebody who is waited for.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How often somebody who is waited for says that it works. 1 s: a fraction of [`SILENCE_MAX`].
const BUSY_EVERY: Duration = Duration::from_secs(1);
/// What is signed before the word. Unit: bytes.
const PREFIX_BYTES: usize = 16 + 16 + 1 + 8 + 8;
/// Where the epoch is in it.
const EPOCH_AT: usize = PREFIX_BYTES - 8;

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who connected: the active.
    Active,
    /// Who accepted: the standby.
    Standby,
}

/// One connection.
#[derive(Debug)]
pub struct Channel<Stream> {
    stream: Stream,
    keys: watch::Receiver<KeyRing>,
    side: Side,
    /// Drawn by who connected, and by who accepted.
    drawn: [u128; 2],
    epoch: Epoch,
    sent: u64,
    received: u64,
    longest: usize,
}

impl<Stream: AsyncRead + AsyncWrite + Unpin> Channel<Stream> {
    /// The side that connected: sends the number that it draws.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn connected(
        mut stream: Stream,
        keys: watch::Receiver<KeyRing>,
        epoch: Epoch,
    ) -> io::Result<Self> {
        let own = draw()?;
        send_bytes(&mut stream, &own.to_be_bytes()).await?;
        Ok(Self::new((stream, keys), Side::Active, [own, 0], epoch))
    }

    /// The side that accepted: takes the number of the other one. The epoch is that of the first frame.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn accepted(mut stream: Stream, keys: watch::Receiver<KeyRing>) -> io::Result<Self> {
        let other = stream.read_u128().await?;
        Ok(Self::new((stream, keys), Side::Standby, [other, 0], Epoch::default()))
    }

    fn new(
        (stream, keys): (Stream, watch::Receiver<KeyRing>),
        side: Side,
        drawn: [u128; 2],
        epoch: Epoch,
    ) -> Self {
        Self { stream, keys, side, drawn, epoch, sent: 0, received: 0, longest: GREETING_MAX_BYTES }
    }

    /// The epoch of the active.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The side that accepted draws its number and sends it; both numbers count from the next word on.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn draw(&mut self) -> io::Result<()> {
        self.drawn[1] = draw()?;
        send_bytes(&mut self.stream, &self.drawn[1].to_be_bytes()).await
    }

    /// The side that connected takes the number of the other one.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn take_drawn(&mut self) -> io::Result<()> {
        self.drawn[1] = self.stream.read_u128().await?;
        Ok(())
    }

    /// Both sides have proved that they have a key: longer words may follow.
    pub fn trust(&mut self) {
        self.longest = WORD_MAX_BYTES;
    }

    /// Says some words.
    ///
    /// # Errors
    /// The connection broke, or the other side takes nothing.
    pub async fn say(&mut self, words: &[Word]) -> io::Result<()> {
        for word in words {
            let frame = self.seal(&word.encode());
            send_bytes(&mut self.stream, &frame).await?;
        }
        Ok(())
    }

    /// Waits for a word that was asked for, however long the other side works at it as long as it says so.
    ///
    /// # Errors
    /// As [`Channel::hear`]; and nothing is heard for too long.
    pub async fn hear_answer(&mut self) -> io::Result<Word> {
        loop {
            let word = timeout(SILENCE_MAX, self.hear()).await??;
            if word != Word::Busy {
                return Ok(word);
            }
        }
    }

    /// Waits for work that the other side waits for, and tells it so.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn work<T>(&mut self, work: impl Future<Output = T>) -> io::Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            match timeout(BUSY_EVERY, &mut work).await {
                Ok(done) => return Ok(done),
                Err(_) => self.say(&[Word::Busy]).await?,
            }
        }
    }

    /// Waits for the next word, however long; may not be dropped and called again.
    ///
    /// # Errors
    /// The connection ended or broke, or what was said is no word, or was not said by the other side to this one.
    pub async fn hear(&mut self) -> io::Result<Word> {
        let first = self.stream.read_u8().await?;
        timeout(FRAME_MAX, self.hear_rest(first)).await.map_err(io::Error::from)?
    }

    async fn hear_rest(&mut self, first: u8) -> io::Result<Word> {
        let mut rest = [0; 3];
        self.stream.read_exact(&mut rest).await?;
        let length = u32::from_be_bytes([first, rest[0], rest[1], rest[2]]);
        let length = usize::try_from(length).ok().filter(|length| *length <= self.longest);
        let length = length.ok_or(io::ErrorKind::InvalidData)?;
        let mut signed = vec![0; PREFIX_BYTES + length];
        self.stream.read_exact(&mut signed[EPOCH_AT..]).await?;
        let mut tag = [0; TAG_BYTES];
        self.stream.read_exact(&mut tag).await?;
        let other = match self.side {
            Side::Active => Side::Standby,
            Side::Standby => Side::Active,
        };
        signed[..EPOCH_AT].copy_from_slice(&self.context(other, self.received));
        if !self.keys.borrow().is_tagged(DOMAIN, &signed, &tag) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let epoch = Epoch::from(u64::from_be_bytes(std::array::from_fn(|byte| signed[EPOCH_AT + byte])));
        if self.side == Side::Standby && self.received == 0 {
            self.epoch = epoch;
        }
        if epoch != self.epoch {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.received += 1;
        Word::decode(&signed[PREFIX_BYTES..]).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn seal(&mut self, word: &[u8]) -> Vec<u8> {
        let context = self.context(self.side, self.sent);
        self.sent += 1;
        let signed = [&context[..], &u64::from(self.epoch).to_be_bytes(), word].concat();
        let tag = self.keys.borrow().tag(DOMAIN, &signed);
        let length = u32::try_from(word.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&length[..], &signed[EPOCH_AT..], &tag].concat()
    }

    fn context(&self, side: Side, count: u64) -> [u8; EPOCH_AT] {
        let mut context = [0; EPOCH_AT];
        context[..32].copy_from_slice(self.drawn.map(u128::to_be_bytes).as_flattened());
        context[32] = match side {
            Side::Active => 0,
            Side::Standby => 1,
        };
        context[33..].copy_from_slice(&count.to_be_bytes());
        context
    }
}

/// The Lease that the beginning of a connection names, which may be anything.
fn group_of(bytes: &[u8]) -> Option<u128> {
    hello_group(bytes.get(FIRST_WORD_AT..)?)
}

async fn send_bytes(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    timeout(FRAME_MAX, stream.write_all(bytes)).await.map_err(io::Error::from)?
}

#[cfg(test)]
mod tests {
    use bps_protocol::AgentId;
    use bps_wire::level::DirectoryId;
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    const EPOCH: Epoch = Epoch { term: 3, sequence: 1 };

    fn keys(byte: &str) -> watch::Receiver<KeyRing> {
        watch::channel(KeyRing::parse(&byte.repeat(32)).unwrap()).1
    }

    /// Both ends after both numbers were drawn; the second side uses these keys.
    async fn pair(other: &str) -> (Channel<DuplexStream>, Channel<DuplexStream>) {
        let (near, far) = duplex(1 << 20);
        let mut active = Channel::connected(near, keys("0f"), EPOCH).await.unwrap();
        let mut standby = Channel::accepted(far, keys(other)).await.unwrap();
        standby.draw().await.unwrap();
        active.take_drawn().await.unwrap();
        (active, standby)
    }

    #[tokio::test]
    async fn words_arrive_in_order_with_the_epoch() {
        let (mut active, mut standby) = pair("0f").await;
        active.say(&[Word::Attach, Word::Commit(7)]).await.unwrap();
        assert_eq!(standby.hear().await.unwrap(), Word::Attach);
        assert_eq!(standby.epoch(), EPOCH);
        assert_eq!(standby.hear().await.unwrap(), Word::Commit(7));
        standby.say(&[Word::Acknowledge(7)]).await.unwrap();
        assert_eq!(active.hear().await.unwrap(), Word::Acknowledge(7));
    }

    #[tokio::test]
    async fn the_beginning_of_a_connection_names_its_lease() {
        let (near, mut far) = duplex(1 << 10);
        let mut active = Channel::connected(near, keys("0f"), EPOCH).await.unwrap();
        let [from, to] = [1, 2].map(AgentId);
        let hello = Word::Hello { group: 0x0102, from, to, directory: DirectoryId(3) };
        active.say(&[hello]).await.unwrap();
        let mut first = vec![0; GREETING.bytes];
        far.read_exact(&mut first).await.unwrap();
        let of = |bytes: &[u8]| (GREETING.group_of)(bytes);
        assert_eq!(of(&first), Some(0x0102));
        assert_eq!((of(&first[..first.len() - 1]), of(&[2; GREETING.bytes]), of(b"")), (None, None, None));
    }

    #[tokio::test]
    async fn a_foreign_key_and_any_changed_byte_are_refused() {
        let (mut active, mut standby) = pair("f0").await;
        active.say(&[Word::Attach]).await.unwrap();
        assert_eq!(standby.hear().await.unwrap_err().kind(), io::ErrorKind::PermissionDenied);

        let length = pair("0f").await.0.seal(&Word::Commit(7).encode()).len();
        for index in 4..length {
            let (mut active, mut standby) = pair("0f").await;
            let mut frame = active.seal(&Word::Commit(7).encode());
            frame[index] ^= 1;
            active.stream.write_all(&frame).await.unwrap();
            assert_eq!(standby.hear().await.unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{index}");
        }
    }

    #[tokio::test]
    async fn a_frame_counts_once_in_one_direction_and_one_connection() {
        let (mut active, mut standby) = pair("0f").await;
        let frame = active.seal(&Word::Attach.encode());
        for _ in 0..2 {
            active.stream.write_all(&frame).await.unwrap();
        }
        assert_eq!(standby.hear().await.unwrap(), Word::Attach);
        assert!(standby.hear().await.is_err(), "it was repeated");

        let (mut active, mut standby) = pair("0f").await;
        active.stream.write_all(&frame).await.unwrap();
        assert!(standby.hear().await.is_err(), "it is of another connection");

        let frame = standby.seal(&Word::Attach.encode());
        active.stream.write_all(&frame).await.unwrap();
        let (mut active, mut standby) = pair("0f").await;
        let own = active.seal(&Word::Attach.encode());
        standby.stream.write_all(&own).await.unwrap();
        assert!(active.hear().await.is_err(), "it was said by itself");
    }

    #[tokio::test]
    async fn long_words_are_for_those_who_have_a_key() {
        let (mut active, mut standby) = pair("0f").await;
        let long = Word::Piece(vec![0; 1000]);
        active.say(std::slice::from_ref(&long)).await.unwrap();
        assert_eq!(standby.hear().await.unwrap_err().kind(), io::ErrorKind::InvalidData);

        let (mut active, mut standby) = pair("0f").await;
        standby.trust();
        active.say(std::slice::from_ref(&long)).await.unwrap();
        assert_eq!(standby.hear().await.unwrap(), long);
    }
}
