//! Tickets, frames and answers of the cold gate: fixed layout, no allocation, every byte accounted for.
//!
//! Never reads a clock and never touches a socket; see `server` and `client`.
//!
//! ```text
//! frame, 192 bytes                                       answer, 6 bytes
//!   0  4  "BPSW"                                           0  4  "BPSA"
//!   4  1  version, 1                                       4  1  version, 1
//!   5  1  length of the whole frame, 192                   5  1  0 accepted, else the code of a refusal
//!   6  1  length of the Pod's uid
//!   7 48  the Pod's uid, padded with zeros
//!  55  1  length of the set's uid
//!  56 48  the set's uid, padded with zeros
//! 104  8  epoch, big endian
//! 112  8  expiry, Unix seconds, big endian
//! 120  8  id of the signing key
//! 128 64  Ed25519 signature over DOMAIN and bytes 0..128
//! ```

use super::signing::{KEY_ID_BYTES, KeyId, PublicKey, SIGNATURE_BYTES, SigningKey, read_hex, write_hex};
use super::uid::{UID_MAX_BYTES, Uid};

/// The protocol version that this code speaks.
pub const VERSION: u8 = 1;

/// Length of a frame. Unit: bytes. The length field is one byte, so no version exceeds 255.
pub const FRAME_BYTES: usize = 192;

/// Length of a frame as hexadecimal text, the form in which a Pod's annotation holds it. Unit: bytes.
pub const TICKET_TEXT_BYTES: usize = 2 * FRAME_BYTES;

/// Length of the part that tells whether this is a frame of this version. Unit: bytes.
pub const HEADER_BYTES: usize = 6;

/// Length of an answer. Unit: bytes.
pub const ANSWER_BYTES: usize = 6;

/// How long a new ticket is valid.
///
/// Unit: seconds. Long enough for a node whose clock runs 100 s ahead, short enough that a ticket taken from
/// the wire is soon worthless.
pub const TICKET_LIFETIME_SECONDS: u64 = 120;

/// How far ahead a gate lets an expiry lie.
///
/// Unit: seconds. A ticket's lifetime and a clock that runs 480 s behind; without this bound a wrong clock
/// in the operator could make tickets that are valid for ever.
pub const TICKET_MAX_AHEAD_SECONDS: u64 = 600;

/// Separates tickets from everything else that the same key might ever sign.
const DOMAIN: &[u8; 33] = b"backup.example.com/bps-wakeup/v1\0";

const FRAME_MAGIC: [u8; 4] = *b"BPSW";
const ANSWER_MAGIC: [u8; 4] = *b"BPSA";
const SIGNED_BYTES: usize = FRAME_BYTES - SIGNATURE_BYTES;
const FRAME_LENGTH: u8 = 192;
const ACCEPTED: u8 = 0;

/// Permission for one Pod to leave its gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The Pod that may start, and no other.
    pub pod: Uid,
    /// The set that the Pod belongs to.
    pub set: Uid,
    /// Which attempt this is, chosen by the operator; the gate only reports it.
    pub epoch: u64,
    /// When the ticket ends. Unit: seconds since 1970.
    pub expiry: u64,
    /// The key that signs.
    pub key: KeyId,
}

/// A ticket and its signature, as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedTicket {
    /// What is permitted.
    pub ticket: Ticket,
    /// Ed25519 signature by `ticket.key`.
    pub signature: [u8; SIGNATURE_BYTES],
}

/// Who a gate is and whom it trusts.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The gate's own Pod.
    pub pod: Uid,
    /// The set that the Pod belongs to.
    pub set: Uid,
    /// The keys that may sign.
    pub keys: &'a [PublicKey],
}

/// Why a gate refuses. The codes never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// The first bytes are not those of a frame.
    #[error("not a wake-up frame")]
    NotAFrame = 1,
    /// A frame of a version that this gate does not speak.
    #[error("unsupported version")]
    UnsupportedVersion = 2,
    /// The frame is shorter or longer than its version allows.
    #[error("wrong length")]
    WrongLength = 3,
    /// A uid in the frame is not one.
    #[error("malformed uid")]
    MalformedUid = 4,
    /// The ticket is for another Pod.
    #[error("ticket of another pod")]
    OtherPod = 5,
    /// The ticket is for another set.
    #[error("ticket of another set")]
    OtherSet = 6,
    /// The ticket has ended.
    #[error("ticket expired")]
    Expired = 7,
    /// The ticket ends too far in the future to be honest; one of the two clocks is wrong.
    #[error("expiry too far ahead")]
    TooFarAhead = 8,
    /// The signing key is not one that this Pod was created with.
    #[error("unknown key")]
    UnknownKey = 9,
    /// The signature is not the key's.
    #[error("bad signature")]
    BadSignature = 10,
    /// Too many connections, of one source or of all; try again.
    #[error("busy")]
    Busy = 11,
    /// The frame did not arrive in time.
    #[error("frame did not arrive in time")]
    TooSlow = 12,
    /// The ticket is valid, but the wake-up could not be written down: an answer of gates of former releases, which kept a mark
    /// in a volume of the Pod.
    #[error("could not record the wake-up")]
    NotRecorded = 13,
}

