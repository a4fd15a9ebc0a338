//! What was written and no watch has shown yet.
//!
//! Every write is guarded by the version that it is based on, so that old news about one object undoes nothing. That a Pod
//! has one place, and who may be shown to clients, is about several: so old news about Leases is not planned from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;

use super::memory::OWN_WRITE_HOLDS;
use crate::ha::BootTime;
use crate::observe::version;

/// How long a write is waited for in the watches. 2 s: a watch is mostly 10 ms behind.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(2);
const LEASE: &str = "Lease";

/// How what the watches show stands to what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watches {
    /// They show it.
    InStep,
    /// They will in a moment.
    Behind,
    /// That of Leases should have done so long ago: they are to be read from the API server.
    Doubtful,
}

/// Versions of objects that no watch has shown yet, by kind and name.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    objects: BTreeMap<(&'static str, String), Expected>,
    /// Something else shows what no Lease accounts for.
    has_doubt: bool,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    /// `None`: it is gone.
    version: Option<u64>,
    since: BootTime,
}

impl Expected {
    fn is_met_by(self, shown: Option<u64>) -> bool {
        match (self.version, shown) {
            (Some(version), Some(shown)) => version <= shown,
            (expected, shown) => expected.is_none() && shown.is_none(),
        }
    }
}

impl Awaited {
    /// Notes a version that was written.
    pub(super) fn wrote(&mut self, (kind, name): (&'static str, &str), version: Option<u64>, now: BootTime) {
        if version.is_some() {
            self.objects.insert((kind, name.to_owned()), Expected { version, since: now });
        }
    }

    /// Something was seen that speaks of a Lease as it is not shown.
    pub(super) fn doubt(&mut self) {
        self.has_doubt = true;
    }

    /// Compares with what the watches show.
    pub(super) fn watches(
        &mut self,
        now: BootTime,
        shown: impl Fn(&'static str, &str) -> Option<u64>,
    ) -> Watches {
        self.objects.retain(|(kind, name), expected| {
            // A cluster that was restored has lower versions; one must not wait for ever.
            let patience = if *kind == LEASE { OWN_WRITE_HOLDS } else { CONFIRMED_WITHIN };
            !expected.is_met_by(shown(kind, name)) && now < expected.since + patience
        });
        let is_late = |expected: &Expected| expected.since + CONFIRMED_WITHIN <= now;
        if self.objects.values().any(|expected| !is_late(expected)) {
            Watches::Behind
        } else if self.has_doubt || !self.objects.is_empty() {
            Watches::Doubtful
        } else {
            Watches::InStep
        }
    }

    /// The Leases were read. As long as the watch shows others they must be read again, as looks must not go back in time.
    pub(super) fn read(&mut self, leases: &[Arc<Lease>], shown: &[Arc<Lease>], now: BootTime) {
        self.has_doubt = false;
        self.objects.retain(|(kind, _), _| *kind != LEASE);
        let since = now.before(CONFIRMED_WITHIN);
        let find = |leases: &[Arc<Lease>], name: &str| {
            let found = leases.iter().find(|lease| lease.metadata.name.as_deref() == Some(name));
            found.and_then(|lease| version(&lease.metadata))
        };
        for lease in leases.iter().chain(shown) {
            let name = lease.name_any();
            let expected = Expected { version: find(leases, &name), since };
            if !expected.is_met_by(find(shown, &name)) {
                self.objects.insert((LEASE, name), expected);
            }
        }
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

    #[test]
    fn a_write_is_waited_for_until_it_is_shown_or_old_and_one_of_a_lease_is_then_in_doubt() {
        let watches = |kind, shown: Option<u64>, seconds| {
            let mut awaited = Awaited::default();
            awaited.wrote((kind, "web"), Some(10), at(5));
            awaited.watches(at(seconds), |_, _| shown)
        };
        for kind in ["Pod", LEASE] {
            assert_eq!(watches(kind, Some(9), 6), Watches::Behind);
            assert_eq!(watches(kind, None, 6), Watches::Behind);
            assert_eq!(watches(kind, Some(10), 6), Watches::InStep);
        }
        assert_eq!(
            [watches("Pod", Some(9), 7), watches(LEASE, Some(9), 7)],
            [Watches::InStep, Watches::Doubtful]
        );
        assert_eq!(watches(LEASE, Some(9), 306), Watches::InStep, "versions went back");
    }

    #[test]
    fn leases_are_read_until_the_watch_shows_what_was_read() {
        let mut awaited = Awaited::default();
        awaited.doubt();
        let mut watches = |shown: &[Arc<Lease>]| {
            let find = |name: &str| shown.iter().find(|lease| lease.name_any() == name);
            let watches = awaited.watches(at(9), |_, name| version(&find(name)?.metadata));
            awaited.read(&[lease("a", 7), lease("new", 8)], shown, at(9));
            watches
        };
        let [old, gone, new] = [lease("a", 6), lease("gone", 3), lease("new", 8)];
        let shown = [
            vec![old.clone(), gone.clone()],
            vec![old, gone.clone()],
            vec![lease("a", 7), gone],
            vec![lease("a", 7)],
            vec![lease("a", 9)],
            vec![lease("a", 9), new],
        ];
        let found = shown.map(|shown| watches(&shown));
        let (doubtful, in_step) = (Watches::Doubtful, Watches::InStep);
        assert_eq!(found, [doubtful, doubtful, doubtful, doubtful, doubtful, in_step]);
    }
}
