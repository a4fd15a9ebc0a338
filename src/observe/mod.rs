//! Reads watch caches into one consistent snapshot; the only place that reads raw Kubernetes fields.
