//! Computes how evenly the resources of a node are used: Refined Balanced Resource Allocation (RBRA).
//!
//! Source: Huo, Li, Li, Xie and Li, "Refined Balanced Resource Allocation Based on Kubernetes", ICBASE 2022, CEUR-WS volume 3304,
//! paper 7. The paper contradicts itself in places; [ADR 0045] lists them with what is done here.
//!
//! [ADR 0045]: ../../../docs/adr/0045-rbra-is-an-extender-of-the-stock-scheduler.md

use clap::ValueEnum;

/// Highest score of a node; the lowest is 0.
pub const SCORE_MAX: u8 = 100;

/// Divisor in step 7 and equation 8 of the paper for any number of resources.
const LITERAL_DIVISOR: f64 = 3.0;

/// Keeps a score that is whole but for errors of `f64` from losing a point: three fractions of 0.1 are equal, yet their deviation is
/// above 0, and nodes that are alike would differ.
const ROUNDING: f64 = 1e-9;

/// Readings of the paper's standard deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Deviation {
    /// Root of the mean square, as in equations 10 and 11.
    #[default]
    Population,
    /// Root of the sum of squares, divided by 3, as printed in step 7 and equation 8.
    Literal,
}

/// Returns the score of a node of which these fractions of its resources would be requested, from 0 to [`SCORE_MAX`].
///
/// A fraction is requested by allocatable, from 0 to 1. Two of them score by their difference (equations 1 to 3), more by their
/// coefficient of variation (equations 10 to 13). A negative score of the paper is 0 here. Where nothing is requested there is
/// nothing out of balance. The fraction of a point is dropped, as kube-scheduler does.
pub fn balance(fractions: &[f64], deviation: Deviation) -> u8 {
    let score = match fractions {
        [] | [_] => f64::from(SCORE_MAX),
        [first, second] => (1.0 - (first - second).abs()) * f64::from(SCORE_MAX),
        more => (1.0 - variation(more, deviation)) * f64::from(SCORE_MAX),
    };
    whole(score)
}

/// Coefficient of variation: the standard deviation in relation to the mean.
fn variation(fractions: &[f64], deviation: Deviation) -> f64 {
    let count = f64::from(u32::try_from(fractions.len()).unwrap_or(u32::MAX));
    let mean = fractions.iter().sum::<f64>() / count;
    if mean == 0.0 {
        return 0.0;
    }

    let squares: f64 = fractions.iter().map(|fraction| (fraction - mean) * (fraction - mean)).sum();
    let deviation = match deviation {
        Deviation::Population => (squares / count).sqrt(),
        Deviation::Literal => squares.sqrt() / LITERAL_DIVISOR,
    };
    deviation / mean
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and SCORE_MAX")]
fn whole(score: f64) -> u8 {
    (score + ROUNDING).clamp(0.0, f64::from(SCORE_MAX)) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    /// The scores by both readings.
    fn both(fractions: &[f64]) -> [u8; 2] {
        [Deviation::Population, Deviation::Literal].map(|deviation| balance(fractions, deviation))
    }

    #[test]
    fn scores_are_those_of_the_formulas() {
        let right: [(&[f64], [u8; 2]); 10] = [
            (&[], [100, 100]),
            (&[0.3], [100, 100]),
            (&[0.75, 0.25], [50, 50]),
            (&[0.0, 0.0, 0.0], [100, 100]),
            (&[0.5, 0.5, 0.5], [100, 100]),
            (&[0.1, 0.1, 0.1], [100, 100]),
            // Mean 0.5, squares 0.125: 1 - 0.2041 / 0.5, and 1 - 0.1178 / 0.5.
            (&[0.25, 0.5, 0.75], [59, 76]),
            // One resource alone: -41.4 before it is clamped, and the least that the literal reading gives to three.
            (&[1.0, 0.0, 0.0], [0, 18]),
            // The paper's section 4.1: 300 m of 4,000 m, 1 of 32 GB, 10 of 400 GB.
            (&[0.075, 0.031_25, 0.025], [49, 70]),
            // Four: 0.25 each way around 0.5, and the literal reading still divides by 3.
            (&[0.25, 0.25, 0.75, 0.75], [50, 66]),
        ];
        for (fractions, wanted) in right {
            assert_eq!(both(fractions), wanted, "{fractions:?}");
        }
    }

    proptest! {
        #[test]
        fn how_full_a_node_is_does_not_change_its_score(
            fractions in proptest::collection::vec(0.001_f64..1.0, 3..6),
            share in 0.01_f64..1.0,
        ) {
            // The property behind the paper's result: Pods of one shape score alike on nodes of one shape, full or empty.
            let less: Vec<f64> = fractions.iter().map(|fraction| fraction * share).collect();
            for deviation in [Deviation::Population, Deviation::Literal] {
                prop_assert!(balance(&fractions, deviation).abs_diff(balance(&less, deviation)) <= 1);
            }
        }

        #[test]
        fn both_readings_order_nodes_alike(
            one in [0.0_f64..1.0, 0.0..1.0, 0.0..1.0],
            other in [0.0_f64..1.0, 0.0..1.0, 0.0..1.0],
        ) {
            let better = |deviation| balance(&one, deviation) > balance(&other, deviation);
            // Further apart than what rounding and clamping may hide.
            if balance(&one, Deviation::Population).abs_diff(balance(&other, Deviation::Population)) > 1 {
                prop_assert_eq!(better(Deviation::Population), better(Deviation::Literal));
            }
        }

        #[test]
        fn a_score_is_within_its_range(
            fractions in proptest::collection::vec(0.0_f64..=1.0, 0..8),
            is_literal in any::<bool>(),
        ) {
            let deviation = if is_literal { Deviation::Literal } else { Deviation::Population };
            prop_assert!(balance(&fractions, deviation) <= SCORE_MAX);
        }
    }
}
