//! Builds the Kubernetes objects the operator writes, as pure functions of their inputs.
