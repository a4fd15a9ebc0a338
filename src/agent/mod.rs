//! The agent: PID 1 of an application's container, which starts, watches and ends the application.
//!
//! | file | what it does |
//! |---|---|
//! | [`launch`] | the last step before the application: ties its life to the agent's, then becomes it |
//! | [`tree`] | all processes below this one: start, signal, reap, kill, and the proof that none is left |
//! | [`application`] | one run of the application, from its start until its last process has ended |
//! | [`init`] | what a good init does around it: passes signals on, reaps orphans, ends with the same code |
//!
//! Nothing here decides whether the application may run.

pub mod application;
pub mod init;
pub mod launch;
pub mod tree;
