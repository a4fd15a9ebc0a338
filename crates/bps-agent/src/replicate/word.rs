//! What is said about a state directory, as bytes: any bytes are read as a word or refused.
//!
//! ```text
//! first byte, then fields; all numbers big endian, a path is its length in 2 bytes and its bytes
//!   1 hello       group 16, sender 16, receiver 16, number of the directory 16
//!   2 challenge   number of the directory 16
//!   3 attach
//!   4 folder      path, mode 2                    5 file     path, mode 2, size 8, hash 32
//!   6 that is all
//!   7 remove      path                            8 make folder  path, mode 2
//!   9 set mode    path, mode 2                   10 write    path, mode 2
//!  11 append      path, size so far 8            12 piece    bytes, to the end
//!  13 commit      sequence 8                     14 acknowledge  sequence 8
//!  15 abandon                                    16 busy
//!  17 refuse      reason 1
//! ```
//!
//! Both sides refuse a word that they do not know, and end the connection. An agent of an earlier release does not know
//! `refuse`. It is the last word of a connection, so that release ends the connection as well, and logs no reason.

use bps_protocol::AgentId;
use bps_wire::level::DirectoryId;

use super::blockage::StateRefusal;
use super::image::{Entry, HASH_BYTES, PATH_MAX_BYTES, StatePath};

/// Longest piece of a file. Unit: bytes.
pub const PIECE_MAX_BYTES: usize = 128 * 1024;

/// Longest word. Unit: bytes.
pub const WORD_MAX_BYTES: usize = PIECE_MAX_BYTES + PATH_MAX_BYTES + 64;

/// Something that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// First word of who has the state.
    Hello {
        /// Uid of the Lease.
        group: u128,
        /// Who has the state.
        from: AgentId,
        /// Who shall have it, too.
        to: AgentId,
        /// The sender's directory.
        directory: DirectoryId,
    },
    /// The answer to it.
    Challenge {
        /// The answering agent's directory.
        directory: DirectoryId,
    },
    /// Its sender has seen the challenge.
    Attach,
    /// What the standby has already.
    Has(StatePath, Entry),
    /// The standby has nothing else.
    All,
    /// Part of a batch, see `image::Change`.
    Remove(StatePath),
    /// Part of a batch.
    MakeFolder(StatePath, u16),
    /// Part of a batch.
    SetMode(StatePath, u16),
    /// Part of a batch: the content follows in pieces.
    Write(StatePath, u16),
    /// Part of a batch: what comes after these bytes follows in pieces.
    Append(StatePath, u64),
    /// Content.
    Piece(Vec<u8>),
    /// The batch is complete; it is carried out as a whole.
    Commit(u64),
    /// It has been carried out and is on disk.
    Acknowledge(u64),
    /// Nothing of the batch is to be carried out.
    Abandon,
    /// Its sender works at what the other side waits for.
    Busy,
    /// The standby takes nothing now, and ends the connection.
    Refuse(StateRefusal),
}

/// How much of a hello names the Lease. Unit: bytes.
pub const HELLO_GROUP_BYTES: usize = 1 + 16;

/// The Lease that the beginning of a hello names; `None`: it is none.
pub fn hello_group(bytes: &[u8]) -> Option<u128> {
    let (kind, rest) = bytes.split_first()?;
    Fields(rest).u128().filter(|_| *kind == 1)
}

