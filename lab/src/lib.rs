//! A local multi-node Kubernetes for tests, demos and measurements.
