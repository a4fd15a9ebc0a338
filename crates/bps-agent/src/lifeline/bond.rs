//! The pair of sockets between the agent and its application, in whose queue lifelines live.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::tree::{is_ending, living};

/// Most lifelines of one application. Nobody can take one back out of the queue, so each time that the other agent
/// connects costs one until the application ends; after these there is no certificate of it.
const LIFELINES_MAX: u32 = 64;

/// The agent's end of the pair.
#[derive(Debug)]
pub struct Bond {
    socket: AsyncFd<OwnedFd>,
    /// Number of the application's end in every process that inherited it and did not move it.
    number: RawFd,
    /// What `/proc/<pid>/fd` shows of the application's end.
    shown: PathBuf,
    passed: AtomicU32,
}

impl Bond {
    /// Makes a pair; the second value is for the application, which inherits it when it is started.
    ///
    /// It must be closed in this process right after the start: no other child may inherit it.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, inherited) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        fcntl_setfd(&inherited, FdFlags::empty())?;
        let number = inherited.as_raw_fd();
        let shown = std::fs::read_link(format!("/proc/self/fd/{number}"))?;
        #[expect(
            deprecated,
            reason = "an OwnedFd is open until it is dropped: all that the unsafe form asks for"
        )]
        let socket = AsyncFd::with_interest(own, Interest::READABLE)?;
        Ok((Self { socket, number, shown, passed: AtomicU32::new(0) }, inherited))
    }

    /// Puts a lifeline into the queue; the caller must close its own copy.
    ///
    /// # Errors
    /// What the kernel refused, or there are too many.
    pub fn pass(&self, lifeline: &impl AsFd) -> io::Result<()> {
        if self.passed.fetch_add(1, Ordering::Relaxed) >= LIFELINES_MAX {
            self.passed.store(LIFELINES_MAX, Ordering::Relaxed);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let lifelines = [lifeline.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&lifelines)), "there is space for one");
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // A descriptor travels with at least one byte.
        sendmsg(self.socket.get_ref(), &[IoSlice::new(&[0])], &mut ancillary, flags)?;
        Ok(())
    }

    /// How many lifelines were put into the queue.
    pub fn passed(&self) -> u32 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Waits until nobody holds the application's end any more, or the application has said something on it.
    pub async fn ended(&self) {
        // An error would mean that nothing can be waited for; what is not watched must not count.
        drop(self.socket.readable().await);
    }

    /// Whether there is a process below this one, and each of them holds the application's end.
    ///
    /// Reads the process list: not for the thread that must not wait.
    ///
    /// # Errors
    /// The process list cannot be read.
    pub fn is_held_by_all(&self) -> io::Result<bool> {
        let living = living()?;
        Ok(!living.is_empty() && living.into_iter().all(|pid| self.is_held_by(pid)))
    }

    /// A process that has ended holds nothing back, nor one that ends while it is looked at: it seems to hold nothing then, or
    /// must not be looked at. One whose descriptors must not be read otherwise counts as not holding it.
    fn is_held_by(&self, pid: i32) -> bool {
        let descriptors = PathBuf::from(format!("/proc/{pid}/fd"));
        let is_shown = |file: &Path| std::fs::read_link(file).is_ok_and(|link| link == self.shown);
        // A process may have thousands; the first look is nearly always enough.
        if is_shown(&descriptors.join(self.number.to_string())) {
            return true;
        }
        let found = std::fs::read_dir(descriptors)
            .is_ok_and(|mut files| files.any(|file| file.is_ok_and(|file| is_shown(&file.path()))));
        found || is_ending(pid)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_lifeline_ends_in_order_with_the_last_holder_and_not_with_the_agent() {
        let (bond, inherited) = Bond::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        bond.pass(&near).unwrap();
        drop((near, bond));

        far.set_nonblocking(true).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        far.set_nonblocking(false).unwrap();
        drop(inherited);
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }

    #[tokio::test]
    async fn a_process_holds_nothing_back_once_it_has_ended_and_else_counts_as_not_holding_it() {
        let (bond, inherited) = Bond::new().unwrap();
        drop(inherited);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        assert!(!bond.is_held_by(number));
        child.kill().unwrap();
        while living().unwrap().contains(&number) {
            std::thread::yield_now();
        }
        // Its parent took no note yet, unless another test did.
        assert!(bond.is_held_by(number));
        drop(child.wait());
        assert!(bond.is_held_by(number));
    }

    #[tokio::test]
    async fn the_end_of_the_last_holder_is_noticed_and_lifelines_are_bounded() {
        let (bond, inherited) = Bond::new().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for _ in 0..LIFELINES_MAX {
            bond.pass(&file).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(bond.pass(&file).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        }
        drop(inherited);
        bond.ended().await;
    }
}
