//! Wire types of the BackupPodSet kind and every string the cluster sees.
