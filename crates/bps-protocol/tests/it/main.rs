//! Checks the failover protocol: the model checker takes the real rules of `src/ha` in every order, with every fault.
//!
//! The model has no rules of its own: `world` keeps the real agents, the Lease and what is in flight, `steps` calls the
//! real rules, `faults` breaks things. `mutations` tampers with what goes into a rule or comes out of it, to show that
//! each rule is needed and that the check sees it. `simulation` runs whole agents, with the policy, on a simulated
//! network with drifting clocks; `scripts` breaks it at random and measures it, and `trail` holds it to the model.

mod arena;
mod calm;
mod clock;
mod configurations;
mod faults;
mod lean;
mod leaving;
mod lone;
mod model;
mod mutations;
mod orders;
mod paths;
mod possible;
mod scripts;
mod seats;
mod simulation;
mod steps;
mod trail;
mod whole;
mod world;
