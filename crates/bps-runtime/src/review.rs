//! Asks the API server whether the bearer of a token may read metrics, as controller-runtime's filter does.
//!
//! Never keeps or prints a token: decisions are kept under its SHA-256.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Time for all questions of one request to the API server.
pub(super) const REVIEW_MAX: Duration = Duration::from_secs(10);

/// How long a bearer who may read is not asked about again; controller-runtime keeps it for one minute.
const ALLOWED_MAX: Duration = Duration::from_secs(60);

/// How long a bearer who may not read is not asked about again: short, as somebody is about to grant it.
const REFUSED_MAX: Duration = Duration::from_secs(10);

/// Decisions that are kept.
const DECISIONS_MAX: usize = 128;

/// Requests that ask the API server at once: random tokens must not flood it.
const REVIEWS_MAX: usize = 4;

/// What a bearer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Known, and may read.
    Allowed,
    /// Known, but may not read.
    Forbidden,
    /// Not known.
    Unknown,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The API server refused to tell or could not be reached.
    #[error("review the bearer of a token")]
    Ask {
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time, or too many were asking.
    #[error("no verdict within {} s", REVIEW_MAX.as_secs())]
    NoAnswer,
}

/// Reviews bearers and remembers the verdicts for a short time.
pub(super) struct Reviewer {
    client: Client,
    decisions: Mutex<BTreeMap<Key, Decision>>,
    asking: Semaphore,
}

type Key = [u8; 32];

#[derive(Clone, Copy)]
struct Decision {
    verdict: Verdict,
    until: Instant,
}

impl Reviewer {
    pub(super) fn new(client: Client) -> Self {
        Self { client, decisions: Mutex::default(), asking: Semaphore::new(REVIEWS_MAX) }
    }

    /// What the bearer of `token` may do; from memory if it was asked a short time ago.
    pub(super) async fn review(&self, token: &str) -> Result<Verdict, Error> {
        let key: Key = Sha256::digest(token.as_bytes()).into();
        if let Some(verdict) = self.remembered(&key) {
            return Ok(verdict);
        }
        let asked = async {
            let _turn = self.asking.acquire().await.expect("never closed");
            // Somebody may have asked about the same token while we waited for our turn.
            match self.remembered(&key) {
                Some(verdict) => Ok(verdict),
                None => self.ask(token).await,
            }
        };
        let verdict = timeout(REVIEW_MAX, asked).await.unwrap_or(Err(Error::NoAnswer))?;
        self.remember(key, verdict);
        Ok(verdict)
    }

    async fn ask(&self, token: &str) -> Result<Verdict, Error> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let review = self.create(&TokenReview { spec, ..TokenReview::default() }).await?;
        let status = review.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unknown);
        };
        let review = self.create(&access_review(user)).await?;
        let status = review.status.unwrap_or_default();
        let is_allowed = status.allowed && status.denied != Some(true);
        Ok(if is_allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }

    async fn create<Review>(&self, review: &Review) -> Result<Review, Error>
    where
        Review: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
    {
        let api: Api<Review> = Api::all(self.client.clone());
        api.create(&PostParams::default(), review)
            .await
            .map_err(|source| Error::Ask { source: Box::new(source) })
    }

    fn remembered(&self, key: &Key) -> Option<Verdict> {
        let decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        let decision = decisions.get(key).filter(|decision| Instant::now() < decision.until);
        decision.map(|decision| decision.verdict)
    }

    fn remember(&self, key: Key, verdict: Verdict) {
        let now = Instant::now();
        let kept = match verdict {
            Verdict::Allowed => ALLOWED_MAX,
            Verdict::Forbidden | Verdict::Unknown => REFUSED_MAX,
        };
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        decisions.retain(|_, decision| now < decision.until);
        if decisions.len() >= DECISIONS_MAX {
            // Refusals end first, so a flood of wrong tokens does not push out those that are in use.
            let soonest = decisions.iter().min_by_key(|(_, decision)| decision.until).map(|(key, _)| *key);
            soonest.map(|key| decisions.remove(&key));
        }
        decisions.insert(key, Decision { verdict, until: now + kept });
    }
}

fn access_review(user: UserInfo) -> SubjectAccessReview {
    let reading = NonResourceAttributes { path: Some("/metrics".to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(reading),
        resource_attributes: None,
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

#[cfg(test)]
pub(super) mod tests;
