//! Keeps the key ring in a Secret of the operator's namespace: reads it, creates it once, rotates it by age.
//!
//! A Secret that does not read as a key ring is never written over: with its keys all cold Pods would be lost.
//! The bytes of keys are wiped from the objects handled here; the buffers of the HTTP client are out of reach.

use std::collections::BTreeMap;
use std::time::Duration;

use bps_wakeup::signing::{KEY_BYTES, SigningKey};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use zeroize::Zeroize as _;

use super::keys::{GenerateError, KeyRing, PREVIOUS_KEYS_MAX, generate_key};

/// The name of the Secret.
pub const SECRET_NAME: &str = "bps-wakeup-keys";

/// How long a key is current unless told otherwise.
pub const DEFAULT_ROTATION_PERIOD: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How often a conversation that lost a race begins again. Two operators lose at most once each.
const ATTEMPTS_MAX: usize = 3;

/// How long one request may take. Unit: 10 s, the renew deadline of a leader.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

const FIELD_MANAGER: &str = "bps-operator";
const CURRENT: &str = "current";
const NEXT: &str = "next";
const ROTATED_AT: &str = "rotated-at";

/// Why there is no key ring.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or could not be reached.
    #[error("{verb} secret {SECRET_NAME}")]
    Request {
        /// What was asked.
        verb: &'static str,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer within 10 s.
    #[error("{verb} secret {SECRET_NAME}: no answer in time")]
    TimedOut {
        /// What was asked.
        verb: &'static str,
    },
    /// Others changed the Secret each time.
    #[error("secret {SECRET_NAME} changed {ATTEMPTS_MAX} times")]
    LoseRaces,
    /// The Secret lacks an entry or has one that is no key; it needs a human.
    #[error("entry {entry} of secret {SECRET_NAME} is missing or malformed")]
    ReadEntry {
        /// The entry of the Secret's data.
        entry: String,
    },
    /// No randomness.
    #[error("make a key for secret {SECRET_NAME}")]
    Generate(#[source] GenerateError),
}

impl Error {
    /// Whether the same call may succeed later without a human.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Request { .. } | Self::TimedOut { .. } | Self::LoseRaces => true,
            Self::ReadEntry { .. } | Self::Generate(_) => false,
        }
    }
}

/// The key ring's place in the cluster.
#[derive(Clone)]
pub struct KeyStore {
    /// Secrets of the operator's namespace.
    pub api: Api<Secret>,
    /// How long a key is current.
    pub rotation_period: SignedDuration,
}

