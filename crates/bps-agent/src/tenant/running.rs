//! What there is of the application.

use std::io;

use bps_protocol::BootTime;

use super::Lingering;
use crate::application::Application;
use crate::world::Machine;

/// What there is of it.
#[derive(Debug)]
pub(super) enum Running<On: Machine> {
    /// Nothing.
    Nothing,
    /// It was started only just before, and is started again at this time.
    Waiting(BootTime),
    /// All of it.
    Application(Application<On>),
    /// The application of a tenure that has passed to the peer.
    Lingering(Lingering<On>),
    /// It was to be started and was not: it has ended already, and nobody was told yet.
    Stillborn,
}

impl<On: Machine> Running<On> {
    /// Waits until nothing of it is left. May be dropped and called again.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        match self {
            Self::Nothing | Self::Waiting(_) => std::future::pending().await,
            Self::Application(application) | Self::Lingering(Lingering { application, .. }) => {
                application.ended().await.map(drop)
            }
            Self::Stillborn => Ok(()),
        }
    }
}
