//! What a figure should be at most, and whether it is. Pure.

use serde::Serialize;

use super::report::{Row, Unit};
use crate::bench::summary::Figures;

/// What a row should be at most, in the unit of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub enum Target {
    /// Nobody has said.
    #[default]
    Unsaid,
    /// In the middle, and at worst.
    Both(f64, f64),
    /// In the middle.
    Median(f64),
    /// At worst.
    Worst(f64),
    /// No request fails.
    NoneFailed,
    /// As the row that it stands beside; a reader judges.
    AsBeside,
}

impl Target {
    /// As the table says it; with a word if the row misses it.
    pub fn text(self, row: &Row, figures: &Figures) -> String {
        let said = self.words(row.unit);
        if self.is_missed(row, figures) { format!("{said}, missed") } else { said }
    }

    fn words(self, unit: Unit) -> String {
        match self {
            Self::Unsaid => "-".to_owned(),
            Self::Both(median, worst) => format!("{} / {}", unit.text(median), unit.text(worst)),
            Self::Median(most) | Self::Worst(most) => unit.text(most),
            Self::NoneFailed => "0 failed".to_owned(),
            Self::AsBeside => "as without".to_owned(),
        }
    }

    fn is_missed(self, row: &Row, figures: &Figures) -> bool {
        match self {
            Self::Unsaid | Self::AsBeside => false,
            Self::Both(median, worst) => figures.median > median || figures.worst > worst,
            Self::Median(most) => figures.median > most,
            Self::Worst(most) => figures.worst > most,
            Self::NoneFailed => row.failed.iter().any(|failed| *failed > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_worse_than_its_target_says_so() {
        let text = |target: Target, samples: &[f64], failed: usize| {
            let row = Row { target, samples: samples.to_vec(), failed: vec![0, failed], ..Row::default() };
            target.text(&row, &Figures::of(&row.samples).expect("samples"))
        };
        let (good, slow, torn) = (&[0.01, 0.02, 0.09][..], &[0.01, 0.05, 0.06][..], &[0.01, 0.02, 0.2][..]);
        let both = Target::Both(0.04, 0.1);
        assert_eq!(text(both, good, 9), "40 ms / 100 ms");
        assert_eq!([slow, torn].map(|samples| text(both, samples, 0)), ["40 ms / 100 ms, missed"; 2]);
        assert_eq!(text(Target::Median(0.02), torn, 0), "20 ms");
        assert_eq!(text(Target::Median(0.02), slow, 0), "20 ms, missed");
        assert_eq!(text(Target::Worst(0.15), torn, 0), "150 ms, missed");
        assert_eq!(text(Target::NoneFailed, torn, 0), "0 failed");
        assert_eq!(text(Target::NoneFailed, good, 1), "0 failed, missed");
        assert_eq!([Target::Unsaid, Target::AsBeside].map(|it| text(it, torn, 1)), ["-", "as without"]);
    }
}
