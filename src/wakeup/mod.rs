//! The cold gate: protocol, server and client that let a cold backup start.
