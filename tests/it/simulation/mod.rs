//! The conversation with the API: a simulated API server behind the real kube client, with faults at every request.
//!
//! The server is [`bps_testkit::simulation`], which also says what is not simulated. Here is the experiment: `run` and
//! `explore`, with `monkey` as a person who meddles. An operator is plugged in as a `run::Scenario`; `toy` is an example.
//! `operator*` is the real one: how it is started, what people do to it, what must hold, and the tests. `conformance` holds
//! the server to what the real one says.
//!
//! `SIM_DEPTH` says how much of the real operator's faults is tried. Unset: a few single faults and pairs in each
//! scenario (a minute). A number: so many of them, and another sample for each number. `singles`: every single fault;
//! `pairs`: these, sampled pairs and sampled triples. `SIM_ONLY=<name>` takes one scenario, and `SIM_PLAN=<plan>` with it
//! replays a plan with its journal in `every_scenario_comes_to_rest_without_faults`.

#![allow(unreachable_pub, reason = "a test binary exports nothing")]

mod conformance;
mod exploration;
mod explore;
mod monkey;
mod operator;
mod operator_cases;
mod operator_oracle;
mod operator_oracle_tests;
mod operator_steps;
mod operator_tests;
mod run;
mod semantics_cluster;
mod semantics_reads;
mod semantics_writes;
mod toy;

use bps_testkit::conversations;
use bps_testkit::simulation::{
    actors, admission, api, fault, kinds, oracle, patch, physical, refusal, request, store, world,
};
