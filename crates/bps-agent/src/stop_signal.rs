//! By which signal an application is asked to end, and by which one its container is.

use clap::ValueEnum;
use rustix::process::Signal;

/// Signals by which containers are stopped beside SIGTERM and SIGINT, because their images say so (`STOPSIGNAL`): nginx and
/// php-fpm, haproxy, httpd. The same servers know them, as others do for other things, when somebody in the container sends
/// them.
const OF_IMAGES: [Signal; 3] = [Signal::QUIT, Signal::USR1, Signal::WINCH];
/// What the kernel calls a sender outside of the container: processes in it have other numbers.
const OUTSIDE: i32 = 0;

/// The signal that asks an application to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum StopSignal {
    /// What Kubernetes sends unless it is told otherwise.
    #[default]
    Sigterm,
    /// A fast end of databases such as Postgres.
    Sigint,
    /// A graceful end of nginx and php-fpm.
    Sigquit,
    /// For what ends with its terminal.
    Sighup,
    /// A graceful end of haproxy.
    Sigusr1,
    /// For what has a use of its own for the others.
    Sigusr2,
    /// A graceful end of httpd.
    Sigwinch,
}

impl StopSignal {
    /// For the kernel.
    pub fn signal(self) -> Signal {
        match self {
            Self::Sigterm => Signal::TERM,
            Self::Sigint => Signal::INT,
            Self::Sigquit => Signal::QUIT,
            Self::Sighup => Signal::HUP,
            Self::Sigusr1 => Signal::USR1,
            Self::Sigusr2 => Signal::USR2,
            Self::Sigwinch => Signal::WINCH,
        }
    }

    /// Whether a signal with this sender asks the whole container to end, and not only something of its application.
    ///
    /// A container runtime is outside; `kubectl exec` sends from inside.
    pub fn stops_container(self, signal: Signal, sender: Option<i32>) -> bool {
        sender == Some(OUTSIDE) && (signal == self.signal() || OF_IMAGES.contains(&signal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_stops_the_container_only_if_it_comes_from_outside() {
        let sender = [Some(OUTSIDE), Some(17), None];
        let stops = |own: StopSignal, signal| sender.map(|sender| own.stops_container(signal, sender));
        assert_eq!(stops(StopSignal::Sigterm, Signal::QUIT), [true, false, false]);
        assert_eq!(stops(StopSignal::Sigterm, Signal::HUP), [false; 3]);
        assert_eq!(stops(StopSignal::Sighup, Signal::HUP), [true, false, false]);
    }
}
