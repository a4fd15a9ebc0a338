//! Messages between agents as datagrams: fixed layout, no allocation, authenticated before anything is believed.
//!
//! Never touches a socket; see `peer`.
//!
//! ```text
//! frame, 120 bytes; all numbers big endian
//!   0  4  "BPSP"
//!   4  1  version, 1
//!   5  1  kind: 1 ping, 2 request for a promise, 3 promise, 4 handover, 5 farewell, 6 account, 7 promise with a ping,
//!         8 question, 9 denial
//!   6  2  zero
//!   8 16  group: uid of the Lease
//!  24 16  sender: uid of its Pod
//!  40 16  receiver: uid of its Pod
//!  56 32  ping and farewell: incarnation, sent; request and promise: epoch, sent;
//!         handover: epoch, incarnation, sent, grace left in nanoseconds; promise with a ping: epoch, sent as in the
//!         request, incarnation, sent;
//!         account: epoch that ended, number of the cause, microseconds since its end was noticed and since nothing of
//!         it was left; question and denial: epoch, number; 8 bytes each, the rest zero
//!  88 32  HMAC-SHA256 over DOMAIN and bytes 0..88
//! ```

use std::time::Duration;

use bps_protocol::{
    Account, AgentId, BootTime, Cause, Epoch, Handover, Incarnation, Message, Ping, Promise, PromiseRequest,
};

use super::key_ring::{KeyRing, TAG_BYTES};

/// The version that this code speaks.
pub const VERSION: u8 = 1;

/// Length of a frame. Unit: bytes.
pub const FRAME_BYTES: usize = SIGNED_BYTES + TAG_BYTES;

/// Separates these frames from everything else that the same key might ever sign.
const DOMAIN: &[u8; 31] = b"backup.example.com/bps-pair/v1\0";

const MAGIC: [u8; 4] = *b"BPSP";
const SIGNED_BYTES: usize = 88;
const GROUP_AT: usize = 8;
const BODY_AT: usize = 56;
const BODY_WORDS: usize = 4;

/// A message and its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Uid of the Lease of the pair.
    pub group: u128,
    /// The sender.
    pub from: AgentId,
    /// The receiver.
    pub to: AgentId,
    /// What is said.
    pub content: Content,
}

/// What agents say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A word of the protocol.
    Protocol(Message),
    /// Two words of a standby that are due together, in one datagram: that halves how many an idle standby sends.
    PromiseWithPing(Promise, Ping),
    /// How a tenure ended, for the record alone.
    Account(Account),
    /// Asks who acted with an epoch whether it does still. Whoever has ended does not answer, and nothing but silence counts for it.
    Question(Question),
    /// The answer: it does.
    Denial(Question),
}

/// Whether somebody acts with an epoch still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The epoch.
    pub epoch: Epoch,
    /// Drawn by who asks, so that the answer to an earlier question is none to this one.
    pub number: u64,
}

impl Content {
    /// The words of the protocol in it, in their order.
    pub const fn messages(&self) -> [Option<Message>; 2] {
        match *self {
            Self::Protocol(message) => [Some(message), None],
            Self::PromiseWithPing(promise, ping) => {
                [Some(Message::Promise(promise)), Some(Message::Ping(ping))]
            }
            Self::Account(_) | Self::Question(_) | Self::Denial(_) => [None, None],
        }
    }
}

impl From<Message> for Content {
    fn from(message: Message) -> Self {
        Self::Protocol(message)
    }
}

impl From<Account> for Content {
    fn from(account: Account) -> Self {
        Self::Account(account)
    }
}

/// Why a datagram is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// It is no frame of this version: other length, first bytes or version.
    #[error("NotAFrame")]
    NotAFrame,
    /// No key of the group made its tag.
    #[error("Forged")]
    Forged,
    /// A later version made it: its kind is not known, or what must be zero is not.
    #[error("Unknown")]
    Unknown,
    /// It is for another group or receiver, or from nobody of this group.
    #[error("Misdirected")]
    Misdirected,
}

