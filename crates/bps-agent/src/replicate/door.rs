//! Lets batches into the state directory only while the application does not run.

use std::io;
use std::sync::{Arc, PoisonError};

use bps_protocol::Epoch;
use bps_runtime::sync::{Mutex, MutexGuard, Notify};
use bps_wire::level::DirectoryId;

/// The door of one state directory. Clones are the same door.
#[derive(Clone, Debug, Default)]
pub struct Door(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    inside: Inside,
    /// The lowest epoch that is let in.
    least: Epoch,
    /// The directory that the last batch came from.
    giver: Option<DirectoryId>,
    /// A batch was not carried out as a whole, and none was after it.
    is_torn: bool,
}

/// Who is inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Nobody,
    Somebody,
    /// Somebody who takes too long.
    Distrusted,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Whole,
    /// Nothing of it that matters.
    Nothing,
    Torn,
}

/// The right to carry out one batch; the door is not shut before it is given back. Unless it says how the batch ended, that
/// counts as torn.
#[derive(Debug)]
pub struct Pass {
    door: Arc<Shared>,
    outcome: Outcome,
}

impl Door {
    /// Lets in whoever acts with this epoch or a later one.
    pub fn open(&self, least: Epoch) {
        let mut state = self.0.lock();
        (state.is_open, state.least) = (true, state.least.max(least));
    }

    /// Closed, and as if nobody had come yet: another Lease has epochs of its own. Who is inside stays, and what a batch left
    /// half done is so for every Lease.
    pub fn forget(&self) {
        let mut state = self.0.lock();
        (state.is_open, state.least, state.giver) = (false, Epoch::default(), None);
    }

    /// Lets nobody in from now on; somebody may be inside still.
    pub fn close(&self) {
        self.0.lock().is_open = false;
    }

    /// Whether it is closed, and nobody is inside.
    pub fn is_shut(&self) -> bool {
        let state = self.0.lock();
        !state.is_open && state.inside == Inside::Nobody
    }

    /// Whether nobody is inside, and what is there is whole.
    pub fn is_in_order(&self) -> bool {
        let state = self.0.lock();
        state.inside == Inside::Nobody && !state.is_torn
    }

    /// Waits until it is closed and nobody is inside. May be dropped and called again.
    pub async fn shut(&self) {
        loop {
            let changed = self.0.changed.notified();
            if self.is_shut() {
                return;
            }
            changed.await;
        }
    }

    /// Whether a batch of this epoch would be let in now.
    pub fn admits(&self, epoch: Epoch) -> bool {
        let state = self.0.lock();
        state.is_open && state.least <= epoch
    }

    /// Nobody counts on what is inside before whoever is there has left.
    pub fn distrust(&self) {
        let mut state = self.0.lock();
        if state.inside == Inside::Somebody {
            state.inside = Inside::Distrusted;
        }
    }

    /// Whether somebody has been inside for too long.
    pub fn is_distrusted(&self) -> bool {
        self.0.lock().inside == Inside::Distrusted
    }

    /// Whether a batch was begun and not carried out as a whole, and none was carried out since.
    pub fn is_torn(&self) -> bool {
        self.0.lock().is_torn
    }

    /// The directory that the last batch came from.
    pub fn giver(&self) -> Option<DirectoryId> {
        self.0.lock().giver
    }

    /// Lets one batch in.
    ///
    /// # Errors
    /// The door is closed, somebody is inside, or a later epoch has been let in.
    pub fn enter(&self, epoch: Epoch, giver: DirectoryId) -> io::Result<Pass> {
        let mut state = self.0.lock();
        if !state.is_open || state.inside != Inside::Nobody || epoch < state.least {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        (state.inside, state.least, state.giver) = (Inside::Somebody, epoch, Some(giver));
        Ok(Pass { door: self.0.clone(), outcome: Outcome::Torn })
    }
}

impl Pass {
    /// The batch was carried out as a whole.
    pub fn done(mut self) {
        self.outcome = Outcome::Whole;
    }

    /// Nothing of the batch that matters was carried out; what an earlier one left half done still is.
    pub fn nothing_done(mut self) {
        self.outcome = Outcome::Nothing;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is a plain assignment, so that what a panic left is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.door.lock();
        state.inside = Inside::Nobody;
        state.is_torn = match self.outcome {
            Outcome::Whole => false,
            Outcome::Nothing => state.is_torn,
            Outcome::Torn => true,
        };
        drop(state);
        self.door.changed.notify_waiters();
    }
}
