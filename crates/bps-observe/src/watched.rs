//! Kinds that are watched, and how each of their events reaches the cache.

use bps_api::BackupPodSet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_core::Resource;

use super::cache::{Affected, Cache};
use super::readable::Readable;
use super::slim::{SlimNode, SlimPod};

/// An object whose watch feeds the cache.
pub trait Watched: Sized {
    /// Takes in a version that the watch showed; returns the sets that are affected.
    fn seen(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected>;

    /// Notes that the object is gone, or out of the watch's sight; returns the sets that are affected.
    fn lost(&self, cache: &mut Cache, now: Timestamp) -> Vec<Affected>;
}

impl Watched for BackupPodSet {
    fn seen(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        Readable::from(self).seen(cache, now)
    }

    fn lost(&self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.lose_set(&self.metadata, now).into_iter().collect()
    }
}

impl Watched for Readable<BackupPodSet> {
    fn seen(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.see_set(self, now).into_iter().collect()
    }

    fn lost(&self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.lose_set(self.meta(), now).into_iter().collect()
    }
}

impl Watched for SlimPod {
    fn seen(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.see_pod(self, now)
    }

    fn lost(&self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.lose_pod(self, now)
    }
}

impl Watched for SlimNode {
    fn seen(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.see_node(&self, now)
    }

    fn lost(&self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.lose_node(self, now)
    }
}

impl Watched for Service {
    fn seen(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.see_service(self, now).into_iter().collect()
    }

    fn lost(&self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.lose_service(self, now)
    }
}

impl Watched for EndpointSlice {
    fn seen(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.see_slice(self, now).into_iter().collect()
    }

    fn lost(&self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.lose_slice(self, now)
    }
}
