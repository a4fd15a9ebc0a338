//! Writes the steps of a plan, one bounded request each, guarded by uid and resourceVersion.
