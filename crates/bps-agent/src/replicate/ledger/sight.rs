//! Whether looks at the state directory still succeed, and since when they do not.
//!
//! Pure: the present moment is an argument.

use std::time::Duration;

use bps_api::LagReason;
use bps_protocol::BootTime;
use jiff::Timestamp;
use tokio::time::Instant;

use super::super::blockage::Blockage;
use super::looks::STALE_MAX;

/// Time after which a look counts as one that does not end, if no call of it returns. 60 s: twice the time after which
/// Linux gives up a request to a disk (`/sys/block/*/device/timeout`, 30 s). To put many gigabytes on a slow disk is one
/// call as well, and no fault.
pub(super) const HANG_MAX: Duration = Duration::from_secs(60);

/// What became of the looks of a tenure.
#[derive(Debug)]
pub(super) struct LookSight {
    /// The last one that succeeded; before the first one the beginning of the tenure.
    good: Moments,
    /// Why the last one failed; `None`: it did not.
    failure: Option<Blockage>,
    /// The look that is under way: how far it was when that was seen first.
    stride: Option<(u64, Instant)>,
}

/// One moment by all clocks that are needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    /// By the clock of the runtime.
    pub(super) instant: Instant,
    /// By the clock that goes on while the machine sleeps.
    pub(super) boot: BootTime,
    /// By the clock on the wall.
    pub(super) date: Timestamp,
}

impl LookSight {
    /// A tenure begins.
    pub(super) fn new(now: Moments) -> Self {
        Self { good: now, failure: None, stride: None }
    }

    /// A look succeeded.
    pub(super) fn succeeded(&mut self, now: Moments) {
        *self = Self::new(now);
    }

    /// A look failed.
    pub(super) fn failed(&mut self, blockage: Blockage) {
        (self.failure, self.stride) = (Some(blockage), None);
    }

    /// A look is under way that has come so far; `None`: none is.
    pub(super) fn follow(&mut self, strides: Option<u64>, now: Instant) {
        let known = self.stride.filter(|(count, _)| Some(*count) == strides);
        self.stride = known.or(strides.map(|count| (count, now)));
    }

    /// The last look that succeeded, if the last one did not or does not end.
    pub(super) fn blind_since(&self, now: Instant) -> Option<&Moments> {
        (self.failure.is_some() || self.hangs(now)).then_some(&self.good)
    }

    /// Why no look has succeeded for [`STALE_MAX`]; `None` while one may.
    pub(super) fn blockage(&self, now: Instant) -> Option<Blockage> {
        if self.hangs(now) {
            return Some(Blockage { reason: LagReason::ActiveDiskFails, path: None });
        }
        self.failure.clone().filter(|_| self.good.instant + STALE_MAX <= now)
    }

    fn hangs(&self, now: Instant) -> bool {
        self.stride.is_some_and(|(_, since)| since + HANG_MAX <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(instant: Instant) -> Moments {
        Moments { instant, boot: BootTime::default(), date: Timestamp::UNIX_EPOCH }
    }

    fn blockage(reason: LagReason) -> Blockage {
        Blockage { reason, path: None }
    }

    #[test]
    fn looks_that_fail_count_after_a_while_and_one_that_succeeds_ends_that() {
        let began = Instant::now();
        let mut sight = LookSight::new(moments(began));
        assert!(
            sight.blockage(began + STALE_MAX).is_none() && sight.blind_since(began + STALE_MAX).is_none()
        );

        sight.failed(blockage(LagReason::Unreplicable));
        let almost = began + STALE_MAX.saturating_sub(Duration::from_millis(1));
        assert_eq!(sight.blockage(almost), None);
        assert_eq!(sight.blind_since(almost).map(|good| good.instant), Some(began));
        assert_eq!(sight.blockage(began + STALE_MAX), Some(blockage(LagReason::Unreplicable)));

        sight.succeeded(moments(began + STALE_MAX));
        assert!(sight.blockage(began + 3 * STALE_MAX).is_none());
    }

    #[test]
    fn a_look_hangs_only_if_it_comes_no_further() {
        let began = Instant::now();
        let mut sight = LookSight::new(moments(began));
        sight.follow(Some(1), began);
        sight.follow(Some(2), began + HANG_MAX);
        sight.follow(Some(2), began + HANG_MAX + STALE_MAX);
        assert_eq!(sight.blockage(began + HANG_MAX + STALE_MAX), None, "it came further");
        assert_eq!(sight.blockage(began + 2 * HANG_MAX), Some(blockage(LagReason::ActiveDiskFails)));
        sight.follow(None, began + 2 * HANG_MAX);
        assert_eq!(sight.blockage(began + 2 * HANG_MAX), None, "it ended");
    }
}
