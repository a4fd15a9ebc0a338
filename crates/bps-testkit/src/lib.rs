//! What tests of several crates share. Nothing of it is shipped.
//!
//! | module | what it holds |
//! |---|---|
//! | [`simulation`] | an API server behind the real `kube::Client`, with faults at every request |
//! | [`mock_api`] | an API server that a test answers for, request by request |
//! | [`conversations`] | the files of `tests/conversations`, to which the simulated and the real server are held |
//! | [`files`], [`example`] | manifests that tests read |

#![allow(missing_docs, reason = "names of tests' parts are their documentation")]
#![allow(clippy::unwrap_used, clippy::missing_errors_doc, reason = "a test fails by panicking")]

pub mod conversations;
pub mod example;
pub mod files;
pub mod mock_api;
pub mod simulation;