impl Word {
    /// The bytes on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let with = |kind: u8, path: &StatePath, rest: &[u8]| {
            let path = path.as_bytes();
            let length = u16::try_from(path.len()).unwrap_or(u16::MAX).to_be_bytes();
            [&[kind], &length[..], path, rest].concat()
        };
        match self {
            Self::Hello { group, from, to, directory } => {
                let numbers = [*group, from.0, to.0, directory.0].map(u128::to_be_bytes);
                [&[1], numbers.as_flattened()].concat()
            }
            Self::Challenge { directory } => [&[2], &directory.0.to_be_bytes()[..]].concat(),
            Self::Attach => vec![3],
            Self::Has(path, Entry::Folder { mode }) => with(4, path, &mode.to_be_bytes()),
            Self::Has(path, Entry::File { mode, size, hash }) => {
                with(5, path, &[&mode.to_be_bytes()[..], &size.to_be_bytes(), hash].concat())
            }
            Self::All => vec![6],
            Self::Remove(path) => with(7, path, &[]),
            Self::MakeFolder(path, mode) => with(8, path, &mode.to_be_bytes()),
            Self::SetMode(path, mode) => with(9, path, &mode.to_be_bytes()),
            Self::Write(path, mode) => with(10, path, &mode.to_be_bytes()),
            Self::Append(path, size) => with(11, path, &size.to_be_bytes()),
            Self::Piece(bytes) => [&[12], &bytes[..]].concat(),
            Self::Commit(sequence) => [&[13], &sequence.to_be_bytes()[..]].concat(),
            Self::Acknowledge(sequence) => [&[14], &sequence.to_be_bytes()[..]].concat(),
            Self::Abandon => vec![15],
            Self::Busy => vec![16],
            Self::Refuse(refusal) => vec![17, refusal.code()],
        }
    }

    /// Reads a word; `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let mut fields = Fields(rest);
        let word = match kind {
            1 => Self::Hello {
                group: fields.u128()?,
                from: AgentId(fields.u128()?),
                to: AgentId(fields.u128()?),
                directory: DirectoryId(fields.u128()?),
            },
            2 => Self::Challenge { directory: DirectoryId(fields.u128()?) },
            3 => Self::Attach,
            4 => Self::Has(fields.path()?, Entry::Folder { mode: fields.mode()? }),
            5 => {
                let path = fields.path()?;
                let (mode, size, hash) = (fields.mode()?, fields.u64()?, fields.take::<HASH_BYTES>()?);
                Self::Has(path, Entry::File { mode, size, hash })
            }
            6 => Self::All,
            7 => Self::Remove(fields.path()?),
            8 => Self::MakeFolder(fields.path()?, fields.mode()?),
            9 => Self::SetMode(fields.path()?, fields.mode()?),
            10 => Self::Write(fields.path()?, fields.mode()?),
            11 => Self::Append(fields.path()?, fields.u64()?),
            12 => {
                let bytes = std::mem::take(&mut fields.0);
                (!bytes.is_empty() && bytes.len() <= PIECE_MAX_BYTES)
                    .then(|| Self::Piece(bytes.to_owned()))?
            }
            13 => Self::Commit(fields.u64()?),
            14 => Self::Acknowledge(fields.u64()?),
            15 => Self::Abandon,
            16 => Self::Busy,
            17 => Self::Refuse(StateRefusal::of_code(u8::from_be_bytes(fields.take()?))?),
            _ => return None,
        };
        fields.0.is_empty().then_some(word)
    }
}

/// What is left of a word.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_be_bytes)
    }

    /// Permission bits, and no others.
    fn mode(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes).filter(|mode| *mode <= 0o7777)
    }

    fn path(&mut self) -> Option<StatePath> {
        let length = self.take().map(u16::from_be_bytes)?;
        let (path, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        StatePath::parse(path)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words() -> impl Strategy<Value = Word> {
        let path = "[a-z]{1,8}(/[a-z]{1,8}){0,3}".prop_map(|text| StatePath::parse(text.as_bytes()).unwrap());
        let numbers = (any::<[u128; 4]>(), any::<u64>(), 0..0o10000_u16, any::<[u8; HASH_BYTES]>());
        let bytes = proptest::collection::vec(any::<u8>(), 1..200);
        (1..=17_u8, path, numbers, bytes).prop_map(
            |(kind, path, ([a, b, c, d], number, mode, hash), bytes)| {
                let directory = DirectoryId(d);
                match kind {
                    1 => Word::Hello { group: a, from: AgentId(b), to: AgentId(c), directory },
                    2 => Word::Challenge { directory },
                    3 => Word::Attach,
                    4 => Word::Has(path, Entry::Folder { mode }),
                    5 => Word::Has(path, Entry::File { mode, size: number, hash }),
                    6 => Word::All,
                    7 => Word::Remove(path),
                    8 => Word::MakeFolder(path, mode),
                    9 => Word::SetMode(path, mode),
                    10 => Word::Write(path, mode),
                    11 => Word::Append(path, number),
                    12 => Word::Piece(bytes),
                    13 => Word::Commit(number),
                    14 => Word::Acknowledge(number),
                    15 => Word::Abandon,
                    16 => Word::Busy,
                    _ => Word::Refuse(StateRefusal::ALL[usize::from(mode) % StateRefusal::ALL.len()]),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_word_is_read_as_it_was_said(word in words()) {
            prop_assert_eq!(Word::decode(&word.encode()), Some(word));
        }

        #[test]
        fn any_bytes_are_a_word_of_the_same_bytes_or_none(kind in 0..19_u8, bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            let bytes = [&[kind], &bytes[..]].concat();
            if let Some(word) = Word::decode(&bytes) {
                prop_assert_eq!(word.encode(), bytes);
            }
        }
    }

    #[test]
    fn no_word_names_a_path_that_leads_out() {
        for path in ["../a", "/a", ".bps-ha/id", "a/../../b", ""] {
            let length = u16::try_from(path.len()).unwrap().to_be_bytes();
            let bytes = [&[7], &length[..], path.as_bytes()].concat();
            assert_eq!(Word::decode(&bytes), None, "{path:?}");
        }
    }

    #[test]
    fn a_piece_has_at_most_its_length() {
        let piece = |length: usize| Word::decode(&[&[12], &vec![0; length][..]].concat());
        assert!(piece(PIECE_MAX_BYTES).is_some());
        assert_eq!((piece(0), piece(PIECE_MAX_BYTES + 1)), (None, None));
    }
}
