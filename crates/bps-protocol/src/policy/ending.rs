//! How long an application has that is being ended.

use std::time::Duration;

use crate::{Agent, BootTime, Effect, Moment, Role};

/// The end of a tenure. Without patience, and if nobody wants it, it lasts as long as the hold that it began with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ending {
    /// How long an application may take that somebody wants to end.
    pub(super) patience: Duration,
    /// Until when it has, if somebody wants this one to end; never before the end of the hold that it began with.
    by: Option<BootTime>,
    /// What was told last.
    told: Option<BootTime>,
}

impl Ending {
    /// Somebody wants the application to end, from now on.
    pub(super) fn plan(&mut self, at: &Moment<'_>, agent: &Agent) {
        self.by = Some((at.now + self.patience).max(agent.hold_end()));
    }

    /// It begins to end; returns until when it has.
    pub(super) fn begun(&mut self, agent: &Agent) -> BootTime {
        let by = self.by(agent);
        self.told = Some(by);
        by
    }

    /// Whether it may take longer than this hold lasts.
    pub(super) fn outlasts(&self, hold_end: BootTime) -> bool {
        self.by.is_some_and(|by| hold_end < by)
    }

    /// Says so if it has more or less time than was told; forgets it once it has ended.
    pub(super) fn moved(&mut self, agent: &Agent) -> Option<Effect> {
        if agent.role != Role::Stopping {
            (self.by, self.told) = (None, None);
            return None;
        }
        let by = self.by(agent);
        // What nobody planned has what it was told first: an answer that is late makes it no longer.
        let is_news = self.by.is_some() && self.told.is_some_and(|told| told != by);
        is_news.then(|| {
            self.told = Some(by);
            Effect::StopBy { by }
        })
    }

    fn by(&self, agent: &Agent) -> BootTime {
        self.by.map_or(agent.hold_end(), |by| by.min(agent.hold_end()))
    }
}
