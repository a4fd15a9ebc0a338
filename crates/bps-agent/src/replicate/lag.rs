//! How much the standby lacks of the state, since when, and when the Lease is to tell.

use std::time::Duration;

use bps_api::StateLag;
use bps_protocol::BootTime;
use bps_wire::lag::Told;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::blockage::Blockage;
use super::image::{Change, Entry, StatePath, diff};
use super::scan::Snapshot;
use crate::metrics::AgentMetrics;

/// How long a standby lacks something before the Lease tells. 2 s: a standby that comes back has mostly caught up by then.
pub const TELL_AFTER: Duration = Duration::from_secs(2);
/// Time between two writes that tell. 10 s: six a minute, and only while the standby is not level.
pub const TELL_EVERY: Duration = Duration::from_secs(10);

/// How much it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Changes that are still to be made.
    pub entries: u64,
    /// What is to be sent for them. Unit: bytes.
    pub bytes: u64,
}

/// What is to be done until who has the one has the other.
pub fn lacking(has: &Snapshot, wanted: &Snapshot) -> Amount {
    let changes = diff(&has.image, &wanted.image);
    let bytes = changes.iter().map(|change| match change {
        Change::Write(path) => bytes(path, (has, wanted)),
        Change::Remove(_) | Change::MakeFolder(..) | Change::SetMode(..) => 0,
    });
    Amount { entries: changes.len() as u64, bytes: bytes.sum() }
}

/// What a file that is longer has more, unless it is known to be another one; else all of it.
fn bytes(path: &StatePath, (has, wanted): (&Snapshot, &Snapshot)) -> u64 {
    let size = |snapshot: &Snapshot| match snapshot.image.get(path) {
        Some(Entry::File { size, .. }) => Some(*size),
        Some(Entry::Folder { .. }) | None => None,
    };
    let inode = |snapshot: &Snapshot| snapshot.sources.get(path).map(|source| source.inode);
    let all = size(wanted).unwrap_or_default();
    let is_same = inode(has).is_none_or(|inode_had| Some(inode_had) == inode(wanted));
    let had = size(has).filter(|had| is_same && *had < all);
    all - had.unwrap_or_default()
}

/// Follows how much a standby lacks.
#[derive(Debug)]
pub struct Meter {
    metrics: AgentMetrics,
    lag: Option<Lag>,
    /// Why the standby gets nothing.
    blockage: Option<Blockage>,
    /// When it may be told again.
    next: BootTime,
}

#[derive(Clone, Copy, Debug)]
struct Lag {
    amount: Amount,
    since: BootTime,
    /// The same by the clock on the wall.
    date: Timestamp,
}

impl Meter {
    /// One that has measured nothing.
    pub fn new(metrics: AgentMetrics) -> Self {
        Self { metrics, lag: None, blockage: None, next: BootTime::default() }
    }

    /// Takes in what a look has found.
    pub fn measure(&mut self, amount: Amount, (now, date): (BootTime, Timestamp)) {
        let (since, date) = self.lag.map_or((now, date), |lag| (lag.since, lag.date));
        self.set((amount != Amount::default()).then_some(Lag { amount, since, date }));
    }

    /// Looks do not succeed since this moment: the standby may lack more than the last one has found.
    pub fn miss(&mut self, since: BootTime, date: Timestamp) {
        let missed = Lag { amount: Amount::default(), since, date };
        let lag = self.lag.unwrap_or(missed);
        self.set(Some(if lag.since <= since { lag } else { Lag { amount: lag.amount, ..missed } }));
    }

    /// Takes in why the standby gets nothing; `None`: it does, or may.
    pub fn block(&mut self, blockage: Option<Blockage>) {
        if self.blockage != blockage {
            self.metrics.show_blocked(blockage.as_ref().map(|blockage| blockage.reason));
            self.blockage = blockage;
        }
    }

    /// Nothing is lacking, or nobody is there who could lack anything.
    pub fn clear(&mut self) {
        self.set(None);
    }

    fn set(&mut self, lag: Option<Lag>) {
        if lag.is_none() {
            self.next = BootTime::default();
        }
        self.lag = lag;
        self.metrics.show_lag(lag.map(|Lag { amount, since, .. }| (amount.entries, amount.bytes, since)));
    }

    /// What the Lease is to tell now in place of what it tells. Nothing more is due for a while then, whether or not that
    /// is written.
    pub fn due(&mut self, told: &Told, now: BootTime) -> Option<StateLag> {
        let Lag { amount: Amount { entries, bytes }, since, date } = self.lag?;
        if now < self.next.max(since + TELL_AFTER) {
            return None;
        }
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        // The wire has whole seconds: what is compared with a text that was read back must have them, too.
        let since = Time(Timestamp::from_second(date.as_second()).ok()?);
        let reason = self.blockage.as_ref().map(|blockage| blockage.reason.as_str().to_owned());
        let path = self.blockage.as_ref().and_then(|blockage| blockage.path.clone());
        let lag = StateLag { entries: number(entries), bytes: number(bytes), since, reason, path };
        if *told == Told::Lacks(lag.clone()) {
            return None;
        }
        self.next = now + TELL_EVERY;
        Some(lag)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Of another Lease nothing is known yet.
        self.metrics.show_lag(None);
        self.metrics.show_blocked(None);
    }
}

#[cfg(test)]
mod tests {
    use bps_api::{LagReason, keys};
    use bps_protocol::Version;
    use bps_wire::lag::TEXT_MAX_BYTES;

    use super::*;
    use crate::replicate::blockage::shown;
    use crate::replicate::image::{HASH_BYTES, Image};
    use crate::replicate::notes::lag_note;
    use crate::replicate::scan::Source;
    use crate::store::Note;

