//! The ticket in an annotation of the Pod. The kubelet shows it as a file of a downward API volume.
//!
//! It opens a gate that the operator cannot reach. It opens the gate once more when the kubelet recreates the Pod's sandbox, because
//! the kubelet runs the init containers again then. The gate verifies it like a ticket from the network, except for its expiry: a
//! ticket of another Pod and a forged one open nothing.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use super::protocol::{Identity, SignedTicket, TICKET_TEXT_BYTES, Ticket};

/// A file that may hold a ticket.
#[derive(Debug)]
pub(super) struct Posted {
    path: PathBuf,
    /// Last text that opened nothing; its signature is not verified again.
    refused: Option<[u8; TICKET_TEXT_BYTES]>,
}

impl Posted {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, refused: None }
    }

    /// Returns the ticket that opens this gate, if the file holds one.
    pub(super) fn look(&mut self, gate: &Identity<'_>) -> Option<Ticket> {
        let text = self.read().ok()?;
        if self.refused == Some(text) {
            return None;
        }
        let ticket = SignedTicket::from_text(&text).filter(|ticket| ticket.verify_at_any_time(gate).is_ok());
        if ticket.is_none() {
            self.refused = Some(text);
        }
        ticket.map(|signed| signed.ticket)
    }

    /// Fails on a shorter file: without the annotation the file is empty.
    fn read(&self) -> io::Result<[u8; TICKET_TEXT_BYTES]> {
        let mut text = [0; TICKET_TEXT_BYTES];
        File::open(&self.path)?.read_exact(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::signing::{KeyId, SigningKey};
    use crate::uid::Uid;

    fn uid(text: &str) -> Uid {
        Uid::parse(text).unwrap()
    }

    fn posted(text: &[u8]) -> (tempfile::TempDir, Posted) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ticket");
        fs::write(&path, text).unwrap();
        (directory, Posted::new(path))
    }

    #[test]
    fn a_ticket_opens_the_gate_of_its_own_pod_only() {
        let key = SigningKey::from_seed(&[1; 32]);
        let keys = [key.public()];
        let own = Identity { pod: uid("pod"), set: uid("set"), keys: &keys };
        let ticket = Ticket { pod: uid("pod"), set: uid("set"), epoch: 1, expiry: 2, key: KeyId([0; 8]) };
        let text = ticket.sign(&key).to_text();

        let (_directory, mut file) = posted(text.as_bytes());
        assert_eq!(file.look(&own).map(|ticket| ticket.epoch), Some(1));
        assert!(file.look(&own).is_some(), "reading does not use it up");
        for other in [
            Identity { pod: uid("other"), ..own },
            Identity { set: uid("other"), ..own },
            Identity { keys: &[], ..own },
        ] {
            let (_directory, mut file) = posted(text.as_bytes());
            assert!(file.look(&other).is_none());
        }
    }

    #[test]
    fn what_is_no_ticket_opens_nothing_and_the_one_that_follows_does() {
        let key = SigningKey::from_seed(&[1; 32]);
        let keys = [key.public()];
        let own = Identity { pod: uid("pod"), set: uid("set"), keys: &keys };
        let ticket = Ticket { pod: uid("pod"), set: uid("set"), epoch: 1, expiry: 2, key: KeyId([0; 8]) };
        let text = ticket.sign(&key).to_text();

        let (directory, mut file) = posted(b"");
        assert!(file.look(&own).is_none());
        for cut in 0..text.len() {
            fs::write(directory.path().join("ticket"), &text[..cut]).unwrap();
            assert!(file.look(&own).is_none(), "cut at {cut}");
        }
        for wrong in [text.to_uppercase(), text.replace('0', "1"), "g".repeat(TICKET_TEXT_BYTES)] {
            fs::write(directory.path().join("ticket"), wrong).unwrap();
            assert!(file.look(&own).is_none());
            assert!(file.look(&own).is_none());
        }
        fs::write(directory.path().join("ticket"), text).unwrap();
        assert!(file.look(&own).is_some());
    }
}
