//! A simulated API server behind the real `kube::Client`, with a fault at every request that an experiment wants.
//!
//! `world`, `store` and `physical` are the truth; `api`, `request`, `serve`, `list` and `watch` are the server; `actors` are
//! everybody else in the cluster; `fault` and `oracle` are the experiment.
//!
//! Not simulated: dry run, discovery, `/scale`, eviction, deletecollection, generateName, managedFields and conflicts
//! between managers, strategic merges of lists, validation by schema or CEL. What is not simulated is refused.

pub mod actors;
pub mod admission;
pub mod api;
pub mod fault;
pub mod kinds;
pub mod list;
pub mod oracle;
pub mod patch;
pub mod physical;
pub mod refusal;
pub mod request;
pub mod selector;
pub mod serve;
pub mod store;
pub mod watch;
pub mod world;
