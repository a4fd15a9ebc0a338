//! What one connection has sent so far, in a buffer of fixed size.
//!
//! Knows neither time nor limits; see `server`.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv6Addr};

use super::protocol::{FRAME_BYTES, Refusal, SignedTicket, check_header};

/// Room for a frame and for the one byte that shows that there is more than a frame.
const INBOX_BYTES: usize = FRAME_BYTES + 1;

/// An IPv6 host can use any address of its /64, so the /64 is one source.
const IPV6_SOURCE_MASK: u128 = !0 << 64;

/// The bytes of a frame as they come in.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: [u8; INBOX_BYTES],
    filled: usize,
}

/// What the bytes so far are worth.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// A frame has begun, or nothing has come yet.
    Incomplete,
    /// A whole frame that reads as a ticket.
    Complete(SignedTicket),
    /// Bytes that can never become a frame.
    Refused(Refusal),
    /// The other side left without a word, as a probe of the port does.
    Gone,
}

impl Inbox {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; INBOX_BYTES], filled: 0 }
    }

    /// Takes what is there without waiting; at most one call of `read` per byte of the inbox.
    pub(super) fn read_from(&mut self, source: &mut impl Read) -> Progress {
        while self.filled < INBOX_BYTES {
            match source.read(&mut self.bytes[self.filled..]) {
                Ok(0) => return self.at_end(),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.so_far(),
                // The call may be repeated; the next round of the poll does it.
                Err(error) if error.kind() == ErrorKind::Interrupted => return self.so_far(),
                Err(_) => return Progress::Gone,
            }
            if let Err(refusal) = check_header(&self.bytes[..self.filled]) {
                return Progress::Refused(refusal);
            }
        }
        Progress::Refused(Refusal::WrongLength)
    }

    fn so_far(&self) -> Progress {
        if self.filled < FRAME_BYTES {
            return Progress::Incomplete;
        }
        match SignedTicket::decode(&self.bytes[..self.filled]) {
            Ok(ticket) => Progress::Complete(ticket),
            Err(refusal) => Progress::Refused(refusal),
        }
    }

    fn at_end(&self) -> Progress {
        match self.so_far() {
            Progress::Incomplete if self.filled == 0 => Progress::Gone,
            Progress::Incomplete => Progress::Refused(Refusal::WrongLength),
            ended @ (Progress::Complete(_) | Progress::Refused(_) | Progress::Gone) => ended,
        }
    }
}

/// The address that limits are counted by.
pub(super) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & IPV6_SOURCE_MASK).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::protocol::Ticket;
    use crate::signing::{KeyId, SigningKey};
    use crate::uid::Uid;

    /// Hands out the given pieces, then blocks or ends.
    struct Pieces {
        pieces: VecDeque<Vec<u8>>,
        ends: bool,
    }

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            match self.pieces.pop_front() {
                Some(mut piece) => {
                    let rest = piece.split_off(piece.len().min(buffer.len()));
                    buffer[..piece.len()].copy_from_slice(&piece);
                    if !rest.is_empty() {
                        self.pieces.push_front(rest);
                    }
                    Ok(piece.len())
                }
                None if self.ends => Ok(0),
                None => Err(ErrorKind::WouldBlock.into()),
            }
        }
    }

    fn ticket() -> SignedTicket {
        let uid = |text| Uid::parse(text).unwrap();
        Ticket { pod: uid("p"), set: uid("s"), epoch: 1, expiry: 2, key: KeyId([0; 8]) }
            .sign(&SigningKey::from_seed(&[1; 32]))
    }

    fn progress(pieces: &[&[u8]], ends: bool) -> Progress {
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        Inbox::new().read_from(&mut Pieces { pieces, ends })
    }

    #[test]
    fn a_frame_in_any_two_pieces_is_complete() {
        let frame = ticket().encode();
        for cut in 1..FRAME_BYTES {
            let (front, back) = frame.split_at(cut);
            assert_eq!(progress(&[front], false), Progress::Incomplete);
            assert_eq!(progress(&[front], true), Progress::Refused(Refusal::WrongLength));
            assert_eq!(progress(&[front, back], false), Progress::Complete(ticket()));
            assert_eq!(progress(&[front, back], true), Progress::Complete(ticket()));
        }
    }

    #[test]
    fn a_byte_too_many_is_refused() {
        let frame = ticket().encode();
        assert_eq!(progress(&[&frame, b"x"], false), Progress::Refused(Refusal::WrongLength));
        assert_eq!(
            progress(&[&[frame.as_slice(), &[0; 9000]].concat()], false),
            Progress::Refused(Refusal::WrongLength)
        );
    }

    #[test]
    fn a_wrong_beginning_is_refused_at_its_first_wrong_byte() {
        assert_eq!(progress(&[b"G"], false), Progress::Refused(Refusal::NotAFrame));
        assert_eq!(progress(&[b"BPSW\x02"], false), Progress::Refused(Refusal::UnsupportedVersion));
        assert_eq!(progress(&[b"BPSW\x01\xff"], false), Progress::Refused(Refusal::WrongLength));
        assert_eq!(progress(&[b"BPSW\x01\xc0"], false), Progress::Incomplete);
    }

    #[test]
    fn a_probe_that_says_nothing_is_let_go() {
        assert_eq!(progress(&[], true), Progress::Gone);
        assert_eq!(progress(&[], false), Progress::Incomplete);
    }

    #[test]
    fn one_host_is_one_source() {
        let source = |text: &str| source(text.parse().unwrap()).to_string();
        assert_eq!(source("::ffff:198.18.0.7"), "198.18.0.7");
        assert_eq!(source("2001:db8:1:2:3:4:5:6"), source("2001:db8:1:2:ffff::1"));
        assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
    }
}
