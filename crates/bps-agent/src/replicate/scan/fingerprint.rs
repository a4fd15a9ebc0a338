//! What tells that a file or folder has changed, without reading it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::fs::{Stat, fstatfs};
use rustix::time::{ClockId, clock_gettime};

/// Age below which the times of a file do not tell that nothing else was written. 2 s: a write stamps them when it begins, and
/// may wait for a slow disk before it changes anything.
const RECENT: Duration = Duration::from_secs(2);
/// The same for a file that was read only once as it is. 30 s: a long write goes on while its file is read, and changes neither
/// size nor times when it ends, but does not stand still for [`RECENT`] between two looks.
const RECENT_ONCE: Duration = Duration::from_secs(30);
/// Age below which the times of a file do not tell that no other write has begun. 50 ms: the kernel's clock for them ticks each
/// 10 ms at most.
const TICKS: Duration = Duration::from_millis(50);

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: i64,
    pub(super) modified: (i64, u64),
    pub(super) changed: (i64, u64),
}

impl Fingerprint {
    /// Whether all writes that they tell of are over at this moment, if the content has been the same since another one.
    pub(super) fn is_settled(&self, same_since: Duration, now: Duration) -> bool {
        let age = if same_since + RECENT <= now { RECENT } else { RECENT_ONCE };
        self.changed() + age < now
    }

    /// Whether another write after this moment would show.
    pub(super) fn is_past(&self, now: Duration) -> bool {
        self.changed() + TICKS < now
    }

    /// When it was changed last. Not when it was modified, which anybody may set.
    fn changed(&self) -> Duration {
        let (seconds, nanoseconds) = self.changed;
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default()) + Duration::from_nanos(nanoseconds)
    }
}

pub(super) fn fingerprint(stat: &Stat) -> Fingerprint {
    #[expect(clippy::useless_conversion, reason = "the types differ between architectures")]
    Fingerprint {
        device: stat.st_dev.into(),
        inode: stat.st_ino.into(),
        size: stat.st_size.into(),
        modified: (stat.st_mtime.into(), stat.st_mtime_nsec.into()),
        changed: (stat.st_ctime.into(), stat.st_ctime_nsec.into()),
    }
}

/// Permission bits.
pub(super) fn mode_of(stat: &Stat) -> u16 {
    u16::try_from(stat.st_mode & 0o7777).unwrap_or_default()
}

/// The clock that files are stamped by, since 1970.
pub(super) fn wall_clock() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or_default(), 0)
        + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or_default())
}

/// Whether a folder is kept in memory. Source: magic numbers of tmpfs and ramfs in `linux/magic.h`.
///
/// What is written there through a mapping changes no times, also after an `fsync`: measured on Linux 6.18.
pub(super) fn is_in_memory(folder: BorrowedFd<'_>) -> bool {
    const MAGIC: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    // Where it cannot be told, reading too much is right.
    fstatfs(folder).map_or(true, |told| u64::try_from(told.f_type).is_ok_and(|kind| MAGIC.contains(&kind)))
}
