//! Decides what to do for one BackupPodSet: a pure function from a snapshot to a plan.