impl Frame {
    /// The bytes on the wire.
    pub fn seal(&self, keys: &KeyRing) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        let (kind, words) = words(&self.content);
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = kind;
        for (index, id) in [self.group, self.from.0, self.to.0].into_iter().enumerate() {
            bytes[GROUP_AT + 16 * index..][..16].copy_from_slice(&id.to_be_bytes());
        }
        for (index, word) in words.into_iter().enumerate() {
            bytes[BODY_AT + 8 * index..][..8].copy_from_slice(&word.to_be_bytes());
        }
        let tag = keys.tag(DOMAIN, &bytes[..SIGNED_BYTES]);
        bytes[SIGNED_BYTES..].copy_from_slice(&tag);
        bytes
    }

    /// The Lease that a datagram claims to be about, which proves nothing. `None`: it is no frame.
    pub fn group_of(bytes: &[u8]) -> Option<u128> {
        let bytes: &[u8; FRAME_BYTES] = bytes.try_into().ok()?;
        (bytes[..4] == MAGIC).then(|| u128::from_be_bytes(field(bytes, GROUP_AT)))
    }

    /// Reads a datagram. Any bytes of any length are fine; nothing is allocated.
    ///
    /// # Errors
    /// Every refusal but `Misdirected`, which is for the receiver to decide.
    pub fn open(bytes: &[u8], keys: &KeyRing) -> Result<Self, Refusal> {
        let bytes: &[u8; FRAME_BYTES] = bytes.try_into().map_err(|_| Refusal::NotAFrame)?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return Err(Refusal::NotAFrame);
        }
        let (signed, tag) = bytes.split_at(SIGNED_BYTES);
        if !keys.is_tagged(DOMAIN, signed, tag) {
            return Err(Refusal::Forged);
        }
        let id = |index: usize| u128::from_be_bytes(field(bytes, GROUP_AT + 16 * index));
        let words = std::array::from_fn(|index| u64::from_be_bytes(field(bytes, BODY_AT + 8 * index)));
        let content = content(bytes[5], words).filter(|_| bytes[6..8] == [0, 0]).ok_or(Refusal::Unknown)?;
        Ok(Self { group: id(0), from: AgentId(id(1)), to: AgentId(id(2)), content })
    }
}

fn field<const N: usize>(bytes: &[u8; FRAME_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the layout fits the frame")
}

fn words(content: &Content) -> (u8, [u64; BODY_WORDS]) {
    match content {
        Content::Protocol(message) => message_words(message),
        Content::PromiseWithPing(Promise { request }, ping) => {
            (7, [request.epoch.into(), request.sent.0, ping.incarnation.0, ping.sent.0])
        }
        Content::Account(Account { epoch, cause, detected_ago, fenced_ago }) => {
            (6, [(*epoch).into(), cause.number(), microseconds(*detected_ago), microseconds(*fenced_ago)])
        }
        Content::Question(Question { epoch, number }) => (8, [(*epoch).into(), *number, 0, 0]),
        Content::Denial(Question { epoch, number }) => (9, [(*epoch).into(), *number, 0, 0]),
    }
}

/// At most as many as 32 bits hold.
fn microseconds(span: Duration) -> u64 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX).into()
}

fn message_words(message: &Message) -> (u8, [u64; BODY_WORDS]) {
    match *message {
        Message::Ping(Ping { incarnation, sent }) => (1, [incarnation.0, sent.0, 0, 0]),
        Message::PromiseRequest(PromiseRequest { epoch, sent }) => (2, [epoch.into(), sent.0, 0, 0]),
        Message::Promise(Promise { request: PromiseRequest { epoch, sent } }) => {
            (3, [epoch.into(), sent.0, 0, 0])
        }
        Message::Handover(Handover { epoch, echo: Ping { incarnation, sent }, grace_left }) => {
            // Less grace than there is harms nobody.
            let grace_left = u64::try_from(grace_left.as_nanos()).unwrap_or(u64::MAX);
            (4, [epoch.into(), incarnation.0, sent.0, grace_left])
        }
        Message::Farewell(Ping { incarnation, sent }) => (5, [incarnation.0, sent.0, 0, 0]),
    }
}

