//! What a claim prints, kept until it has ended: lines of claims that are held at the same time would not be told apart.

use std::cell::RefCell;

thread_local! {
    /// Each claim has a thread of its own.
    static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a line for the claim that is held on this thread.
pub(crate) fn note(line: String) {
    NOTES.with_borrow_mut(|notes| notes.push(line));
}

/// What was kept since this was called last.
pub(crate) fn take() -> Vec<String> {
    NOTES.take()
}
