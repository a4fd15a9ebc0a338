//! Runs reconciles: watches, queue, error policy.
