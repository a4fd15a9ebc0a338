//! Shows what takes long: a spinner on a terminal, one line per finished step elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a spinner turns. Unit: milliseconds.
const TICK_MILLISECONDS: u64 = 100;

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Progress {
    /// Nothing: for tests.
    #[default]
    Silent,
    /// A line for each step on standard error.
    Shown,
}

/// One step that is under way.
pub struct Step {
    name: String,
    started: Instant,
    progress: Progress,
    spinner: Option<ProgressBar>,
}

impl Progress {
    /// Begins a step.
    pub fn step(self, name: &str) -> Step {
        let is_animated = self == Self::Shown && std::io::stderr().is_terminal();
        let spinner = is_animated.then(|| {
            let style =
                ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("a constant template");
            let spinner = ProgressBar::new_spinner().with_style(style).with_message(name.to_owned());
            spinner.enable_steady_tick(Duration::from_millis(TICK_MILLISECONDS));
            spinner
        });
        Step { name: name.to_owned(), started: Instant::now(), progress: self, spinner }
    }
}

impl Step {
    /// Ends a step that went well and says how long it took.
    pub fn done(self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
        if self.progress == Progress::Shown {
            eprintln!("{:<46} {:>7.1} s", self.name, self.started.elapsed().as_secs_f64());
        }
    }
}
