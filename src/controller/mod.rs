//! Runs reconciles: watches feed the cache and the queue, the dispatcher takes keys from the queue.
//!
//! | module | what it does |
//! |---|---|
//! | [`watch`] | watch events into the cache, keys into the queue |
//! | [`queue`] | which set next: failover events never wait behind a start-up storm |
//! | [`dispatch`] | as many reconciles at once as allowed, never two of one set |
//! | [`reconcile`] | observe, plan, check, apply, report |
//! | `creations` | how many Pods of a set are created at once, and when again after refusals |
//! | `refresh` | reads one set anew whose writes were stale again and again |
//! | `confirm` | a consistent list before anything that serves is deleted |
//! | `report` | status, events, logs and metrics of what was done |
//! | `unreported` | the last failover that no status tells of yet |
//! | `timing` | how long a look took until what users wait for was done |
//! | `transitions` | how long Pods take to become what their role promises |
//! | [`events`] | writes events behind everything else |
//! | `history` | former templates |
//! | `limits` | whether the admission policies limit this operator |
//! | `housekeeping` | keys, unconfirmed objects, the process's pulse |
//! | `groups` | looks at HA groups |
//! | [`operator`] | puts the tasks of the operator together |

mod confirm;
mod creations;
mod dispatch;
mod events;
mod groups;
mod history;
mod housekeeping;
mod limits;
mod operator;
#[cfg(not(feature = "shuttle"))]
mod queue;
#[cfg(feature = "shuttle")]
pub mod queue;
mod reconcile;
mod refresh;
mod report;
mod series;
mod steps;
#[cfg(test)]
mod tests;
mod timing;
mod transitions;
mod unreported;
mod watch;

pub use bps_observe::StormThreshold;
pub use operator::{Error, Settings, Surroundings, run, start};
