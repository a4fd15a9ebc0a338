//! Writes what a group needs: one bounded request each.
//!
//! Never decides: `bps_core::pairing` says what a step or an object needs. Writes of Leases, Services and slices are guarded by
//! the version that was read, and stale if they met another one. Labels of Pods are guarded by the uid. Keys and permissions
//! replace the text of any other writer.
//!
//! | module | what it does |
//! |---|---|
//! | [`steps`] | the steps of a plan: Leases, and labels of Pods |
//! | [`objects`] | Services, slices, keys and permissions |

mod objects;
mod steps;

use bps_core::pairing::StepError;
use futures::{StreamExt as _, stream};

use super::outcome::{is_namespace_ending, is_stale};

pub(crate) use objects::{apply, carry_out};
pub(crate) use steps::Hand;

/// Most writes of one group under way at once.
const WRITES_MAX: usize = 16;

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The step has no write.
    #[error(transparent)]
    Step(StepError),
    /// A body that is no object of its kind.
    #[error("build the object")]
    Build(#[source] serde_json::Error),
    /// The name of an object of the group.
    #[error("the {kind} {name} belongs to somebody else: delete it, or use another name")]
    Taken {
        /// What it is.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The API server refused it, or did not answer.
    #[error("ask the API server")]
    Request(#[source] Box<kube::Error>),
}

impl Error {
    /// Whether another version was met.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Request(error) if is_stale(error))
    }

    /// Whether the namespace of the group is being deleted.
    pub(crate) fn is_namespace_ending(&self) -> bool {
        matches!(self, Self::Request(error)
            if matches!(&**error, kube::Error::Api(status) if is_namespace_ending(status)))
    }

    /// Whether the API server certainly did not do it, and would if its reason went: not because there is such an object.
    pub(crate) fn is_refused(&self) -> bool {
        let is_sure = |code| (400..500).contains(&code) && ![408, 409].contains(&code);
        matches!(self, Self::Request(error)
            if matches!(&**error, kube::Error::Api(status) if is_sure(status.code)))
    }

    /// Whether what the plan was made from is gone.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Step(StepError::Gone))
    }
}

/// Wraps the reason why a request was not carried out.
fn request(error: kube::Error) -> Error {
    Error::Request(Box::new(error))
}

/// Does all of these, a bounded number at a time; answers in the same order.
pub(crate) async fn at_most<F: Future>(all: Vec<F>) -> Vec<F::Output> {
    stream::iter(all).buffered(WRITES_MAX).collect().await
}
