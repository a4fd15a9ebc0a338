//! Reads and writes the Lease object; each write carries the resourceVersion that was read.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};

use super::settings::LEASE_DURATION_MAX;
use super::{Error, Record, Settings};

/// The Lease on the API server.
pub(super) struct Lock {
    api: Api<Lease>,
    name: &'static str,
    lease_duration: Duration,
    /// The object as last read or written: labels, annotations and resourceVersion are kept on a write.
    object: Option<Lease>,
}

impl Lock {
    pub(super) fn new(client: Client, settings: &Settings) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            name: settings.name,
            lease_duration: settings.lease_duration,
            object: None,
        }
    }

    /// Reads the Lease; `None` if there is none.
    pub(super) async fn read(&mut self) -> Result<Option<Record>, Error> {
        self.object = self.api.get_opt(self.name).await.map_err(|source| request("read", source))?;
        Ok(self.object.as_ref().map(|object| self.record(object)))
    }

    /// Version of the Lease as last read or written; the highest one if a server gave none.
    pub(super) fn version(&self) -> u64 {
        let version = self.object.as_ref().and_then(|object| object.metadata.resource_version.as_deref());
        version.and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
    }

    /// Writes `record` over what was last read, or creates the Lease if there was none.
    ///
    /// `Ok(None)` means that somebody else wrote in between: read again.
    pub(super) async fn write(&mut self, record: &Record) -> Result<Option<Record>, Error> {
        let params = PostParams::default();
        let (action, written) = if let Some(object) = &self.object {
            let object = Lease { spec: Some(spec(record, object.spec.clone())), ..object.clone() };
            ("replace", self.api.replace(self.name, &params, &object).await)
        } else {
            let metadata = ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() };
            let object = Lease { metadata, spec: Some(spec(record, None)) };
            ("create", self.api.create(&params, &object).await)
        };
        match written {
            Ok(object) => {
                let record = self.record(&object);
                self.object = Some(object);
                Ok(Some(record))
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(source) => Err(request(action, source)),
        }
    }

    fn record(&self, object: &Lease) -> Record {
        let spec = object.spec.clone().unwrap_or_default();
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration =
            duration.filter(|seconds| *seconds > 0).map_or(self.lease_duration, Duration::from_secs);
        Record {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: duration.min(LEASE_DURATION_MAX),
            acquired: spec.acquire_time.map(|MicroTime(time)| time),
            renewed: spec.renew_time.map(|MicroTime(time)| time),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }
}

/// The wall-clock time that is written for people to read.
#[expect(clippy::disallowed_methods, reason = "written into the Lease, decides nothing")]
pub(super) fn wall_clock() -> Timestamp {
    Timestamp::now()
}

fn spec(record: &Record, before: Option<LeaseSpec>) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(record.holder.clone()),
        lease_duration_seconds: i32::try_from(record.duration.as_secs()).ok(),
        acquire_time: record.acquired.map(MicroTime),
        renew_time: record.renewed.map(MicroTime),
        lease_transitions: Some(record.transitions),
        ..before.unwrap_or_default()
    }
}

fn request(action: &'static str, source: kube::Error) -> Error {
    Error::Request { action, source: Box::new(source) }
}
