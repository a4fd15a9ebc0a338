//! Manifests in, manifests out; and what is there, as text.

mod fixtures;
mod manifests;
mod texts;
