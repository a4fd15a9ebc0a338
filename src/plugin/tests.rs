//! Manifests in, manifests out; and reports as text.
