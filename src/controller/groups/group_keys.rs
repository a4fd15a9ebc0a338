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
        self.0[0].derived(purpose("ha-group-metrics/v2", group).as_bytes())
    }

    /// The keys of one group, one in each line.
    pub(super) fn text(&self, group: &HAGroup) -> Zeroizing<String> {
        let purpose = purpose("ha-group-keys/v2", group);
        Zeroizing::new(self.0.map(|key| format!("{}\n", *key.derived(purpose.as_bytes()))).concat())
    }
}

/// What tells a derived key from all others. It names the group and not its uid: Pods outlive a group that is made anew, and kubelets
/// show them other keys at other times, so that partners could not hear each other for a minute or two.
fn purpose(of: &str, group: &HAGroup) -> String {
    let [namespace, name] = [&group.metadata.namespace, &group.metadata.name].map(|part| part.as_deref());
    format!("{of}/{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bps_api::HAGroupSpec;

    use super::*;

    fn group(name: &str, uid: &str) -> HAGroup {
        let mut group = HAGroup::new(name, HAGroupSpec::default());
        (group.metadata.namespace, group.metadata.uid) = (Some("shop".to_owned()), Some(uid.to_owned()));
        group
    }

    #[test]
    fn a_group_that_is_made_anew_has_the_keys_that_its_pods_know_and_another_group_has_others() {
        let ring = KeyRing::generate(Timestamp::UNIX_EPOCH).expect("random numbers");
        let keys = GroupKeys::of(&ring, Timestamp::UNIX_EPOCH);
        let of = |group: &HAGroup| [keys.text(group).to_string(), keys.metrics_token(group).to_string()];

        let [first, anew, other] =
            [("web", "1"), ("web", "2"), ("api", "1")].map(|(name, uid)| of(&group(name, uid)));
        assert_eq!(first, anew);
        assert!(first.iter().zip(&other).all(|(first, other)| first != other), "{first:?} {other:?}");
    }
}
