//! What decisions are made from: Pods, roles, the wish and the snapshot that joins them.
