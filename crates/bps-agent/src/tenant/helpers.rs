//! Keeps the processes beside the application: at most one hook and one check.
//!
//! Reports the end of each once. The end of an application counts only after the hook that fences it; see
//! [`Helpers::is_fencing`].

use std::future::pending;
use std::io;

use crate::hook::{Helper, Hook, Occasion};
use crate::tree::Ending;
use crate::world::{Kernel, Machine};

/// The processes beside the application.
#[derive(Debug)]
pub(super) struct Helpers<On: Machine = Kernel> {
    hook: Option<Hook<On>>,
    /// Detects that the application does not work any more.
    check: Option<Helper<On>>,
}

/// The end of a process beside the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelperEnd {
    /// The hook for this occasion.
    Hook(Occasion, Ending),
    /// The check.
    Check(Ending),
}

impl<On: Machine> Default for Helpers<On> {
    fn default() -> Self {
        Self { hook: None, check: None }
    }
}

impl<On: Machine> Helpers<On> {
    /// Keeps a hook that was started, if there is one for its occasion. The hook before must have been ended.
    pub(super) fn add_hook(&mut self, hook: Option<Hook<On>>) {
        debug_assert!(self.hook.is_none(), "hooks run one at a time");
        self.hook = hook;
    }

    /// Keeps the check of an application that was just started.
    pub(super) fn add_check(&mut self, check: Helper<On>) {
        self.check = Some(check);
    }

    /// Kills the hook, if one runs.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(super) fn end_hook(&mut self) -> io::Result<()> {
        self.hook.take().map_or(Ok(()), |hook| hook.helper.kill())
    }

    /// Kills the check, if there is one.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(super) fn end_check(&mut self) -> io::Result<()> {
        self.check.take().map_or(Ok(()), Helper::kill)
    }

    /// Forgets them: they ended with the application, and their results are not for the next one.
    pub(super) fn end(&mut self) {
        (self.check, self.hook) = (None, None);
    }

    /// Whether a hook runs.
    pub(super) fn has_hook(&self) -> bool {
        self.hook.is_some()
    }

    /// Whether the hook that promotes the application has not done its work yet.
    pub(super) fn is_promoting(&self) -> bool {
        self.hook.as_ref().is_some_and(|hook| hook.occasion == Occasion::Active)
    }

    /// Whether a hook runs that has to end before another agent acts, even if it ends the application itself.
    pub(super) fn is_fencing(&self) -> bool {
        self.hook.as_ref().is_some_and(Hook::is_fence)
    }

    /// Waits until one of them has ended by itself. May be dropped and called again.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(super) async fn ended(&mut self) -> io::Result<HelperEnd> {
        let Self { hook, check } = self;
        tokio::select! {
            // A hook that has done its work comes before a verdict on the application.
            biased;
            ended = hook_ended(hook) => ended,
            ended = check_ended(check) => ended,
        }
    }
}

async fn hook_ended<On: Machine>(running: &mut Option<Hook<On>>) -> io::Result<HelperEnd> {
    let Some(Hook { occasion, helper }) = running else { return pending().await };
    let end = HelperEnd::Hook(*occasion, helper.ended().await?);
    *running = None;
    Ok(end)
}

async fn check_ended<On: Machine>(running: &mut Option<Helper<On>>) -> io::Result<HelperEnd> {
    let Some(helper) = running else { return pending().await };
    let end = HelperEnd::Check(helper.ended().await?);
    *running = None;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures::FutureExt as _;

    use super::*;
    use crate::tree::Environment;

    /// The launcher ends at once. Other tests may reap it, so this one neither waits for its end nor expects to
    /// kill it.
    fn started() -> Helper {
        let launcher = Path::new("/bin/true");
        Helper::start((&Kernel, launcher), &["true".into()], &Environment::new()).unwrap()
    }

    #[tokio::test]
    async fn a_hook_runs_until_it_is_ended_alone_or_with_its_application() {
        let mut helpers: Helpers = Helpers::default();
        let seen = |helpers: &Helpers| [helpers.has_hook(), helpers.is_promoting(), helpers.is_fencing()];
        assert_eq!(seen(&helpers), [false; 3]);
        let expected = [
            (Occasion::Active, [true, true, false]),
            (Occasion::Standby, [true, false, false]),
            (Occasion::Fence, [true, false, true]),
        ];
        for (occasion, runs) in expected {
            helpers.add_hook(Some(Hook { occasion, helper: started() }));
            helpers.add_check(started());
            assert_eq!(seen(&helpers), runs);
            drop(helpers.end_hook());
            assert_eq!(seen(&helpers), [false; 3]);

            helpers.add_hook(Some(Hook { occasion, helper: started() }));
            helpers.end();
            assert_eq!(seen(&helpers), [false; 3]);
        }
        assert!(helpers.ended().now_or_never().is_none(), "no helper is left that could end");
        assert!(helpers.end_hook().is_ok() && helpers.end_check().is_ok());
    }
}
