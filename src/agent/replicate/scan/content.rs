//! Reads files, and makes hashes of what is in them.

use std::fs::File;
use std::io::{self, Read as _};

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

/// The first bytes of a file, from where it stands; `None` if it has fewer.
///
/// # Errors
/// It cannot be read.
pub fn prefix(file: &mut File, size: u64) -> io::Result<Option<Growth>> {
    let mut state = Sha256::new();
    let read = absorb(&mut state, file.take(size))?;
    let hash = state.clone().finalize().into();
    Ok((read == size).then_some(Growth { size, hash, state }))
}

/// Reads to the end; returns how many bytes that were.
fn absorb(state: &mut Sha256, mut from: impl io::Read) -> io::Result<u64> {
    let (mut buffer, mut all) = (vec![0; READ_BYTES], 0);
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(all);
        }
        state.update(&buffer[..read]);
        all += read as u64;
    }
}
