//! How the Pods of a set are shared out over subsets of the nodes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::SignedDuration;

use super::{Role, SubsetName};

/// Where the Pods of a set are to be, as far as the set itself says it; without subsets they may be anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Subsets of the nodes, in the order of the specification; names are unique.
    pub subsets: Vec<Subset>,
    /// Whether primaries go back, by a swap of roles, to the subsets that want them.
    pub rebalances: bool,
    /// How long a Pod waits for a node of its subset before its place is filled in another one; `None`: for ever.
    pub patience: Option<SignedDuration>,
}

/// One subset of the nodes, and how many Pods of each role it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subset {
    /// Its name, as Pods carry it.
    pub name: SubsetName,
    /// Primaries wanted in it.
    pub replicas: usize,
    /// Hot backups wanted in it.
    pub hot_backups: usize,
    /// Cold backups wanted in it.
    pub cold_backups: usize,
    /// Primaries of it that keep the former template in a rollout.
    pub partition: usize,
}

impl Subset {
    /// Pods wanted in a role.
    pub const fn count(&self, role: Role) -> usize {
        match role {
            Role::Primary => self.replicas,
            Role::Hot => self.hot_backups,
            Role::Cold => self.cold_backups,
        }
    }
}

/// What one subset is to have of the Pods of one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubsetShare {
    /// So many.
    Pods(usize),
    /// So many percent of all, 0 to 100.
    Percent(usize),
    /// At least `least`, and at most `most` if there is such a bound.
    Within {
        /// At least so many.
        least: usize,
        /// At most so many.
        most: Option<usize>,
    },
}

impl SubsetShare {
    /// What a subset has that says nothing: as many as any other that says nothing.
    pub const EVEN: Self = Self::Within { least: 0, most: None };
}

/// Shares `count` Pods of one role out; one number for each share, and together `count`, if there is a share.
///
/// Fixed numbers come first, then percentages, then lower bounds, then upper bounds, each in the order of the shares, and
/// what is left goes evenly to shares without an upper bound. Percentages are rounded by largest remainder, so that those which
/// add up to 100 add up to the count. No count is refused: what exceeds every share is spread over those that take any.
///
/// `above` is what the same subsets have of the tiers above. Between shares that are alike, a Pod goes to the subset with the
/// fewest of them: else a primary and the backup that is to follow it would be in one subset.
pub fn share_out(shares: &[SubsetShare], count: usize, above: &[usize]) -> Vec<usize> {
    let mut sharing = Sharing { shares, above, given: vec![0; shares.len()], count, left: count };
    sharing.give(|share, _| if let SubsetShare::Pods(pods) = share { *pods } else { 0 });
    sharing.give_percentages();
    sharing.give(|share, _| if let SubsetShare::Within { least, .. } = share { *least } else { 0 });
    sharing.give(|share, has| match share {
        SubsetShare::Within { most: Some(most), .. } => most.saturating_sub(has),
        SubsetShare::Pods(_) | SubsetShare::Percent(_) | SubsetShare::Within { .. } => 0,
    });
    sharing.level(|share| matches!(share, SubsetShare::Within { most: None, .. }));
    sharing.level(|share| match share {
        SubsetShare::Pods(pods) | SubsetShare::Percent(pods) => *pods > 0,
        SubsetShare::Within { most, .. } => *most != Some(0),
    });
    sharing.level(|_| true);
    sharing.given
}

/// Pods of one role while they are shared out.
struct Sharing<'a> {
    shares: &'a [SubsetShare],
    /// What each subset has of the tiers above.
    above: &'a [usize],
    given: Vec<usize>,
    count: usize,
    left: usize,
}

/// A subset among those that may have one more Pod; the least is first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Taker {
    has: usize,
    above: usize,
    index: usize,
}

