//! The verbs about the project itself, as the command line has them; those about the cluster are in `main`.

pub(crate) mod bench;
pub(crate) mod programs;
pub(crate) mod project;
