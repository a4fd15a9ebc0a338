//! The agent: PID 1 of an application's container, which starts, watches and ends the application.
//!
//! | file | what it does |
//! |---|---|
//! | [`launch`] | the last step before the application: ties its life to the agent's, then becomes it |
//! | [`tree`] | all processes below this one: start, signal, reap, kill, and the proof that none is left |
//! | [`last_lines`] | what an application wrote last that ends again and again |
//! | [`application`] | one run of the application, from its start until its last process has ended |
//! | [`init`] | what a good init does around it: passes signals on, reaps orphans, ends with the same code |
//! | [`settings`], [`identity`] | what an agent of a pair is told: which Lease, which keys, who it is |
//! | [`member`] | an agent of a pair from its start to its end: which Lease when, and what runs beside the loop |
//! | [`search`] | looks for the Lease that names the agent |
//! | [`pair`] | the loop: events to the protocol of [`bps_protocol`], its effects to everything below |
//! | [`passage`] | the turnstile of a Pod, by which one of its seats acts at most |
//! | [`enforcer`] | PID 1: ends the agent with its application if the agent cannot do so in time |
//! | [`tenant`] | the application of a pair: starts, stops in time, tells its end |
//! | [`hook`] | commands that are run when the role changes |
//! | [`world`] | what all this needs of the machine below it; a simulated one can take its place |
//! | [`clock`] | the protocol's clock, and an alarm on it |
//! | [`store`] | the tasks that read, write and watch the Lease; its form is in [`bps_wire::lease`] |
//! | `draw` | numbers that nothing else has |
//! | [`outages`] | one line in the log for each outage |
//! | [`key_file`] | the keys of the group, read again and again |
//! | [`exchange`] | one socket for all seats of a Pod: gives each datagram to the seat whose Lease it is about |
//! | [`peer`] | authenticated datagrams between agents; their form is in [`bps_wire::frame`] |
//! | [`callers`] | connections that only the partner has a reason to make |
//! | [`doorman`] | one TCP port for all seats of a Pod: each gets the connections about its Lease |
//! | [`lifeline`] | connections that end when the application has certainly ended |
//! | [`relay`] | serves whoever still comes to a Pod that does not act, from the one that does |
//! | [`sockets`] | those on which an application listens that is about to end |
//! | [`seats`] | where the seats of a Pod keep their state, and which one gets which Lease |
//! | [`replicate`] | keeps a directory of the active on the standby's disk, too |
//! | [`marks`] | files: whether it ran in this Pod before, and its role for probes |
//! | [`metrics`] | what an agent counts, and who may read it |
//! | [`publish`] | the address of the active in an EndpointSlice |
//!
//! Nothing here decides whether the application may run: [`bps_protocol`] does.

pub mod application;
pub mod callers;
mod causes;
pub mod check;
pub mod clock;
pub mod doorman;
mod draw;
pub mod enforcer;
pub mod exchange;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
pub mod hook;
pub mod identity;
pub mod init;
pub mod key_file;
pub mod last_lines;
pub mod launch;
pub mod lifeline;
pub mod marks;
pub mod member;
pub mod metrics;
pub mod outages;
pub mod pair;
pub mod passage;
pub mod peer;
pub mod publish;
pub mod relay;
pub mod replicate;
pub mod search;
pub mod seats;
pub mod settings;
mod sockets;
pub mod stop_signal;
pub mod store;
pub mod tenant;
pub mod tree;
pub mod world;