    fn path(text: &str) -> StatePath {
        StatePath::parse(text.as_bytes()).unwrap()
    }

    fn file(content: u8, size: u64) -> Entry {
        Entry::File { mode: 0o644, size, hash: [content; HASH_BYTES] }
    }

    /// Files by their names, contents, sizes and inodes.
    fn snapshot(files: &[(&str, u8, u64, u64)]) -> Snapshot {
        let image: Image =
            files.iter().map(|(name, content, size, _)| (path(name), file(*content, *size))).collect();
        let source = |inode| Source { inode, growth: None };
        let sources = files.iter().map(|(name, _, _, inode)| (path(name), source(*inode))).collect();
        Snapshot { sequence: 1, image, sources, ..Snapshot::default() }
    }

    #[test]
    fn what_is_lacking_is_counted_as_it_will_be_sent() {
        let has = snapshot(&[("same", 1, 5, 1), ("grown", 1, 10, 2), ("other", 1, 10, 3), ("gone", 1, 7, 4)]);
        let wanted =
            snapshot(&[("same", 1, 5, 1), ("grown", 2, 13, 2), ("other", 2, 11, 9), ("new", 1, 20, 5)]);
        assert_eq!(lacking(&has, &wanted), Amount { entries: 4, bytes: 3 + 11 + 20 });
        assert_eq!(lacking(&wanted, &wanted), Amount::default());
        assert_eq!(lacking(&Snapshot::default(), &has), Amount { entries: 4, bytes: 32 });
    }

    fn at(milliseconds: u32) -> (BootTime, Timestamp) {
        let span = milliseconds * Duration::from_millis(1);
        (
            BootTime::default() + span,
            Timestamp::from_millisecond(1_000_500 + i64::from(milliseconds)).unwrap(),
        )
    }

    fn lag(entries: i64, bytes: i64) -> StateLag {
        let since = Time(Timestamp::from_second(1_001).unwrap());
        StateLag { entries, bytes, since, reason: None, path: None }
    }

    #[test]
    fn a_lag_is_told_after_two_seconds_and_again_after_ten_if_it_has_changed() {
        let mut meter = Meter::new(AgentMetrics::default());
        let due = |meter: &mut Meter, told: &Told, now| meter.due(told, at(now).0).map(Told::Lacks);
        let (one, two) = (Told::Lacks(lag(1, 10)), Told::Lacks(lag(2, 30)));
        meter.measure(Amount { entries: 1, bytes: 10 }, at(600));
        assert_eq!(due(&mut meter, &Told::Nothing, 2_599), None);
        assert_eq!(due(&mut meter, &Told::Nothing, 2_600), Some(one.clone()));
        meter.measure(Amount { entries: 2, bytes: 30 }, at(5_000));
        assert_eq!(due(&mut meter, &one, 12_599), None);
        assert_eq!(due(&mut meter, &one, 12_600), Some(two.clone()));
        // Who asks for a write asks again: this one came to nothing.
        assert_eq!(due(&mut meter, &one, 22_600), Some(two.clone()));
        assert_eq!(due(&mut meter, &two, 90_000), None);
        meter.clear();
        assert_eq!(due(&mut meter, &two, 90_000), None);
    }

    #[test]
    fn looks_that_do_not_succeed_count_since_the_last_one_that_did_and_the_reason_is_told() {
        let mut meter = Meter::new(AgentMetrics::default());
        let blockage = Blockage { reason: LagReason::Unreplicable, path: Some("a/b".into()) };
        let miss = |meter: &mut Meter, milliseconds| {
            let (since, date) = at(milliseconds);
            meter.miss(since, date);
        };
        miss(&mut meter, 600);
        miss(&mut meter, 600);
        meter.block(Some(blockage));
        let (reason, path) = (Some("Unreplicable".to_owned()), Some("a/b".to_owned()));
        let told = StateLag { reason, path, ..lag(0, 0) };
        assert_eq!(meter.due(&Told::Nothing, at(2_600).0), Some(told.clone()));

        // What a look finds then lacks since the same moment; and what it lacked before is older.
        meter.measure(Amount { entries: 1, bytes: 10 }, at(9_000));
        miss(&mut meter, 8_000);
        let found = StateLag { entries: 1, bytes: 10, ..told.clone() };
        assert_eq!(meter.due(&Told::Lacks(told), at(12_600).0), Some(found));
    }

    #[test]
    fn a_reason_with_a_path_fits_into_what_earlier_releases_read() {
        const READ_BEFORE_MAX_BYTES: usize = 256;
        let (reason, path) = (Some("StandbyDiskFails".to_owned()), Some(shown(&[b'x'; 2_000])));
        let text = serde_json::to_string(&StateLag { reason, path, ..lag(i64::MAX, i64::MAX) }).unwrap();
        assert!(text.len() <= READ_BEFORE_MAX_BYTES, "{text}");
    }

    #[test]
    fn what_others_may_have_written_is_bounded() {
        let good = r#"{"entries":1,"bytes":0,"since":"1970-01-01T00:16:41Z"}"#;
        let note = lag_note(Version(7), &lag(1, 0)).expect("it can be put into words");
        let annotations = [(keys::ANNOTATION_HA_LAG, Some(good.to_owned()))].into();
        assert_eq!(note, Note { base: Version(7), annotations });
        assert_eq!((Told::read(None), Told::read(Some(good))), (Told::Nothing, Told::Lacks(lag(1, 0))));
        let padded = format!("{good}{}", " ".repeat(TEXT_MAX_BYTES));
        for bad in [&good.replace('1', "-1"), &good.replace(":0,", ":-5,"), "{}", "7", &padded] {
            assert_eq!(Told::read(Some(bad)), Told::Unreadable, "{bad}");
        }
    }
}
