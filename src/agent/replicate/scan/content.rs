//! Reads files, and makes hashes of what is in them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use sha2::{Digest as _, Sha256};

use super::{Growth, HASH_BYTES, Known};

/// How much of a file is read at a time. Unit: bytes.
const READ_BYTES: usize = 64 * 1024;

/// Length and hash of a file, and how it has grown if it begins with what was known.
pub(super) fn hash(
    file: &mut File,
    before: Option<&Known>,
) -> io::Result<(u64, [u8; HASH_BYTES], Option<Growth>)> {
    let (mut state, mut size, mut growth) = (Sha256::new(), 0, None);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let until = before.map(|known| known.size - size.min(known.size)).filter(|left| *left > 0);
        let most =
            until.and_then(|left| usize::try_from(left).ok()).map_or(READ_BYTES, |left| left.min(READ_BYTES));
        let read = file.read(&mut buffer[..most])?;
        if read == 0 {
            break;
        }
        state.update(&buffer[..read]);
        size += read as u64;
        if let Some(known) = before.filter(|known| known.size == size) {
            let hash: [u8; HASH_BYTES] = state.clone().finalize().into();
            growth = (hash == known.hash).then(|| Growth { size, hash, state: state.clone() });
        }
    }
    Ok((size, state.finalize().into(), growth.filter(|growth| growth.size < size)))
}

/// The hash of a file up to a length, from where it is known on.
pub(super) fn hash_of(
    mut file: File,
    (from, until): (u64, u64),
    mut state: Sha256,
) -> io::Result<[u8; HASH_BYTES]> {
    file.seek(SeekFrom::Start(from))?;
    let mut tail = file.take(until.saturating_sub(from));
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = tail.read(&mut buffer)?;
        if read == 0 {
            return Ok(state.finalize().into());
        }
        state.update(&buffer[..read]);
    }
}
