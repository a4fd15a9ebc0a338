//! Manifests in, manifests out; and what is there, as text.

mod drills;
mod manifests;
mod orders;
mod prospects;
mod scenes;
mod texts;
mod workloads;

use bps_core::manifests::Injection;

use super::arguments::Format;
use super::workload::WorkloadChoice;
use super::{Error, inject, printed};

/// Manifests after a change, without the warnings.
fn changed(
    text: &str,
    injection: Option<&Injection>,
    chosen: &[WorkloadChoice],
    format: Format,
) -> Result<String, Error> {
    inject::changed(text, injection, chosen, format).map(|changed| changed.manifests)
}

/// A standard output that fails in this way.
struct Failing(std::io::ErrorKind);

impl std::io::Write for Failing {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_cannot_be_printed_is_a_failure_unless_its_reader_went_away() {
    use std::io::ErrorKind::{BrokenPipe, StorageFull};
    assert!(matches!(printed("text", &mut Failing(StorageFull)), Err(Error::Print(_))));
    assert!(printed("text", &mut Failing(BrokenPipe)).is_ok());
    assert!(printed("text", &mut Vec::new()).is_ok());
}
