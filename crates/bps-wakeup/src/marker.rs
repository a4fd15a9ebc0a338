//! Remembers in the Pod's own volume that the Pod was woken.
//!
//! The kubelet runs init containers again when it re-creates a Pod's sandbox; a Pod that was woken must then
//! pass. The marker is the accepted frame itself: it is checked like a ticket, so neither another Pod's marker
//! nor a made-up file opens a gate.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::place::place;
use super::protocol::{FRAME_BYTES, Identity, SignedTicket};

const MARKER: &str = "woken";

/// Whether this Pod has been woken before. A marker that is unreadable, cut short or of another Pod is none.
pub(super) fn is_woken(directory: &Path, gate: &Identity<'_>) -> bool {
    let mut bytes = [0; FRAME_BYTES];
    let is_read =
        File::open(directory.join(MARKER)).and_then(|mut marker| marker.read_exact(&mut bytes)).is_ok();
    is_read && SignedTicket::decode(&bytes).is_ok_and(|ticket| ticket.verify_at_any_time(gate).is_ok())
}

/// Writes the marker so that it is whole or absent, also after a power failure.
pub(super) fn record(directory: &Path, ticket: &SignedTicket) -> io::Result<()> {
    place(directory, MARKER, |marker| marker.write_all(&ticket.encode())).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::protocol::Ticket;
    use crate::signing::{KeyId, SigningKey};
    use crate::uid::Uid;

    fn uid(text: &str) -> Uid {
        Uid::parse(text).unwrap()
    }

    #[test]
    fn a_marker_opens_the_gate_of_its_own_pod_only() {
        let directory = tempfile::tempdir().unwrap();
        let key = SigningKey::from_seed(&[1; 32]);
        let keys = [key.public()];
        let own = Identity { pod: uid("pod"), set: uid("set"), keys: &keys };
        let ticket = Ticket { pod: uid("pod"), set: uid("set"), epoch: 1, expiry: 2, key: KeyId([0; 8]) };

        assert!(!is_woken(directory.path(), &own));
        fs::write(directory.path().join(".woken.aside"), "left by a killed gate").unwrap();
        record(directory.path(), &ticket.sign(&key)).unwrap();
        assert!(is_woken(directory.path(), &own));
        assert!(is_woken(directory.path(), &own), "reading does not use it up");
        assert!(!is_woken(directory.path(), &Identity { pod: uid("other"), ..own }));
        assert!(!is_woken(directory.path(), &Identity { set: uid("other"), ..own }));
        assert!(!is_woken(directory.path(), &Identity { keys: &[], ..own }));
        let names: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [MARKER]);
    }

    #[test]
    fn a_damaged_marker_opens_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let key = SigningKey::from_seed(&[1; 32]);
        let keys = [key.public()];
        let own = Identity { pod: uid("pod"), set: uid("set"), keys: &keys };
        let ticket = Ticket { pod: uid("pod"), set: uid("set"), epoch: 1, expiry: 2, key: KeyId([0; 8]) };
        let whole = ticket.sign(&key).encode();

        for cut in 0..whole.len() {
            fs::write(directory.path().join(MARKER), &whole[..cut]).unwrap();
            assert!(!is_woken(directory.path(), &own), "cut at {cut}");
        }
        fs::write(directory.path().join(MARKER), [b'1'; 4096]).unwrap();
        assert!(!is_woken(directory.path(), &own));
    }

    #[test]
    fn a_marker_that_cannot_be_written_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let key = SigningKey::from_seed(&[1; 32]);
        let ticket = Ticket { pod: uid("pod"), set: uid("set"), epoch: 1, expiry: 2, key: KeyId([0; 8]) };
        let missing = directory.path().join("missing");
        assert_eq!(record(&missing, &ticket.sign(&key)).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
