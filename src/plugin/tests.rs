//! Manifests in, manifests out; and what is there, as text.

mod manifests;
mod texts;
