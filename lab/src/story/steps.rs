//! The steps of the paper's demonstration, and what the paper measured for each.
//!
//! Pure.

use crate::stage::{Act, Counts};

/// What is done in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Create the set.
    Create,
    /// Change the numbers.
    Resize,
    /// Delete a primary.
    DeletePrimary,
    /// Kill the process of a primary.
    CrashPrimary,
}

/// Two times. Unit: seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// How long the controller worked.
    pub handling: f64,
    /// From the request until everything was in place.
    pub total: f64,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// What is done.
    pub deed: Deed,
    /// What is done, in a word or two.
    pub word: &'static str,
    /// What is done, for the reader.
    pub title: &'static str,
    /// How many Pods there are afterwards.
    pub counts: Counts,
    /// What the paper measured (section III); `None` if it did not.
    pub paper: Option<Times>,
}

/// The demonstration, in the paper's order, and a crash that the paper does not have.
pub const STEPS: [Step; 5] = [
    Step {
        deed: Deed::Create,
        word: "create",
        title: "Create the paper's set: 2 primaries, 2 hot backups, 2 cold backups \
                (kubectl apply -f examples/paper-fig3.yaml)",
        counts: Counts::of_each(2),
        paper: Some(Times { handling: 0.211, total: 5.344 }),
    },
    Step {
        deed: Deed::Resize,
        word: "update",
        title: "More traffic: 3 of each. A hot backup becomes primary, cold ones become hot, new ones are cold",
        counts: Counts::of_each(3),
        paper: Some(Times { handling: 0.113, total: 3.681 }),
    },
    Step {
        deed: Deed::Resize,
        word: "decrease",
        title: "Less traffic: 1 of each. The surplus is not exposed any more and ends",
        counts: Counts::of_each(1),
        paper: Some(Times { handling: 0.226, total: 2.137 }),
    },
    Step {
        deed: Deed::DeletePrimary,
        word: "delete a primary",
        title: "A failure: the primary is deleted. Hot becomes primary, cold becomes hot, a new one is cold",
        counts: Counts::of_each(1),
        paper: Some(Times { handling: 0.079, total: 1.933 }),
    },
    Step {
        deed: Deed::CrashPrimary,
        word: "crash a primary",
        title: "Another failure: the primary's process is killed. The two swap roles when it is back",
        counts: Counts::of_each(1),
        paper: None,
    },
];

/// What one step took, beside the paper.
pub fn line(step: &Step, act: &Act) -> String {
    let paper = |text: String| if step.paper.is_some() { format!(" (paper {text})") } else { String::new() };
    let paper_handling = paper(seconds(step.paper.map(|times| times.handling)));
    let paper_total = paper(seconds(step.paper.map(|times| times.total)));
    let handling = seconds(handling(act));
    let successor = act
        .until_succeeded()
        .map(|time| format!(", a successor serves after {} s", seconds(Some(time.as_secs_f64()))));
    format!(
        "   handling {handling} s{paper_handling}, total {} s{paper_total}{}",
        seconds(Some(act.total().as_secs_f64())),
        successor.unwrap_or_default()
    )
}

/// All steps beside the paper.
pub fn summary(told: &[(&Step, Act)]) -> String {
    let row = |word: &str, cells: [String; 4]| {
        let [handling, paper_handling, total, paper_total] = cells;
        format!("{word:<18}{handling:>10}{paper_handling:>10}{total:>12}{paper_total:>10}")
    };
    let mut lines = vec![
        format!("{:<18}{:>20}{:>22}", "", "handling [s]", "total [s]"),
        row("", ["here", "paper", "here", "paper"].map(str::to_owned)),
    ];
    lines.extend(told.iter().map(|(step, act)| {
        let total = Some(act.total().as_secs_f64());
        let paper = (step.paper.map(|times| times.handling), step.paper.map(|times| times.total));
        row(step.word, [handling(act), paper.0, total, paper.1].map(seconds))
    }));
    lines.join("\n")
        + "\n\nOne run each, and the paper's machine was another: 2 cores, Kubernetes 1.20. `make bench` repeats \
            the steps.\nHandling: from the arrival of the event to the acknowledgement of the last write of the \
            look that it caused,\nas the operator logs it. Total: from the request until the API server shows \
            everything in place.\n"
}

fn handling(act: &Act) -> Option<f64> {
    Some(act.handling()?.first_ms / 1e3)
}

fn seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}
