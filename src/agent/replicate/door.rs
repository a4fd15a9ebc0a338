//! Lets batches into the state directory only while the application does not run.

use std::io;
use std::sync::{Arc, PoisonError};

use super::DirectoryId;
use crate::ha::Epoch;
use crate::runtime::sync::{Mutex, MutexGuard, Notify};

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
    is_used: bool,
    /// The lowest epoch that is let in.
    least: Epoch,
    /// The directory that the last batch came from.
    giver: Option<DirectoryId>,
    /// The last batch was not carried out as a whole.
    is_torn: bool,
}

/// The right to carry out one batch; the door is not shut before it is given back. Unless [`Pass::done`] gives it back, the
/// batch counts as torn.
#[derive(Debug)]
pub struct Pass {
    door: Arc<Shared>,
    is_done: bool,
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
        !state.is_open && !state.is_used
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

    /// Whether the last batch was begun and not carried out as a whole.
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
        if !state.is_open || state.is_used || epoch < state.least {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        (state.is_used, state.least, state.giver) = (true, epoch, Some(giver));
        Ok(Pass { door: self.0.clone(), is_done: false })
    }
}

impl Pass {
    /// The batch was carried out, or nothing of it that matters.
    pub fn done(mut self) {
        self.is_done = true;
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
        (state.is_used, state.is_torn) = (false, !self.is_done);
        drop(state);
        self.door.changed.notify_waiters();
    }
}
