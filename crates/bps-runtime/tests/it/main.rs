//! The runtime as a whole process.

mod signals;
