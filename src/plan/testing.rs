//! The builders of `tests/support`, for unit tests.

use crate::model;

#[path = "../../tests/support/given.rs"]
mod given;

pub(crate) use given::{desired, node, now, outdated, pod, seconds_ago, snapshot};
