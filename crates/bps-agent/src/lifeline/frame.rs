//! What agents say on control lines and lifelines: fixed layout, authenticated before anything is believed.
//!
//! ```text
//! frame, 152 bytes; all numbers big endian
//!   0  4  "BPSL"
//!   4  1  version, 2
//!   5  1  kind: 1 hello, 2 challenge, 3 attach, 4 confirm, 5 void, 6 proxied
//!   6  2  zero
//!   8 16  group: uid of the Lease
//!  24 16  sender: uid of its Pod
//!  40 16  receiver: uid of its Pod
//!  56 16  number that who connected drew for this pair of lines
//!  72 16  number that who accepted drew for it; in a hello zero
//!  88  8  confirm: epoch; else zero
//!  96 16  hello and attach: address that the line comes from, IPv4 as ::ffff:0:0/96; else zero
//! 112  2  hello and attach: port that it comes from; else zero
//! 114  6  zero
//! 120 32  HMAC-SHA256 over DOMAIN and bytes 0..120
//! ```
//!
//! The connecting agent states the address and port of its end of the line. The accepting agent compares them with the source that its
//! kernel reports. A proxy between the two has connections of its own, and their ends do not prove that an application has ended.
//!
//! Both numbers are drawn anew for each pair of lines, so that no frame can be used again in another one.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bps_protocol::{AgentId, Epoch};
use bps_wire::key_ring::{KeyRing, TAG_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::doorman::Greeting;

/// Length of a frame. Unit: bytes.
pub const FRAME_BYTES: usize = SIGNED_BYTES + TAG_BYTES;

/// Separates these frames from everything else that the same key might ever sign.
const DOMAIN: &[u8] = b"backup.example.com/bps-lifeline/v2\0";

const START: [u8; 5] = *b"BPSL\x02";
/// Where the first frame of a line names the Lease.
pub const GREETING: Greeting = Greeting { bytes: SENDER_AT, group_of };

const GROUP_AT: usize = 8;
const SENDER_AT: usize = 24;
const EPOCH_AT: usize = 88;
const ORIGIN_AT: usize = 96;
const PORT_AT: usize = 112;
const REST_AT: usize = 114;
const SIGNED_BYTES: usize = 120;

/// Which pair of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Drawn by who connected.
    pub connected: u128,
    /// Drawn by who accepted.
    pub accepted: u128,
}

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// First word on a control line, which comes from there.
    Hello(Origin),
    /// The answer to it.
    Challenge,
    /// The only word on a lifeline, which comes from there; its sender has seen the challenge.
    Attach(Origin),
    /// The lifeline is with the application of this tenure, and all its processes hold it.
    Confirm(Epoch),
    /// The lifeline says nothing any more.
    Void,
    /// Answer to a hello that states another origin than the kernel reports.
    Proxied,
}

/// Where a line comes from: the address and port of who connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(SocketAddr);

impl From<SocketAddr> for Origin {
    /// The same for an IPv4 address and for how a socket of both kinds shows it.
    fn from(address: SocketAddr) -> Self {
        Self(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }
}

/// A word and its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Uid of the Lease of the pair.
    pub group: u128,
    /// The sender.
    pub from: AgentId,
    /// The receiver.
    pub to: AgentId,
    /// The pair of lines.
    pub session: Session,
    /// What is said.
    pub word: Word,
}

impl Frame {
    /// The bytes on the wire.
    pub fn seal(&self, keys: &KeyRing) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        let (kind, epoch, origin) = match self.word {
            Word::Hello(origin) => (1, Epoch::default(), Some(origin)),
            Word::Challenge => (2, Epoch::default(), None),
            Word::Attach(origin) => (3, Epoch::default(), Some(origin)),
            Word::Confirm(epoch) => (4, epoch, None),
            Word::Void => (5, Epoch::default(), None),
            Word::Proxied => (6, Epoch::default(), None),
        };
        bytes[..5].copy_from_slice(&START);
        bytes[5] = kind;
        let Session { connected, accepted } = self.session;
        for (index, number) in [self.group, self.from.0, self.to.0, connected, accepted].iter().enumerate() {
            bytes[8 + 16 * index..][..16].copy_from_slice(&number.to_be_bytes());
        }
        bytes[EPOCH_AT..ORIGIN_AT].copy_from_slice(&u64::from(epoch).to_be_bytes());
        if let Some(Origin(origin)) = origin {
            let address = match origin.ip() {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            bytes[ORIGIN_AT..PORT_AT].copy_from_slice(&address.octets());
            bytes[PORT_AT..REST_AT].copy_from_slice(&origin.port().to_be_bytes());
        }
        let tag = keys.tag(DOMAIN, &bytes[..SIGNED_BYTES]);
        bytes[SIGNED_BYTES..].copy_from_slice(&tag);
        bytes
    }

