//! Median, 90th percentile and worst of samples, as a table.
//!
//! Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rounds::Round;
use super::rows::{ROWS, Row, Target};

/// Everything that was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Samples {
    /// Samples by row, in the unit of the row, in the order in which they were taken.
    pub rows: BTreeMap<&'static str, Vec<f64>>,
    /// Why rounds failed.
    pub failures: Vec<String>,
}

impl Samples {
    /// Adds what one round measured.
    pub fn extend(&mut self, round: &Round) {
        for (row, value) in &round.values {
            self.rows.entry(row).or_default().push(*value);
        }
    }
}

/// Three figures for many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Number of samples.
    pub count: usize,
    /// The sample in the middle; of an even number, the mean of the two.
    pub median: f64,
    /// The smallest sample that at least 90 % do not exceed (nearest rank).
    pub p90: f64,
    /// The largest.
    pub worst: f64,
}

impl Figures {
    /// The figures of some samples; `None` of none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let worst = *sorted.last()?;
        let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
        // Rank ceil(0.9 n), counted from 1.
        let p90 = sorted[(count * 9).div_ceil(10) - 1];
        Some(Self { count, median, p90, worst })
    }

    fn meets(&self, target: Target) -> bool {
        self.median <= target.median && target.p90.is_none_or(|p90| self.p90 <= p90)
    }
}

/// The table of all wanted rows that were measured.
pub fn table(samples: &Samples, is_wanted: impl Fn(&str) -> bool) -> String {
    let header = ["", "n", "median", "p90", "worst", "target", "original here", "paper"].map(str::to_owned);
    let mut lines = vec![header];
    for row in ROWS.iter().filter(|row| is_wanted(row.id)) {
        let figures = samples.rows.get(row.id).and_then(|samples| Figures::of(samples));
        lines.push(figures.map_or_else(|| unmeasured(row), |figures| line(row, &figures)));
    }
    let note = "* not met. Target: median / p90. Original: the paper's own controller on such a cluster, median / \
                worst, n=8.\n";
    aligned(&lines) + note
}

fn line(row: &Row, figures: &Figures) -> [String; 8] {
    let Figures { count, median, p90, worst } = figures;
    let is_missed = row.target.is_some_and(|target| !figures.meets(target));
    let target = target_text(row) + if is_missed { " *" } else { "" };
    let [median, p90, worst] = [median, p90, worst].map(|value| row.unit.format(*value));
    let beside = [row.original.to_owned(), row.paper.to_owned()];
    let [original, paper] = beside;
    [row.what.to_owned(), count.to_string(), median, p90, worst, target, original, paper]
}

fn unmeasured(row: &Row) -> [String; 8] {
    let none = || "-".to_owned();
    let (original, paper) = (row.original.to_owned(), row.paper.to_owned());
    [row.what.to_owned(), "0".to_owned(), none(), none(), none(), target_text(row), original, paper]
}

fn target_text(row: &Row) -> String {
    match row.target {
        None => "-".to_owned(),
        Some(Target { median, p90: None }) => row.unit.format(median),
        Some(Target { median, p90: Some(p90) }) => {
            format!("{} / {}", row.unit.format(median), row.unit.format(p90))
        }
    }
}

/// Columns side by side, the first to the left, the others to the right.
pub(super) fn aligned<const COLUMNS: usize>(lines: &[[String; COLUMNS]]) -> String {
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    let line = |line: &[String; COLUMNS]| {
        let first = format!("{:<width$}", line[0], width = widths[0]);
        let others = line.iter().zip(widths).skip(1).map(|(cell, width)| format!("{cell:>width$}"));
        let cells: Vec<_> = std::iter::once(first).chain(others).collect();
        cells.join("  ") + "\n"
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_nearest_rank() {
        let samples: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(Figures::of(&samples), Some(Figures { count: 20, median: 10.5, p90: 18.0, worst: 20.0 }));
        assert_eq!(Figures::of(&[3.0]), Some(Figures { count: 1, median: 3.0, p90: 3.0, worst: 3.0 }));
        assert_eq!(Figures::of(&[]), None);
    }

    #[test]
    fn a_missed_target_is_marked() {
        let samples = |value| Samples {
            rows: BTreeMap::from([("handling-create", vec![value])]),
            failures: Vec::new(),
        };
        let is_row = |id: &str| id == "handling-create";
        assert!(!table(&samples(20.0), is_row).contains("40.0 ms *"));
        assert!(table(&samples(20.1), is_row).contains("40.0 ms *"));
    }
}
