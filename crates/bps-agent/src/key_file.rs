//! The key file of an agent, read at its start and again while it runs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use bps_wire::key_ring::{self, KeyRing};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;
use zeroize::Zeroizing;

/// How often the file is read again. 10 s: the kubelet itself takes up to a minute to show a changed Secret.
const READ_EVERY: Duration = Duration::from_secs(10);

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("read the key file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The file has other text than keys.
    #[error(transparent)]
    Parse(key_ring::Error),
}

/// Reads the keys from a file, see [`KeyRing::parse`].
///
/// # Errors
/// See [`enum@Error`].
pub fn read(path: &Path) -> Result<KeyRing, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    KeyRing::parse(&Zeroizing::new(text)).map_err(Error::Parse)
}

/// Reads the file again and again, and keeps the keys that it had while the file is wrong.
///
/// # Errors
/// None: without new keys the old ones still protect what they protected.
pub async fn follow(
    file: PathBuf,
    keys: watch::Sender<KeyRing>,
    shutdown: Shutdown,
) -> Result<(), TaskError> {
    let mut is_wrong = false;
    loop {
        tokio::select! {
            // Nothing is worth reading once the process stops.
            biased;
            () = shutdown.requested() => return Ok(()),
            () = sleep(READ_EVERY) => {}
        }
        let path = file.clone();
        // A disk may be slow, and the agent's loop shares this thread.
        match tokio::task::spawn_blocking(move || read(&path)).await? {
            Ok(read) => {
                is_wrong = false;
                keys.send_replace(read);
            }
            Err(error) if !is_wrong => {
                is_wrong = true;
                warn!(error = &error as &dyn std::error::Error, "Kept the keys: could not read new ones");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn new_keys_are_taken_and_a_broken_file_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys");
        let (one, two) = ("0f".repeat(32), "a0".repeat(32));
        let (sender, mut keys) = watch::channel(KeyRing::parse(&one).unwrap());
        let shutdown = Shutdown::new();
        std::fs::write(&file, format!("{one}\n{two}")).unwrap();
        let followed = tokio::spawn(follow(file.clone(), sender, shutdown.clone()));
        keys.changed().await.unwrap();
        assert!(keys.borrow_and_update().has_next());

        std::fs::write(&file, "").unwrap();
        sleep(3 * READ_EVERY).await;
        assert!(!keys.has_changed().unwrap());
        shutdown.request();
        followed.await.unwrap().unwrap();
    }
}
