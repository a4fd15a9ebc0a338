//! Scores nodes for the stock kube-scheduler, which asks over HTTP on the loopback interface.
//!
//! | module | what it does |
//! |---|---|
//! | [`balance`] | the score of a node: Refined Balanced Resource Allocation |
//! | `ties` | which of several nodes with the same score |
//! | [`view`] | sums of what Pods request on each node |
//! | `answer` | a request of the scheduler to scores |
//! | [`metrics`] | counters |
//! | [`serve`] | the port for the scheduler |
//! | [`extender`] | puts the tasks together |
//!
//! `balance`, `ties`, `view` and `answer` wait for nothing and read no clock.

mod answer;
pub mod balance;
pub mod extender;
pub mod metrics;
pub mod serve;
mod ties;
pub mod view;
mod watch;

pub use answer::Scoring;
pub use balance::Deviation;
pub use extender::{Error, Settings, Started, run, start};
pub use view::BalancedResource;