/// What a gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The Pod starts.
    Accepted,
    /// The Pod stays cold.
    Refused(Refusal),
}

/// Why bytes are not an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not the bytes of an answer of this version.
    #[error("not an answer of a gate")]
    NotAnAnswer,
    /// A refusal that this version does not know.
    #[error("unknown refusal code {0}")]
    UnknownCode(u8),
}

impl Ticket {
    /// Signs the ticket; its `key` becomes the id of the key that signs.
    pub fn sign(mut self, key: &SigningKey) -> SignedTicket {
        self.key = key.id();
        SignedTicket { ticket: self, signature: key.sign(&self.message()) }
    }

    /// Whether the ticket permits this gate to open, its signature aside.
    ///
    /// # Errors
    /// The first of `OtherPod`, `OtherSet`, `Expired`, `TooFarAhead`, `UnknownKey` that holds.
    pub fn permits(&self, gate: &Identity<'_>, now: u64) -> Result<(), Refusal> {
        self.names(gate)?;
        if now >= self.expiry {
            return Err(Refusal::Expired);
        }
        if self.expiry - now > TICKET_MAX_AHEAD_SECONDS {
            return Err(Refusal::TooFarAhead);
        }
        self.signer(gate).map(|_| ())
    }

    fn names(&self, gate: &Identity<'_>) -> Result<(), Refusal> {
        if self.pod != gate.pod {
            Err(Refusal::OtherPod)
        } else if self.set != gate.set {
            Err(Refusal::OtherSet)
        } else {
            Ok(())
        }
    }

    fn signer<'a>(&self, gate: &Identity<'a>) -> Result<&'a PublicKey, Refusal> {
        gate.keys.iter().find(|key| key.id() == self.key).ok_or(Refusal::UnknownKey)
    }

    fn signed_bytes(&self) -> [u8; SIGNED_BYTES] {
        let (pod_length, pod) = self.pod.to_wire();
        let (set_length, set) = self.set.to_wire();
        let mut bytes = [0; SIGNED_BYTES];
        let mut fields = Writer { rest: &mut bytes };
        fields.put(&FRAME_MAGIC);
        fields.put(&[VERSION, FRAME_LENGTH, pod_length]);
        fields.put(&pod);
        fields.put(&[set_length]);
        fields.put(&set);
        fields.put(&self.epoch.to_be_bytes());
        fields.put(&self.expiry.to_be_bytes());
        fields.put(&self.key.0);
        bytes
    }

    fn message(&self) -> [u8; DOMAIN.len() + SIGNED_BYTES] {
        let mut message = [0; DOMAIN.len() + SIGNED_BYTES];
        message[..DOMAIN.len()].copy_from_slice(DOMAIN);
        message[DOMAIN.len()..].copy_from_slice(&self.signed_bytes());
        message
    }
}

impl SignedTicket {
    /// The frame that carries the ticket.
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        frame[..SIGNED_BYTES].copy_from_slice(&self.ticket.signed_bytes());
        frame[SIGNED_BYTES..].copy_from_slice(&self.signature);
        frame
    }

    /// The frame as hexadecimal text, [`TICKET_TEXT_BYTES`] long.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(TICKET_TEXT_BYTES);
        write_hex(&mut text, &self.encode()).expect("a string takes all");
        text
    }

    /// Reads what [`Self::to_text`] wrote; `None` if it is something else.
    pub fn from_text(text: &[u8; TICKET_TEXT_BYTES]) -> Option<Self> {
        let mut frame = [0; FRAME_BYTES];
        read_hex(text, &mut frame)?;
        Self::decode(&frame).ok()
    }

    /// Reads a frame. Any bytes of any length are fine; nothing is allocated.
    ///
    /// # Errors
    /// `NotAFrame`, `UnsupportedVersion`, `WrongLength` or `MalformedUid`.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        check_header(bytes)?;
        let frame: &[u8; FRAME_BYTES] = bytes.try_into().map_err(|_| Refusal::WrongLength)?;
        let mut fields = Reader { rest: &frame[HEADER_BYTES..] };
        let mut uid = || {
            let [length] = fields.take::<1>();
            Uid::from_wire(length, fields.take::<UID_MAX_BYTES>()).map_err(|_| Refusal::MalformedUid)
        };
        let (pod, set) = (uid()?, uid()?);
        let epoch = u64::from_be_bytes(fields.take());
        let expiry = u64::from_be_bytes(fields.take());
        let key = KeyId(fields.take::<KEY_ID_BYTES>());
        let signature = fields.take();
        Ok(Self { ticket: Ticket { pod, set, epoch, expiry, key }, signature })
    }

    /// Whether the ticket opens this gate now (`now`: Unix seconds).
    ///
    /// # Errors
    /// What [`Ticket::permits`] refuses, then `BadSignature`.
    pub fn verify(&self, gate: &Identity<'_>, now: u64) -> Result<(), Refusal> {
        self.ticket.permits(gate, now)?;
        self.verify_signature(gate)
    }

    /// Whether the ticket once opened this gate: as [`SignedTicket::verify`], whatever the time is.
    ///
    /// # Errors
    /// `OtherPod`, `OtherSet`, `UnknownKey` or `BadSignature`.
    pub fn verify_at_any_time(&self, gate: &Identity<'_>) -> Result<(), Refusal> {
        self.ticket.names(gate)?;
        self.verify_signature(gate)
    }

    fn verify_signature(&self, gate: &Identity<'_>) -> Result<(), Refusal> {
        let key = self.ticket.signer(gate)?;
        if key.has_signed(&self.ticket.message(), &self.signature) {
            Ok(())
        } else {
            Err(Refusal::BadSignature)
        }
    }
}

