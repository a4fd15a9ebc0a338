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
}

/// The right to carry out one batch; the door is not shut before it is given back.
#[derive(Debug)]
pub struct Pass(Arc<Shared>);

impl Door {
    /// Lets in whoever acts with this epoch or a later one.
    pub fn open(&self, least: Epoch) {
        let mut state = self.0.lock();
        (state.is_open, state.least) = (true, state.least.max(least));
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
        Ok(Pass(self.0.clone()))
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
        self.0.lock().is_used = false;
        self.0.changed.notify_waiters();
    }
}
