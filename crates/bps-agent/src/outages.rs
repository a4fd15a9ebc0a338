//! Logs the first failure after a success, and the first success after a failure, and nothing in between.

use tracing::{info, warn};

/// Whether something fails at present.
#[derive(Debug, Default)]
pub struct Outages {
    is_out: bool,
}

impl Outages {
    /// It failed.
    pub fn begin(&mut self, message: &'static str, error: &(dyn std::error::Error + 'static)) {
        if !std::mem::replace(&mut self.is_out, true) {
            warn!(error, "{message}");
        }
    }

    /// It succeeded.
    pub fn end(&mut self, message: &'static str) {
        if std::mem::replace(&mut self.is_out, false) {
            info!("{message}");
        }
    }
}