fn content(kind: u8, words: [u64; BODY_WORDS]) -> Option<Content> {
    let request = |epoch: u64, sent| PromiseRequest { epoch: Epoch::from(epoch), sent: BootTime(sent) };
    let ping = |incarnation, sent| Ping { incarnation: Incarnation(incarnation), sent: BootTime(sent) };
    let span = |microseconds| Some(Duration::from_micros(u32::try_from(microseconds).ok()?.into()));
    let message = match (kind, words) {
        (1, [incarnation, sent, 0, 0]) => Message::Ping(ping(incarnation, sent)),
        (2, [epoch, sent, 0, 0]) => Message::PromiseRequest(request(epoch, sent)),
        (3, [epoch, sent, 0, 0]) => Message::Promise(Promise { request: request(epoch, sent) }),
        (4, [epoch, incarnation, sent, grace_left]) => Message::Handover(Handover {
            epoch: Epoch::from(epoch),
            echo: ping(incarnation, sent),
            grace_left: Duration::from_nanos(grace_left),
        }),
        (5, [incarnation, sent, 0, 0]) => Message::Farewell(ping(incarnation, sent)),
        (6, [epoch, cause, detected_ago, fenced_ago]) => {
            let (detected_ago, fenced_ago) = (span(detected_ago)?, span(fenced_ago)?);
            let (epoch, cause) = (Epoch::from(epoch), Cause::numbered(cause)?);
            return Some(Content::Account(Account { epoch, cause, detected_ago, fenced_ago }));
        }
        (7, [epoch, requested, incarnation, sent]) => {
            let promise = Promise { request: request(epoch, requested) };
            return Some(Content::PromiseWithPing(promise, ping(incarnation, sent)));
        }
        (8 | 9, [epoch, number, 0, 0]) => {
            let question = Question { epoch: Epoch::from(epoch), number };
            return Some(if kind == 8 { Content::Question(question) } else { Content::Denial(question) });
        }
        _ => return None,
    };
    Some(Content::Protocol(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(lines: &[u8]) -> KeyRing {
        let lines: Vec<_> = lines.iter().map(|byte| format!("{byte:02x}").repeat(32)).collect();
        KeyRing::parse(&lines.join("\n")).unwrap()
    }

    fn frames() -> impl Strategy<Value = Frame> {
        let words = |kind, [a, b, c, d]: [u64; 4]| match kind {
            4 | 7 => [a, b, c, d],
            6 => [a, b % 10, c >> 32, d >> 32],
            _ => [a, b, 0, 0],
        };
        let content = (1..=9_u8, any::<[u64; 4]>())
            .prop_map(move |(kind, numbers)| content(kind, words(kind, numbers)).unwrap());
        (any::<[u128; 3]>(), content).prop_map(|([group, from, to], content)| Frame {
            group,
            from: AgentId(from),
            to: AgentId(to),
            content,
        })
    }

    proptest! {
        #[test]
        fn a_frame_arrives_as_it_was_sent(frame in frames()) {
            prop_assert_eq!(Frame::group_of(&frame.seal(&keys(&[1]))), Some(frame.group));
            prop_assert_eq!(Frame::open(&frame.seal(&keys(&[1])), &keys(&[1])), Ok(frame));
        }

        #[test]
        fn any_flipped_bit_is_refused(frame in frames(), bit in 0..8 * FRAME_BYTES) {
            let mut bytes = frame.seal(&keys(&[1]));
            bytes[bit / 8] ^= 1 << (bit % 8);
            let refusal = if bit < 40 { Refusal::NotAFrame } else { Refusal::Forged };
            prop_assert_eq!(Frame::open(&bytes, &keys(&[1, 2])), Err(refusal));
        }

        #[test]
        fn any_other_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Frame::open(&bytes, &keys(&[1, 2])).is_err());
        }

        #[test]
        fn cut_and_extended_frames_are_refused(frame in frames(), length in 0..FRAME_BYTES) {
            let mut bytes = frame.seal(&keys(&[1])).to_vec();
            prop_assert_eq!(Frame::open(&bytes[..length], &keys(&[1])), Err(Refusal::NotAFrame));
            bytes.push(0);
            prop_assert_eq!(Frame::open(&bytes, &keys(&[1])), Err(Refusal::NotAFrame));
        }
    }

    #[test]
    fn keys_change_without_a_refused_frame() {
        let message = Message::Ping(Ping { incarnation: Incarnation(3), sent: BootTime(4) });
        let frame = Frame { group: 5, from: AgentId(6), to: AgentId(7), content: message.into() };
        let stages: [&[u8]; 4] = [&[1], &[1, 2], &[2, 1], &[2]];
        for pair in stages.windows(2) {
            for (sender, receiver) in [(pair[0], pair[1]), (pair[1], pair[0])] {
                assert_eq!(Frame::open(&frame.seal(&keys(sender)), &keys(receiver)), Ok(frame));
            }
        }
        assert_eq!(Frame::open(&frame.seal(&keys(&[1])), &keys(&[2])), Err(Refusal::Forged));
    }

    #[test]
    fn each_bit_counts() {
        let message = Message::Promise(Promise {
            request: PromiseRequest { epoch: Epoch::default(), sent: BootTime(4) },
        });
        let sealed =
            Frame { group: 5, from: AgentId(6), to: AgentId(7), content: message.into() }.seal(&keys(&[1]));
        for bit in 0..8 * FRAME_BYTES {
            let mut bytes = sealed;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::open(&bytes, &keys(&[1])).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_genuine_frame_of_a_later_version_is_refused() {
        let message = Message::Ping(Ping { incarnation: Incarnation(3), sent: BootTime(4) });
        let frame = Frame { group: 5, from: AgentId(6), to: AgentId(7), content: message.into() };
        for (at, value) in [(5, 10), (7, 1), (87, 1)] {
            let mut bytes = frame.seal(&keys(&[1]));
            bytes[at] = value;
            let tag = keys(&[1]).tag(DOMAIN, &bytes[..SIGNED_BYTES]);
            bytes[SIGNED_BYTES..].copy_from_slice(&tag);
            assert_eq!(Frame::open(&bytes, &keys(&[1])), Err(Refusal::Unknown), "byte {at}");
        }
    }
}
