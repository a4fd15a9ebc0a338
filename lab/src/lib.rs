//! A local multi-node Kubernetes for tests, demos and measurements.

pub mod app;
pub mod hollow;
pub mod image;