/// Whether the bytes that are there so far can begin a frame of this version.
///
/// # Errors
/// `NotAFrame`, `UnsupportedVersion` or `WrongLength`, as soon as the bytes tell.
pub fn check_header(bytes: &[u8]) -> Result<(), Refusal> {
    let magic = &bytes[..bytes.len().min(FRAME_MAGIC.len())];
    if !FRAME_MAGIC.starts_with(magic) {
        return Err(Refusal::NotAFrame);
    }
    if bytes.get(4).is_some_and(|version| *version != VERSION) {
        return Err(Refusal::UnsupportedVersion);
    }
    if bytes.get(5).is_some_and(|length| *length != FRAME_LENGTH) || bytes.len() > FRAME_BYTES {
        return Err(Refusal::WrongLength);
    }
    Ok(())
}

impl Refusal {
    /// Every refusal, in the order of the codes.
    pub const ALL: [Self; 13] = [
        Self::NotAFrame,
        Self::UnsupportedVersion,
        Self::WrongLength,
        Self::MalformedUid,
        Self::OtherPod,
        Self::OtherSet,
        Self::Expired,
        Self::TooFarAhead,
        Self::UnknownKey,
        Self::BadSignature,
        Self::Busy,
        Self::TooSlow,
        Self::NotRecorded,
    ];

    /// The stable code, 1 to 255.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The word for logs, metrics and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAFrame => "NotAFrame",
            Self::UnsupportedVersion => "UnsupportedVersion",
            Self::WrongLength => "WrongLength",
            Self::MalformedUid => "MalformedUid",
            Self::OtherPod => "OtherPod",
            Self::OtherSet => "OtherSet",
            Self::Expired => "Expired",
            Self::TooFarAhead => "TooFarAhead",
            Self::UnknownKey => "UnknownKey",
            Self::BadSignature => "BadSignature",
            Self::Busy => "Busy",
            Self::TooSlow => "TooSlow",
            Self::NotRecorded => "NotRecorded",
        }
    }
}

impl Answer {
    /// The bytes of the answer.
    pub fn encode(self) -> [u8; ANSWER_BYTES] {
        let code = match self {
            Self::Accepted => ACCEPTED,
            Self::Refused(refusal) => refusal.code(),
        };
        let [a, b, c, d] = ANSWER_MAGIC;
        [a, b, c, d, VERSION, code]
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`AnswerError`]: other bytes, or a code of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, AnswerError> {
        let bytes: &[u8; ANSWER_BYTES] = bytes.try_into().map_err(|_| AnswerError::NotAnAnswer)?;
        let [magic @ .., version, code] = bytes;
        if *magic != ANSWER_MAGIC || *version != VERSION {
            return Err(AnswerError::NotAnAnswer);
        }
        if *code == ACCEPTED {
            return Ok(Self::Accepted);
        }
        let known = Refusal::ALL.into_iter().find(|refusal| refusal.code() == *code);
        known.map(Self::Refused).ok_or(AnswerError::UnknownCode(*code))
    }
}

/// Fills a fixed buffer from the front.
struct Writer<'a> {
    rest: &'a mut [u8],
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (field, rest) = std::mem::take(&mut self.rest)
            .split_at_mut_checked(bytes.len())
            .expect("the layout fits the frame");
        field.copy_from_slice(bytes);
        self.rest = rest;
    }
}

/// Takes fixed fields from the front of a frame whose length was checked.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.rest.split_first_chunk().expect("the layout fits the frame");
        self.rest = rest;
        *field
    }
}
