//! Shows from outside whether a look comes further: a disk that hangs lets no call return.

use std::io::{self, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls of looks that have returned. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Strides(Arc<AtomicU64>);

impl Strides {
    /// How many there were so far; a number that stays the same is a call that does not return.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn make(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A file of which each read counts.
pub(super) struct Striding<'a, Inner> {
    pub(super) inner: Inner,
    pub(super) strides: &'a Strides,
}

impl<Inner: io::Read> io::Read for Striding<'_, Inner> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.strides.make();
        Ok(read)
    }
}

impl<Inner: io::Seek> io::Seek for Striding<'_, Inner> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
