//! What happened in a run, in true time, and what must hold of it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// True time since the start of the run.
    pub(crate) at: Duration,
    /// Where.
    pub(crate) node: &'static str,
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// An application acts from now on, with this epoch.
    Acts(u64),
    /// The last process of the application that acted with this epoch has ended.
    Ended(u64),
    /// Anything else, for readers.
    Note(String),
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:>9.3} {:>3} ", self.at.as_secs_f64(), self.node)?;
        match &self.what {
            What::Acts(epoch) => write!(formatter, "acts with {}.{}", epoch >> 32, epoch & 0xffff_ffff),
            What::Ended(epoch) => write!(formatter, "ended {}.{}", epoch >> 32, epoch & 0xffff_ffff),
            What::Note(text) => formatter.write_str(text),
        }
    }
}

/// Everything that happened so far; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<Entry>>>);

impl Journal {
    pub(crate) fn write(&self, at: Duration, node: &'static str, what: What) {
        let mut entries = self.0.lock().expect("a panic under the lock fails the test anyway");
        entries.push(Entry { at, node, what });
    }

    pub(crate) fn note(&self, at: Duration, node: &'static str, text: impl Into<String>) {
        self.write(at, node, What::Note(text.into()));
    }

    /// In the order of time; hosts take turns in each millisecond, so that what they write is not.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = self.0.lock().expect("a panic under the lock fails the test anyway").clone();
        entries.sort_by_key(|entry| entry.at);
        entries
    }
}

/// A time in which an application could act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) node: &'static str,
    pub(crate) epoch: u64,
    pub(crate) from: Duration,
    /// `None`: to the end of the run.
    pub(crate) to: Option<Duration>,
}

/// The times in which applications could act, in the order of their beginning.
pub(crate) fn spans(entries: &[Entry]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for Entry { at, node, what } in entries {
        match what {
            What::Acts(epoch) => spans.push(Span { node, epoch: *epoch, from: *at, to: None }),
            What::Ended(epoch) => {
                let is_it = |span: &&mut Span| (span.node, span.epoch, span.to) == (*node, *epoch, None);
                let span = spans.iter_mut().rev().find(is_it).expect("it acted before it ended");
                span.to = Some(*at);
            }
            What::Note(_) => {}
        }
    }
    spans
}

/// Never two at the same time, and each with a higher epoch than all before it.
///
/// # Errors
/// The first two that break it.
pub(crate) fn check(spans: &[Span]) -> Result<(), String> {
    for (index, later) in spans.iter().enumerate() {
        for earlier in &spans[..index] {
            if earlier.to.is_none_or(|to| later.from < to) {
                return Err(format!("two act: {earlier:?} and {later:?}"));
            }
            if later.epoch <= earlier.epoch {
                return Err(format!("an epoch does not rise: {earlier:?} and {later:?}"));
            }
        }
    }
    Ok(())
}

/// Exactly one acts, and has since this time.
///
/// # Errors
/// Who acts instead.
pub(crate) fn check_settled(spans: &[Span], since: Duration) -> Result<(), String> {
    let lately: Vec<_> = spans.iter().filter(|span| span.to.is_none_or(|to| since < to)).collect();
    match lately[..] {
        [Span { from, to: None, .. }] if *from <= since => Ok(()),
        _ => Err(format!("not exactly one acts since {since:?}: {lately:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn span(node: &'static str, epoch: u64, from: u32, to: Option<u32>) -> Span {
        Span { node, epoch, from: from * SECOND, to: to.map(|to| to * SECOND) }
    }

    #[test]
    fn spans_are_read_and_an_overlap_a_reused_epoch_and_nobody_are_found() {
        let journal = Journal::default();
        journal.write(2 * SECOND, "b", What::Acts(2));
        journal.write(SECOND, "a", What::Acts(1));
        journal.write(2 * SECOND, "a", What::Ended(1));
        let good = [span("a", 1, 1, Some(2)), span("b", 2, 2, None)];
        assert_eq!(spans(&journal.entries()), good);
        assert_eq!((check(&good), check_settled(&good, 2 * SECOND)), (Ok(()), Ok(())));

        assert!(check(&[span("a", 1, 1, Some(3)), span("b", 2, 2, None)]).is_err());
        assert!(check(&[span("a", 1, 1, None), span("b", 2, 2, None)]).is_err());
        assert!(check(&[span("a", 1, 1, Some(2)), span("b", 1, 2, None)]).is_err());
        assert!(check_settled(&good, SECOND).is_err());
        assert!(check_settled(&good[..1], 2 * SECOND).is_err());
    }
}
