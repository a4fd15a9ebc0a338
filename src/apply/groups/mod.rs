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

use bps_core::model::{Outcome, Refusal};
use bps_core::pairing::StepError;
use bps_observe::group::WrittenVersion;
use bps_runtime::error::chain;
use futures::{StreamExt as _, stream};

use super::Answer;
use super::outcome::{is_name_taken, refused};

pub(crate) use objects::{apply, carry_out};
pub(crate) use steps::{Hand, release};

/// Most writes of one group under way at once.
const WRITES_MAX: usize = 16;

/// What one write for a group came to.
#[derive(Debug)]
pub(crate) struct GroupAnswer {
    /// The object, for example `the Service shop`.
    pub(crate) object: String,
    /// What became of the write, and the version that it made, if it made one.
    pub(crate) answer: Answer<WrittenVersion>,
}

impl GroupAnswer {
    fn of(kind: &str, name: &str, result: Result<Option<WrittenVersion>, Failure>) -> Self {
        let answer = match result {
            Ok(written) => Answer { outcome: Outcome::Done, message: None, written },
            Err(failure) => failure.answer(),
        };
        Self { object: format!("the {kind} {name}"), answer }
    }
}

/// Why nothing was written.
#[derive(Debug)]
enum Failure {
    /// The step has no write.
    Step(StepError),
    /// A body that is no object of its kind.
    Build(serde_json::Error),
    /// An object of that name belongs to another owner.
    Taken,
    /// The API server refused it, or did not answer.
    Request(Box<kube::Error>),
}

impl Failure {
    fn answer(&self) -> Answer<WrittenVersion> {
        match self {
            // What the plan was made from is gone: the next one is made without it.
            Self::Step(StepError::Gone) => Answer { outcome: Outcome::Stale, message: None, written: None },
            Self::Step(error @ (StepError::Words(_) | StepError::Times(_))) => {
                Answer::failed(Refusal::Invalid, chain(error))
            }
            Self::Build(error) => Answer::failed(Refusal::Invalid, chain(error)),
            Self::Taken => Answer::failed(Refusal::NameTaken, "it belongs to somebody else".to_owned()),
            // An own one would be seen: it has the label of the group.
            Self::Request(error) if is_name_taken(error) => Answer::failed(Refusal::NameTaken, chain(error)),
            Self::Request(error) => refused(error),
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Request(Box::new(error))
    }
}

/// Does all of these, a bounded number at a time; answers in the same order.
pub(crate) async fn at_most<F: Future>(all: Vec<F>) -> Vec<F::Output> {
    stream::iter(all).buffered(WRITES_MAX).collect().await
}