impl Sharing<'_> {
    fn add(&mut self, index: usize, wanted: usize) {
        let taken = wanted.min(self.left);
        self.left -= taken;
        self.given[index] += taken;
    }

    /// Gives each share, in their order, so many more.
    fn give(&mut self, wanted: impl Fn(&SubsetShare, usize) -> usize) {
        for (index, share) in self.shares.iter().enumerate() {
            self.add(index, wanted(share, self.given[index]));
        }
    }

    /// Gives percentages of the count by largest remainder.
    fn give_percentages(&mut self) {
        let count = self.count;
        let percentages = self.shares.iter().enumerate().filter_map(|(index, share)| match share {
            SubsetShare::Percent(percent) => Some((index, *percent)),
            SubsetShare::Pods(_) | SubsetShare::Within { .. } => None,
        });
        let mut percentages: Vec<(usize, usize)> = percentages.collect();
        let sum: usize = percentages.iter().map(|(_, percent)| percent).sum();
        let mut rest = count * sum / 100;
        for (index, percent) in &percentages {
            let whole = (count * percent / 100).min(rest);
            self.add(*index, whole);
            rest -= whole;
        }

        let order =
            |index: usize, percent: usize| (Reverse(count * percent % 100), self.above_of(index), index);
        percentages.sort_by_key(|(index, percent)| order(*index, *percent));
        for (index, _) in percentages.into_iter().take(rest) {
            self.add(index, 1);
        }
    }

    /// Gives what is left to those that may take it, always to the one that has the fewest.
    fn level(&mut self, may_take: impl Fn(&SubsetShare) -> bool) {
        let takers = self.shares.iter().enumerate().filter(|(_, share)| may_take(share));
        let taker = |index: usize| Taker { has: self.given[index], above: self.above_of(index), index };
        let mut takers: BinaryHeap<Reverse<Taker>> = takers.map(|(index, _)| Reverse(taker(index))).collect();
        while self.left > 0
            && let Some(Reverse(Taker { has, above, index })) = takers.pop()
        {
            self.add(index, 1);
            takers.push(Reverse(Taker { has: has + 1, above, index }));
        }
    }

    fn above_of(&self, index: usize) -> usize {
        self.above.get(index).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::SubsetShare::{Percent, Pods, Within};
    use super::*;

    const EVEN: SubsetShare = SubsetShare::EVEN;

    #[test]
    fn percentages_that_add_up_to_all_give_away_all_at_every_scale() {
        let halves: Vec<_> = (0..6).map(|count| share_out(&[Percent(50), Percent(50)], count, &[])).collect();
        assert_eq!(halves, [[0, 0], [1, 0], [1, 1], [2, 1], [2, 2], [3, 2]]);
        assert_eq!(share_out(&[Percent(33), Percent(33), Percent(34)], 10, &[]), [3, 3, 4]);
        assert_eq!(share_out(&[Percent(70), Percent(20), Percent(10)], 7, &[]), [5, 1, 1]);
    }

    #[test]
    fn numbers_come_first_then_percentages_then_bounds_and_the_rest_is_even() {
        let bounded = Within { least: 1, most: Some(4) };
        assert_eq!(share_out(&[EVEN, bounded, Percent(50), Pods(2)], 10, &[]), [0, 3, 5, 2]);
        assert_eq!(share_out(&[EVEN, bounded, Percent(50), Pods(2)], 20, &[]), [4, 4, 10, 2]);
        assert_eq!(share_out(&[EVEN, EVEN, EVEN], 7, &[]), [3, 2, 2]);
        assert_eq!(share_out(&[Within { least: 3, most: None }, EVEN], 4, &[]), [3, 1]);
    }

    #[test]
    fn a_backup_that_may_be_anywhere_is_where_the_primary_is_not() {
        for even in [EVEN, Percent(50)] {
            let replicas = share_out(&[even, even], 1, &[]);
            let hot = share_out(&[even, even], 1, &replicas);
            assert_eq!((replicas, hot), (vec![1, 0], vec![0, 1]));
        }
        // Each tier is even by itself; the tiers above decide between equals alone.
        assert_eq!(share_out(&[EVEN, EVEN], 3, &[3, 0]), [1, 2]);
    }

    #[test]
    fn a_count_below_or_beyond_all_shares_is_shared_out_all_the_same() {
        assert_eq!(share_out(&[Pods(2), Pods(2)], 3, &[]), [2, 1]);
        assert_eq!(share_out(&[Pods(2), Pods(2), Pods(0)], 7, &[]), [4, 3, 0]);
        assert_eq!(share_out(&[Pods(0), Percent(0)], 3, &[]), [2, 1]);
        assert_eq!(share_out(&[Pods(4), Percent(100)], 6, &[]), [4, 2]);
        assert_eq!(share_out(&[], 6, &[]), [0; 0]);
    }

    fn any_share() -> impl Strategy<Value = SubsetShare> {
        prop_oneof![
            (0_usize..6).prop_map(Pods),
            (0_usize..=100).prop_map(Percent),
            (0_usize..4, prop::option::of(0_usize..5))
                .prop_map(|(least, beyond)| Within { least, most: beyond.map(|beyond| least + beyond) }),
        ]
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_count(
            shares in prop::collection::vec(any_share(), 1..6),
            count in 0_usize..60,
        ) {
            prop_assert_eq!(share_out(&shares, count, &[]).iter().sum::<usize>(), count);
        }

        /// What is promised is kept whenever all promises together can be.
        #[test]
        fn bounds_hold_if_they_can(
            bounds in prop::collection::vec((0_usize..4, 0_usize..4), 1..6),
            beyond_least in any::<prop::sample::Index>(),
        ) {
            let shares: Vec<_> =
                bounds.iter().map(|(least, beyond)| Within { least: *least, most: Some(least + beyond) }).collect();
            let least: usize = bounds.iter().map(|(least, _)| least).sum();
            let beyond: usize = bounds.iter().map(|(_, beyond)| beyond).sum();
            let count = least + beyond_least.index(beyond + 1);
            for (given, (least, beyond)) in share_out(&shares, count, &[]).iter().zip(&bounds) {
                prop_assert!((*least..=least + beyond).contains(given));
            }
        }
    }
}
