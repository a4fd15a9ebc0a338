//! Manifests in, manifests out; and what is there, as text.

mod manifests;
mod orders;
mod texts;
mod workloads;