    /// Reads a frame; `None` if it is none, or no key of the group made its tag.
    pub fn open(bytes: &[u8; FRAME_BYTES], keys: &KeyRing) -> Option<Self> {
        let (signed, tag) = bytes.split_at(SIGNED_BYTES);
        let is_zero = signed[6..8].iter().chain(&signed[REST_AT..]).all(|byte| *byte == 0);
        if signed[..5] != START || !is_zero || !keys.is_tagged(DOMAIN, signed, tag) {
            return None;
        }
        let number =
            |index: usize| u128::from_be_bytes(std::array::from_fn(|byte| signed[8 + 16 * index + byte]));
        let epoch = u64::from_be_bytes(std::array::from_fn(|byte| signed[EPOCH_AT + byte]));
        let address = Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|byte| signed[ORIGIN_AT + byte]));
        let port = u16::from_be_bytes([signed[PORT_AT], signed[PORT_AT + 1]]);
        let origin = SocketAddr::new(address.into(), port);
        let is_from_nowhere = address.is_unspecified() && port == 0;
        let word = match (signed[5], epoch, is_from_nowhere) {
            (1, 0, _) => Word::Hello(origin.into()),
            (2, 0, true) => Word::Challenge,
            (3, 0, _) => Word::Attach(origin.into()),
            (4, epoch, true) => Word::Confirm(Epoch::from(epoch)),
            (5, 0, true) => Word::Void,
            (6, 0, true) => Word::Proxied,
            _ => return None,
        };
        let session = Session { connected: number(3), accepted: number(4) };
        Some(Self { group: number(0), from: AgentId(number(1)), to: AgentId(number(2)), session, word })
    }

    /// Reads the next frame of a line; `None` if the line ends in order before it.
    ///
    /// # Errors
    /// The line broke, ended within a frame, or says something else than a frame of the group.
    pub async fn receive(line: &mut (impl AsyncRead + Unpin), keys: &KeyRing) -> io::Result<Option<Self>> {
        let mut bytes = [0; FRAME_BYTES];
        let first = line.read(&mut bytes).await?;
        if first == 0 {
            return Ok(None);
        }
        line.read_exact(&mut bytes[first..]).await?;
        Self::open(&bytes, keys).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// The Lease that the beginning of a frame names, which may be anything.
fn group_of(bytes: &[u8]) -> Option<u128> {
    let is_frame = bytes.starts_with(&START);
    let group = bytes.get(GROUP_AT..SENDER_AT).filter(|_| is_frame)?;
    group.try_into().map(u128::from_be_bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(byte: &str) -> KeyRing {
        KeyRing::parse(&byte.repeat(32)).unwrap()
    }

    fn origin(address: &str) -> Origin {
        Origin::from(address.parse::<SocketAddr>().unwrap())
    }

    fn frame(word: Word) -> Frame {
        let session = Session { connected: 4, accepted: 5 };
        Frame { group: 1, from: AgentId(2), to: AgentId(3), session, word }
    }

    #[test]
    fn every_word_is_read_as_it_was_said() {
        let epoch = Epoch { term: 6, sequence: 7 };
        let [old, new] = ["192.0.2.8:9", "[2001:db8::8]:9"].map(origin);
        let lines = [Word::Hello(old), Word::Hello(new), Word::Attach(old), Word::Attach(new)];
        let rest = [Word::Challenge, Word::Confirm(epoch), Word::Void, Word::Proxied];
        for word in lines.into_iter().chain(rest) {
            let sealed = frame(word).seal(&keys("0f"));
            assert_eq!(Frame::open(&sealed, &keys("0f")), Some(frame(word)));
            assert_eq!(Frame::open(&sealed, &keys("f0")), None);
        }
    }

    #[test]
    fn an_origin_is_the_same_however_a_socket_shows_it() {
        assert_eq!(origin("[::ffff:192.0.2.8]:9"), origin("192.0.2.8:9"));
        assert_ne!(origin("192.0.2.8:9"), origin("192.0.2.8:10"));
    }

    #[test]
    fn a_frame_with_any_byte_changed_is_none() {
        let sealed = frame(Word::Void).seal(&keys("0f"));
        for index in 0..FRAME_BYTES {
            let mut changed = sealed;
            changed[index] ^= 1;
            assert_eq!(Frame::open(&changed, &keys("0f")), None, "{index}");
        }
    }

    #[test]
    fn the_beginning_of_a_frame_names_its_lease() {
        let sealed = Frame { group: 0x0102, ..frame(Word::Hello(origin("192.0.2.8:9"))) }.seal(&keys("0f"));
        let of = |bytes: &[u8]| (GREETING.group_of)(bytes);
        assert_eq!(of(&sealed[..GREETING.bytes]), Some(0x0102));
        assert_eq!((of(&sealed[..GREETING.bytes - 1]), of(&sealed[1..]), of(b"")), (None, None, None));
    }

    #[tokio::test]
    async fn only_a_line_that_ends_between_two_frames_ends_in_order() {
        let hello = frame(Word::Hello(origin("192.0.2.8:9")));
        let sealed = hello.seal(&keys("0f"));
        let mut line = &sealed[..];
        assert_eq!(Frame::receive(&mut line, &keys("0f")).await.unwrap(), Some(hello));
        assert_eq!(Frame::receive(&mut line, &keys("0f")).await.unwrap(), None);
        for length in 1..FRAME_BYTES {
            assert!(Frame::receive(&mut &sealed[..length], &keys("0f")).await.is_err());
        }
    }
}
