//! The group as the operator itself wrote it last.

use std::time::Duration;

use bps_api::HAGroup;
use bps_protocol::BootTime;

use crate::version;

/// How long the group as our own write left it is taken for newer than what the watch shows. 5 min: after the API server was away a watch
/// was seen behind for 17 s and kube waits up to 30 s between its tries; but versions that went back, as those of a cluster
/// that was restored, must not blind us to what people write.
const OWN_WRITE_HOLDS: Duration = Duration::from_secs(300);

/// The group as the last write of its status left it, and when that was.
#[derive(Debug, Default)]
pub struct OwnStatus(Option<(HAGroup, BootTime)>);

impl OwnStatus {
    /// Notes the group as a write of its status left it.
    pub fn wrote(&mut self, group: HAGroup, now: BootTime) {
        self.0 = Some((group, now));
    }

    /// The newer one of the group that a watch shows and of that which was written. A watch may be behind for long after the
    /// API server was away, and who looks at an old status takes for news what is told already.
    pub fn newest(&mut self, shown: &HAGroup, now: BootTime) -> HAGroup {
        let is_newer = |(written, at): &(HAGroup, BootTime)| {
            written.metadata.uid == shown.metadata.uid
                && version(&written.metadata) > version(&shown.metadata)
                && now < *at + OWN_WRITE_HOLDS
        };
        self.0 = self.0.take().filter(is_newer);
        self.0.as_ref().map_or(shown, |(written, _)| written).clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_own_write_of_the_group_is_newer_until_a_watch_shows_it_or_it_is_old() {
        let group = |uid: &str, version: u64| -> HAGroup {
            let metadata = json!({"name": "web", "uid": uid, "resourceVersion": version.to_string()});
            serde_json::from_value(json!({"metadata": metadata, "spec": {}})).expect("a group")
        };
        let newest = |shown: HAGroup, since: Duration| {
            let mut own = OwnStatus::default();
            own.wrote(group("a", 10), BootTime::default());
            version(&own.newest(&shown, BootTime::default() + since).metadata)
        };
        // Numbers, not words: "9" is above "10".
        let shown = [("a", 9), ("a", 10), ("a", 11), ("b", 9)];
        let found = shown.map(|(uid, version)| newest(group(uid, version), Duration::from_secs(1)));
        assert_eq!(found, [Some(10), Some(10), Some(11), Some(9)]);
        assert_eq!(newest(group("a", 9), OWN_WRITE_HOLDS), Some(9));
    }
}