impl KeyStore {
    /// Reads the ring, or creates one if there is none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn load_or_create(&self, now: Timestamp) -> Result<KeyRing, Error> {
        self.load_or_write(|| KeyRing::generate(now).map_err(Error::Generate)).await
    }

    /// Reads the ring, or writes back the one that is known: without its keys no gate that waits could be opened.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn load_or_restore(&self, known: &KeyRing) -> Result<KeyRing, Error> {
        self.load_or_write(|| Ok(known.clone())).await
    }

    async fn load_or_write(&self, missing: impl Fn() -> Result<KeyRing, Error>) -> Result<KeyRing, Error> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some((ring, _)) = self.read().await? {
                return Ok(ring);
            }
            let ring = missing()?;
            if self.create(&ring).await? {
                return Ok(ring);
            }
        }
        Err(Error::LoseRaces)
    }

    /// Reads the ring or writes back the one that is known, and rotates it if the current key has been current for the
    /// period.
    ///
    /// Two operators rotate once: the second write has an old resourceVersion, and its maker reads again.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn rotate_if_due(&self, known: &KeyRing, now: Timestamp) -> Result<KeyRing, Error> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((ring, metadata)) = self.read().await? else {
                return self.load_or_restore(known).await;
            };
            if now.duration_since(ring.rotated_at) < self.rotation_period {
                return Ok(ring);
            }
            let ring = ring.rotated(generate_key().map_err(Error::Generate)?, now);
            if self.replace(&ring, metadata).await? {
                return Ok(ring);
            }
        }
        Err(Error::LoseRaces)
    }

    async fn read(&self) -> Result<Option<(KeyRing, ObjectMeta)>, Error> {
        let secret = within("read", self.api.get_opt(SECRET_NAME)).await?;
        let Some(mut secret) = secret.map_err(|source| request_error("read", source))? else {
            return Ok(None);
        };
        let ring = ring_of(secret.data.as_ref().unwrap_or(&BTreeMap::new()));
        wipe(&mut secret);
        Ok(Some((ring?, secret.metadata)))
    }

    /// False if somebody else has created it first.
    async fn create(&self, ring: &KeyRing) -> Result<bool, Error> {
        let labels =
            [("app.kubernetes.io/managed-by", FIELD_MANAGER), ("app.kubernetes.io/part-of", "backuppodset")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let metadata = ObjectMeta {
            name: Some(SECRET_NAME.into()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        };
        let mut secret = secret_of(ring, metadata);
        let created = within("create", self.api.create(&post_params(), &secret)).await;
        wipe(&mut secret);
        has_written("create", created?)
    }

    /// False if the Secret is not any more what was read.
    async fn replace(&self, ring: &KeyRing, metadata: ObjectMeta) -> Result<bool, Error> {
        let mut secret = secret_of(ring, metadata);
        let replaced = within("replace", self.api.replace(SECRET_NAME, &post_params(), &secret)).await;
        wipe(&mut secret);
        has_written("replace", replaced?)
    }
}

fn has_written(verb: &'static str, written: Result<Secret, kube::Error>) -> Result<bool, Error> {
    match written {
        Ok(mut secret) => {
            wipe(&mut secret);
            Ok(true)
        }
        // Created, changed or deleted by another: what is there now decides.
        Err(kube::Error::Api(status)) if status.code == 409 || status.is_not_found() => Ok(false),
        Err(source) => Err(request_error(verb, source)),
    }
}

async fn within<T>(verb: &'static str, request: impl Future<Output = T>) -> Result<T, Error> {
    tokio::time::timeout(REQUEST_DEADLINE, request).await.map_err(|_elapsed| Error::TimedOut { verb })
}

fn request_error(verb: &'static str, source: kube::Error) -> Error {
    Error::Request { verb, source: Box::new(source) }
}

fn post_params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() }
}

fn previous_entry(age: usize) -> String {
    format!("previous-{age:02}")
}

fn ring_of(data: &BTreeMap<String, ByteString>) -> Result<KeyRing, Error> {
    let key = |entry: &str| {
        let seed = data.get(entry).and_then(|value| <&[u8; KEY_BYTES]>::try_from(value.0.as_slice()).ok());
        seed.map(SigningKey::from_seed).ok_or_else(|| Error::ReadEntry { entry: entry.to_owned() })
    };
    let rotated_at = data.get(ROTATED_AT).and_then(|value| std::str::from_utf8(&value.0).ok());
    let rotated_at = rotated_at.and_then(|text| text.parse().ok());
    let previous = (0..PREVIOUS_KEYS_MAX).map(previous_entry).filter(|entry| data.contains_key(entry));
    Ok(KeyRing {
        current: key(CURRENT)?,
        next: key(NEXT)?,
        previous: previous.map(|entry| key(&entry)).collect::<Result<_, _>>()?,
        rotated_at: rotated_at.ok_or_else(|| Error::ReadEntry { entry: ROTATED_AT.to_owned() })?,
    })
}

fn secret_of(ring: &KeyRing, metadata: ObjectMeta) -> Secret {
    let KeyRing { current, next, previous, rotated_at } = ring;
    let seed = |key: &SigningKey| ByteString(key.seed().to_vec());
    let mut data = BTreeMap::from([
        (CURRENT.to_owned(), seed(current)),
        (NEXT.to_owned(), seed(next)),
        (ROTATED_AT.to_owned(), ByteString(rotated_at.to_string().into_bytes())),
    ]);
    data.extend(previous.iter().enumerate().map(|(age, key)| (previous_entry(age), seed(key))));
    Secret { metadata, data: Some(data), type_: Some("Opaque".into()), ..Secret::default() }
}

fn wipe(secret: &mut Secret) {
    secret.data.iter_mut().flatten().for_each(|(_, value)| value.0.zeroize());
}
