//! How often an agent gives its role up because its disk fails, and how long it leaves the role to the other Pod.
//!
//! Pure: the present moment is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// Time between two times that an agent gives its role up. 10 min: the disk of the other Pod may be as bad. Then the role
/// moves twice in this time, and each move costs the clients less than a second.
const GIVE_UP_EVERY: Duration = Duration::from_secs(600);
/// How long it claims nothing then. 30 s: more than a claim takes with an API server that is slow. If the other Pod is lost
/// in the meantime, the service is not down for longer.
const STEP_BACK: Duration = Duration::from_secs(30);

/// When an agent gave its role up because its disk failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resignation {
    last: Option<Instant>,
}

impl Resignation {
    /// Whether the role is to be given up now; it counts as given up then.
    pub fn gives_up(&mut self, now: Instant) -> bool {
        let may = !self.is_within(now, GIVE_UP_EVERY);
        if may {
            self.last = Some(now);
        }
        may
    }

    /// Whether it leaves the role to the other Pod: it would else be the first to claim what it has released.
    pub fn steps_back(&self, now: Instant) -> bool {
        self.is_within(now, STEP_BACK)
    }

    fn is_within(&self, now: Instant, span: Duration) -> bool {
        self.last.is_some_and(|last| now < last + span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_bad_disks_do_not_pass_the_role_to_and_fro() {
        let (mut resignation, began) = (Resignation::default(), Instant::now());
        assert!(!resignation.steps_back(began));
        assert!(resignation.gives_up(began));
        assert!(resignation.steps_back(began + STEP_BACK / 2) && !resignation.steps_back(began + STEP_BACK));
        assert!(!resignation.gives_up(began + GIVE_UP_EVERY / 2));
        assert!(resignation.gives_up(began + GIVE_UP_EVERY), "a refusal does not count");
    }
}
