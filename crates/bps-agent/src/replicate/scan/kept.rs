//! Files that stay open from a look until they are sent, whatever their names are then.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex};

use super::StatePath;

/// Most files that a look keeps open. 128: three looks may be alive, and a process has 1,024 files at least.
const KEPT_MAX: usize = 128;

/// Open files by the paths that they had. Clones share them; whoever takes one has it alone.
#[derive(Clone, Debug, Default)]
pub struct Kept(Arc<Mutex<BTreeMap<StatePath, File>>>);

impl Kept {
    /// The file that had this path.
    pub fn take(&self, path: &StatePath) -> Option<File> {
        self.0.lock().expect("no holder of this lock panics").remove(path)
    }

    /// Closes all of them.
    pub fn clear(&self) {
        self.0.lock().expect("no holder of this lock panics").clear();
    }

    pub(super) fn keep(&self, path: StatePath, file: File) {
        let mut files = self.0.lock().expect("no holder of this lock panics");
        if files.len() < KEPT_MAX || files.contains_key(&path) {
            files.insert(path, file);
        }
    }
}
