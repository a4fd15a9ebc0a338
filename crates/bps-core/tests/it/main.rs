//! Decisions from their outside: scenario files, convergence, properties.
//!
//! | file | what it says |
//! |---|---|
//! | `scenarios` | one situation, one plan: the files of `tests/scenarios` |
//! | `pair_scenarios` | the same for groups: the files of `tests/scenarios/pairs` |
//! | `convergence`, `paired_sets` | from any situation to the wish, nothing precious lost on the way |
//! | `planted` | faults of the past are caught by an oracle each |
//! | `forecasts` | what becomes of a set is told from any situation |
//! | `properties` | every step is in the table of transitions, status settles |
//! | `situation`, `pair_situation`, `cluster`, `world`, `oracles`, `random` | what they are told with |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod convergence;
mod forecasts;
mod oracles;
mod pair_scenarios;
mod pair_situation;
mod paired_sets;
mod planted;
mod properties;
mod random;
mod scenarios;
mod situation;
mod world;

use bps_core::{model, testing as given};
