//! Computes the status of a BackupPodSet from what was seen, planned and done.
