//! The conversation with the API: a simulated API server behind the real kube client, with faults at every request.
//!
//! `world`, `store` and `physical` are the truth; `api`, `request`, `serve`, `list` and `watch` are the server;
//! `actors` and `monkey` are everybody else; `fault`, `run`, `explore` and `oracle` are the experiment. An operator
//! is plugged in as a `run::Scenario`; `toy` is an example. `operator*` is the real one: how it is started, what people
//! do to it, what must hold, and the tests.
//!
//! `SIM_DEPTH` says how much of the real operator's faults is tried: unset, a sample of single faults in each scenario
//! (a minute); `singles`, all of them; `pairs`, all of them and sampled pairs and triples besides. `SIM_ONLY=<name>`
//! explores one scenario, `SIM_PLAN=<plan>` replays one plan of it with the journal.
//!
//! Not simulated: dry run, discovery, `/scale`, eviction, deletecollection, generateName, managedFields and conflicts
//! between managers, strategic merges of lists, validation by schema or CEL. What is not simulated is refused.

#![allow(unreachable_pub, reason = "a test binary exports nothing")]

mod actors;
mod admission;
mod api;
mod exploration;
mod explore;
mod fault;
mod kinds;
mod list;
mod monkey;
mod operator;
mod operator_cases;
mod operator_oracle;
mod operator_oracle_tests;
mod operator_steps;
mod operator_tests;
mod oracle;
mod patch;
mod physical;
mod refusal;
mod request;
mod run;
mod selector;
mod semantics_cluster;
mod semantics_reads;
mod semantics_writes;
mod serve;
mod store;
mod toy;
mod watch;
mod world;
