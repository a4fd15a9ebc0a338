//! What the files that are checked take from the runtime.

pub(crate) mod sync;

pub(crate) use backuppodset::runtime::backoff;
