//! Which of the operator's keys those of a group are derived from at present, and their text for the agents.

use bps_api::HAGroup;
use bps_wakeup::signing::SigningKey;
use jiff::{SignedDuration, Timestamp};
use zeroize::Zeroizing;

use crate::tickets::keys::KeyRing;

/// How long agents may take to read a changed file of keys. 1 h: a kubelet shows a changed Secret within two minutes.
const KEYS_SPREAD_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// What the keys of every group are derived from, in the order in which agents read them.
pub(super) struct GroupKeys<'a>([&'a SigningKey; 2]);

impl<'a> GroupKeys<'a> {
    /// The present key signs. The other one that is accepted is the one before for a while, because some agents still
    /// sign with it, then the next one, because some agents will sign with it first.
    pub(super) fn of(ring: &'a KeyRing, now: Timestamp) -> Self {
        let is_spreading = now.duration_since(ring.rotated_at) < KEYS_SPREAD_WITHIN;
        let other = ring.previous.first().filter(|_| is_spreading).unwrap_or(&ring.next);
        Self([&ring.current, other])
    }

    /// What tells these keys from others without showing them.
    pub(super) fn version(&self) -> String {
        let Self([current, other]) = self;
        format!("{},{}", current.id(), other.id())
    }

    /// What readers of the metrics of a group's agents must send.
    pub(super) fn metrics_token(&self, group: &HAGroup) -> Zeroizing<String> {
        let purpose = format!("ha-group-metrics/v1/{}", group.metadata.uid.as_deref().unwrap_or_default());
        self.0[0].derived(purpose.as_bytes())
    }

    /// The keys of one group, one in each line.
    pub(super) fn text(&self, group: &HAGroup) -> Zeroizing<String> {
        let purpose = format!("ha-group-keys/v1/{}", group.metadata.uid.as_deref().unwrap_or_default());
        Zeroizing::new(self.0.map(|key| format!("{}\n", *key.derived(purpose.as_bytes()))).concat())
    }
}
