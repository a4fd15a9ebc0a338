//! What claims about a cluster are held and judged by, as far as it needs no cluster.
//!
//! `lab/tests/cluster` holds the claims; `lab/tests/checkers.rs` shows that their judges see what they are there to see.
//!
//! | module | what it does |
//! |---|---|
//! | [`lanes`] | which claim may start beside those that are being held |
//! | [`ledger`] | which claims a complaint of the operator is blamed on |
//! | [`report`] | how long claims and lanes took |
//! | [`history`], [`endings`] | what clients and agents of a pair may have seen |

pub mod endings;
pub mod history;
pub mod lanes;
pub mod ledger;
pub mod report;
