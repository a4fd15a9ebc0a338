//! The agent from its outside: as the init of real processes, and its real code in a simulated network.
//!
//! | file | what it says |
//! |---|---|
//! | `init`, `stop`, `lifeline` | the agent with real processes; which ends of them are certified |
//! | `launch` | what happens just before an application with several seats starts |
//! | `output` | what an application wrote last that ends again and again |
//! | `state_hostile_bytes` | replicated state: bytes of strangers, names that lead out |
//! | `turmoil` | whole agents on simulated machines, with faults and clocks that drift |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod init;
mod launch;
mod lifeline;
mod output;
mod state_hostile_bytes;
mod stop;
mod turmoil;
