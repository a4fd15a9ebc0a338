//! The real code of agents in turmoil: their loop, tenant, store, peers, search and publisher on simulated machines,
//! with delays, losses, partitions, restarts and clocks that run at different rates.
//!
//! | file | what it does |
//! |---|---|
//! | `machine` | a machine: its own clock, alarms that may be late, datagrams |
//! | `processes` | the processes of a machine: obedient and stubborn ones, what they leave behind, and when all have ended |
//! | `agent` | a Pod: an agent with its enforcer on a machine, put together as in `agent::member` |
//! | `simulated`, `server`, `wire` | the API server of `tests/it/simulation` behind turmoil's TCP |
//! | `script` | faults, drawn from a seed |
//! | `times` | short times, the same as in `crates/bps-protocol/tests/it` |
//! | `scene` | one run: breaks, mends, restarts what has ended |
//! | `record` | what happened in true time, and what must hold of it |
//! | `cases`, `mutations` | the tests, and the proof that they can fail |
//! | `departures` | both Pods are deleted, one soon after the other |
//! | `seats` | one Pod is the standby of two actives |
//! | `outages` | the API server is away for minutes, up to an hour |
//! | `overlap` | the same of Pods that make before they break: two act, where and as long as that is wanted |
//!
//! `TURMOIL_SEED=<number>` replays one seed in `whatever_happens_one_acts_at_most_and_afterwards_exactly_one` and prints
//! what happened; `TURMOIL_SEEDS=<count>` is the length of the long search.
//!
//! Not simulated: lines of lifelines (a certificate comes from the machine that knows), the relay, replicated state.

#![allow(unreachable_pub, reason = "a test binary exports nothing")]

mod agent;
mod cases;
mod departures;
mod machine;
mod mutations;
mod outages;
mod overlap;
mod processes;
mod record;
mod scene;
mod script;
mod seats;
mod server;
mod wire;

use bps_testkit::simulation::{api, fault, kinds, store, world};
