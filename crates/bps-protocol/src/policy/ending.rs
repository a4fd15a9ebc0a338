//! How long an application has that is being ended.

use std::time::Duration;

use crate::{Agent, BootTime, Effect, Moment, Role};

/// The end of a tenure. Without patience, and if nobody wants it, it lasts as long as the hold that it began with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ending {
    /// How long an application may take that somebody wants to end.
    pub(super) patience: Duration,
    /// Until when it has, if somebody wants this one to end.
    by: Option<BootTime>,
    /// What was told last.
    told: Option<BootTime>,
}

impl Ending {
    /// Somebody wants the application to end, from now on.
    pub(super) fn plan(&mut self, at: &Moment<'_>, agent: &Agent) {
        self.by = Some(self.wanted(at, agent));
    }

    /// Somebody wants it once more, who may have less time.
    pub(super) fn hasten(&mut self, at: &Moment<'_>, agent: &Agent) {
        let wanted = self.wanted(at, agent);
        self.by = self.by.map(|by| by.min(wanted));
    }

    /// It is to end with its hold.
    pub(super) fn give_up(&mut self) {
        self.by = None;
    }

    /// It begins to end; returns until when it has.
    pub(super) fn begun(&mut self, agent: &Agent) -> BootTime {
        let by = self.by(agent);
        self.told = Some(by);
        by
    }

    /// Whether the hold is to be renewed: for as long as the application has, and another one for what comes after its end.
    pub(super) fn needs_hold(&self, at: &Moment<'_>, agent: &Agent) -> bool {
        self.by.is_some_and(|by| agent.hold_end() < by + at.timing.hold)
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

    /// At least what is left of an ordinary hold.
    fn wanted(&self, at: &Moment<'_>, agent: &Agent) -> BootTime {
        (at.now + self.patience).max(agent.hold_end().min(at.now + at.timing.hold))
    }

    fn by(&self, agent: &Agent) -> BootTime {
        self.by.map_or(agent.hold_end(), |by| by.min(agent.hold_end()))
    }
}
