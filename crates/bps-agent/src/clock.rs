//! An alarm on the clock of the protocol: both continue while the machine sleeps.
//!
//! Tokio's own timers do not, so an agent would notice only late that its hold ended in the meantime.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bps_protocol::BootTime;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

pub use bps_runtime::boot_clock::now;
use bps_runtime::boot_clock::on_kernel_clock;

use super::world::{AlarmClock, Timer};

/// An alarm that is set to one moment at a time.
#[derive(Debug)]
pub struct Alarm {
    descriptor: AsyncFd<OwnedFd>,
}

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[expect(
            deprecated,
            reason = "an OwnedFd is open until it is dropped: all that the unsafe form asks for"
        )]
        let descriptor = AsyncFd::new(descriptor)?;
        Ok(Self { descriptor })
    }
}

impl Timer for Alarm {
    fn set(&self, at: Option<BootTime>) -> io::Result<()> {
        self.descriptor.get_ref().set(at)
    }
}

impl AlarmClock for Alarm {
    async fn rung(&self) -> io::Result<()> {
        loop {
            let mut guard = self.descriptor.readable().await?;
            // It may have been set anew since it became readable; then there is nothing to read.
            let read = guard.try_io(|descriptor| Ok(rustix::io::read(descriptor.get_ref(), &mut [0; 8])?));
            if let Ok(read) = read {
                return read.map(drop);
            }
        }
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.get_ref().as_fd()
    }
}

/// The timer of an alarm, which may be another process's.
impl Timer for OwnedFd {
    fn set(&self, at: Option<BootTime>) -> io::Result<()> {
        // Zero switches it off, and no machine asks at the very moment of its start.
        let at = at.map_or(Duration::ZERO, on_kernel_clock);
        let it_value = Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(at.subsec_nanos()),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(self, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn an_alarm_goes_off_once_not_before_its_time_and_can_be_put_off() {
        let alarm = Alarm::new().unwrap();
        alarm.set(Some(BootTime(0))).unwrap();
        alarm.rung().await.unwrap();
        assert!(alarm.rung().now_or_never().is_none(), "it rang twice");

        alarm.set(Some(now())).unwrap();
        let wait = Duration::from_millis(20);
        let later = now() + wait;
        alarm.set(Some(later)).unwrap();
        alarm.rung().await.unwrap();
        // The clock of the kernel may be slewed by a tenth.
        assert!(now() + wait / 9 >= later);
    }
}
