//! What was written and no watch has shown yet.
//!
//! Every write is guarded by the version that it is based on, so that old news about one object undoes nothing. That a Pod
//! has one place, and whether a slice tells the truth, is about several: so Leases that are known to be others than their watch
//! shows are read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bps_protocol::BootTime;
use k8s_openapi::api::coordination::v1::Lease;
use kube_core::ResourceExt as _;

use crate::version;

/// How long a write is waited for in the watches. 2 s: a watch is mostly 10 ms behind.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(2);
const LEASE: &str = "Lease";

/// How what the watches show stands to what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watches {
    /// They show it.
    InStep,
    /// They will in a moment.
    Behind,
    /// That of Leases should have done so long ago: they are to be read from the API server.
    Doubtful,
}

/// An object as a write left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenVersion {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its version; `None` if that is not a number.
    pub version: Option<u64>,
}

/// Versions of objects that no watch has shown yet, by kind and name, and since when they have been awaited.
#[derive(Debug, Default)]
pub struct AwaitedWrites(BTreeMap<(&'static str, String), (u64, BootTime)>);

impl AwaitedWrites {
    /// Notes a version that was written.
    pub fn wrote(&mut self, written: WrittenVersion, now: BootTime) {
        let WrittenVersion { kind, name, version } = written;
        if let Some(version) = version {
            self.0.insert((kind, name), (version, now));
        }
    }

    /// Compares with what the watches show. That of a Lease is not given up: whoever reads it will know.
    pub fn watches(&mut self, now: BootTime, shown: impl Fn(&'static str, &str) -> Option<u64>) -> Watches {
        let is_late = |since: BootTime| since + CONFIRMED_WITHIN <= now;
        self.0.retain(|(kind, name), (version, since)| {
            let is_shown = shown(kind, name).is_some_and(|shown| *version <= shown);
            !is_shown && (*kind == LEASE || !is_late(*since))
        });
        if self.0.values().any(|(_, since)| !is_late(*since)) {
            Watches::Behind
        } else if self.0.is_empty() {
            Watches::InStep
        } else {
            Watches::Doubtful
        }
    }

    /// The Leases were read; returns them as a look shall see them. As long as the watch shows older ones they must be read
    /// again, as looks must not go back in time. One that is gone stays until the watch says how it ended.
    pub fn read(
        &mut self,
        mut leases: Vec<Arc<Lease>>,
        shown: &[Arc<Lease>],
        now: BootTime,
    ) -> Vec<Arc<Lease>> {
        self.0.retain(|(kind, _), _| *kind != LEASE);
        let named = |leases: &[Arc<Lease>], name: &str| {
            leases.iter().find(|lease| lease.metadata.name.as_deref() == Some(name)).cloned()
        };
        for lease in &leases {
            let name = lease.name_any();
            let before = named(shown, &name).and_then(|lease| version(&lease.metadata));
            let read = version(&lease.metadata).filter(|read| before.is_none_or(|before| before < *read));
            let written = WrittenVersion { kind: LEASE, name, version: read };
            self.wrote(written, now.before(CONFIRMED_WITHIN));
        }
        let gone = shown.iter().filter(|lease| named(&leases, &lease.name_any()).is_none()).cloned();
        let gone: Vec<_> = gone.collect();
        leases.extend(gone);
        leases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> BootTime {
        BootTime::default() + seconds * SECOND
    }

    fn lease(name: &str, version: u64) -> Arc<Lease> {
        let mut lease = Lease::default();
        lease.metadata.name = Some(name.to_owned());
        lease.metadata.resource_version = Some(version.to_string());
        Arc::new(lease)
    }

    fn written(kind: &'static str, name: &str, version: u64) -> WrittenVersion {
        WrittenVersion { kind, name: name.to_owned(), version: Some(version) }
    }

    #[test]
    fn a_write_is_waited_for_until_it_is_shown_or_old_and_one_of_a_lease_is_then_in_doubt() {
        let watches = |kind, shown: Option<u64>, seconds| {
            let mut awaited = AwaitedWrites::default();
            awaited.wrote(written(kind, "web", 10), at(5));
            awaited.watches(at(seconds), |_, _| shown)
        };
        for kind in ["Pod", LEASE] {
            assert_eq!(watches(kind, Some(9), 6), Watches::Behind);
            assert_eq!(watches(kind, None, 6), Watches::Behind);
            assert_eq!(watches(kind, Some(10), 6), Watches::InStep);
        }
        assert_eq!([watches("Pod", Some(9), 7), watches("Pod", None, 7)], [Watches::InStep; 2]);
        assert_eq!([watches(LEASE, Some(9), 7), watches(LEASE, None, 9_999)], [Watches::Doubtful; 2]);
    }

    #[test]
    fn leases_are_read_until_the_watch_shows_what_was_read_and_one_that_is_gone_stays_until_it_says_so() {
        let mut awaited = AwaitedWrites::default();
        awaited.wrote(written(LEASE, "a", 7), at(1));
        let mut look = |shown: &[(&str, u64)]| {
            let shown: Vec<_> = shown.iter().map(|(name, version)| lease(name, *version)).collect();
            let find = |name: &str| shown.iter().find(|lease| lease.name_any() == name);
            let watches = awaited.watches(at(9), |_, name| version(&find(name)?.metadata));
            let read = match watches {
                Watches::Doubtful => awaited.read(vec![lease("a", 7), lease("new", 8)], &shown, at(9)),
                Watches::InStep | Watches::Behind => shown.clone(),
            };
            let read = read.iter().map(|lease| (lease.name_any(), version(&lease.metadata)));
            (watches, read.collect::<Vec<_>>())
        };
        let seen = |leases: &[(&str, u64)]| {
            leases.iter().map(|(name, version)| ((*name).to_owned(), Some(*version))).collect::<Vec<_>>()
        };
        let behind = [("a", 6), ("gone", 3)];
        for _ in 0..2 {
            assert_eq!(look(&behind), (Watches::Doubtful, seen(&[("a", 7), ("new", 8), ("gone", 3)])));
        }
        assert_eq!(look(&[("a", 7)]), (Watches::Doubtful, seen(&[("a", 7), ("new", 8)])));
        assert_eq!(look(&[("a", 9), ("new", 8)]), (Watches::InStep, seen(&[("a", 9), ("new", 8)])));
    }
}
