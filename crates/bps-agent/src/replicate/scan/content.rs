//! Reads files, and makes hashes of what is in them.

use std::io::{self, Read as _, SeekFrom};

use sha2::{Digest as _, Sha256};

use super::{Growth, HASH_BYTES, Known};

/// How much of a file is read at a time. Unit: bytes.
const READ_BYTES: usize = 64 * 1024;

/// Length and hash of a file up to a length that it had before, and how it has grown if it begins with what was known.
///
/// It has only grown if all of it was there at one moment: what comes after the part that was known was the same before that
/// was read, and after it. Else something may have been written over behind the reader's back, and then appended to.
pub(super) fn hash(
    file: &mut (impl io::Read + io::Seek),
    until: u64,
    before: Option<&Known>,
) -> io::Result<(u64, [u8; HASH_BYTES], Option<Growth>)> {
    let mut state = Sha256::new();
    let Some(known) = before.filter(|known| known.size < until) else {
        let size = absorb(file.take(until), |bytes| state.update(bytes))?;
        return Ok((size, state.finalize().into(), None));
    };
    let (mut tail, mut tail_again) = (Sha256::new(), Sha256::new());
    file.seek(SeekFrom::Start(known.size))?;
    absorb(file.take(until - known.size), |bytes| tail.update(bytes))?;
    file.rewind()?;
    let begin = absorb(file.take(known.size), |bytes| state.update(bytes))?;
    let grown = Growth { size: begin, hash: state.clone().finalize().into(), state: state.clone() };
    let rest = absorb(file.take(until - known.size), |bytes| {
        state.update(bytes);
        tail_again.update(bytes);
    })?;
    let has_grown = (begin, grown.hash) == (known.size, known.hash)
        && rest > 0
        && tail.finalize() == tail_again.finalize();
    Ok((begin + rest, state.finalize().into(), has_grown.then_some(grown)))
}

/// The first bytes of a file, from where it stands; `None` if it has fewer.
///
/// # Errors
/// It cannot be read.
pub fn prefix(file: &mut impl io::Read, size: u64) -> io::Result<Option<Growth>> {
    let mut state = Sha256::new();
    let read = absorb(file.take(size), |bytes| state.update(bytes))?;
    let hash = state.clone().finalize().into();
    Ok((read == size).then_some(Growth { size, hash, state }))
}

/// Reads to the end; returns how many bytes that were.
fn absorb(mut from: impl io::Read, mut take: impl FnMut(&[u8])) -> io::Result<u64> {
    let (mut buffer, mut all) = (vec![0; READ_BYTES], 0);
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(all);
        }
        take(&buffer[..read]);
        all += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read, Seek};
    use std::time::Duration;

    use super::super::fingerprint::Fingerprint;
    use super::*;

    /// A file that is another one once somebody goes back in it.
    struct Changing(Cursor<&'static str>, &'static str);

    impl Read for Changing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Seek for Changing {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            if to == SeekFrom::Start(0) {
                self.0 = Cursor::new(self.1);
            }
            self.0.seek(to)
        }
    }

    fn known(content: &str) -> Known {
        let fingerprint = Fingerprint { device: 1, inode: 1, size: 0, modified: (0, 0), changed: (0, 0) };
        let (size, hash) = (content.len() as u64, Sha256::digest(content).into());
        Known { fingerprint, same_since: Duration::ZERO, is_settled: false, is_past: false, size, hash }
    }

    #[test]
    fn a_file_has_only_grown_if_all_of_it_was_there_at_one_moment() {
        let table = [
            (["one two", "one two"], "one two", true),
            // More is appended meanwhile, which is for the next look.
            (["one two", "one two more"], "one two", true),
            // Something is written over, and then what was appended is other than before.
            (["one   ", "One two"], "One tw", false),
            (["one   ", "one two"], "one tw", false),
            (["One two", "One two"], "One two", false),
            // It has become shorter.
            (["one two", "one"], "one", false),
            (["one two", "o"], "o", false),
        ];
        for ([first, then], read, expected) in table {
            let (mut file, until) = (Changing(Cursor::new(first), then), first.len() as u64);
            let (size, hash, growth) = hash(&mut file, until, Some(&known("one"))).unwrap();
            let digest: [u8; HASH_BYTES] = Sha256::digest(read).into();
            assert_eq!((size, hash), (read.len() as u64, digest), "{first:?} {then:?}");
            assert_eq!(growth.map(|growth| growth.size), expected.then_some(3), "{first:?} {then:?}");
        }
        let whole = hash(&mut Cursor::new("one"), 3, Some(&known("one"))).unwrap();
        assert!(whole.0 == 3 && whole.2.is_none(), "it is what it was");
    }
}
