//! What an agent may do: one file for each rule of `docs/handover-protocol.md`, with the rule's number.
//!
//! Every rule is a method of [`super::Agent`] that changes it only if the rule permits it. When a permitted step is
//! taken is not decided here but in `policy`; the model checker takes them in every order.

mod outcome;
mod r1_hold;
mod r2_renew;
mod r3_takeover;
mod r4_delegation;
mod r5_release;
mod r6_membership;
mod r7_restart;

pub use r6_membership::{EndEvidence, forced_replacement, nobody_acts, nobody_acts_after};
