//! Which primaries of former templates a rollout may still replace: those that no partition keeps.

use super::{Desired, PodView, UpdateKind};

/// Primaries of former templates beyond those that the partitions of their subsets keep.
///
/// Which Pods of a subset are kept is not said: any of them, as many as its partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replaceable {
    /// Those of each subset, in the order of the wish.
    of_subset: Vec<usize>,
    /// Those of no subset, which no subset's partition keeps.
    elsewhere: usize,
    /// How many of all the partition of the set lets go.
    at_most: usize,
}

impl Replaceable {
    /// Counts them among the primaries of a set.
    pub fn among<'a>(desired: &Desired, primaries: impl IntoIterator<Item = &'a PodView>) -> Self {
        let subsets = &desired.topology.subsets;
        let mut counts = Self { of_subset: vec![0; subsets.len()], ..Self::default() };
        for view in primaries.into_iter().filter(|view| !desired.is_current(view)) {
            *counts.count_of(view.subset) += 1;
            counts.at_most += 1;
        }
        counts.at_most = counts.at_most.saturating_sub(desired.update.partition);
        if desired.update.kind == UpdateKind::BackupFirst {
            for (count, subset) in counts.of_subset.iter_mut().zip(subsets) {
                *count = count.saturating_sub(subset.partition);
            }
        }
        counts
    }

    /// How many a rollout replaces: neither the partition of the set nor those of the subsets keep them.
    pub fn count(&self) -> usize {
        self.at_most.min(self.sum())
    }

    /// Whether a rollout may replace a primary of a former template in this subset.
    pub fn has_one_in(&self, subset: Option<usize>) -> bool {
        self.in_subset(subset) > 0
    }

    /// Whether the partitions of the subsets keep every primary of a former template.
    pub fn is_empty(&self) -> bool {
        self.sum() == 0
    }

    /// Takes one of a subset; returns whether there was one.
    pub fn take(&mut self, subset: Option<usize>) -> bool {
        let has_one = self.has_one_in(subset);
        if has_one {
            *self.count_of(subset) -= 1;
        }
        has_one
    }

    fn in_subset(&self, subset: Option<usize>) -> usize {
        subset.map_or(self.elsewhere, |subset| self.of_subset[subset])
    }

    fn count_of(&mut self, subset: Option<usize>) -> &mut usize {
        match subset {
            Some(subset) => &mut self.of_subset[subset],
            None => &mut self.elsewhere,
        }
    }

    fn sum(&self) -> usize {
        self.of_subset.iter().sum::<usize>() + self.elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Role, Subset, SubsetName, UpdatePolicy};
    use crate::testing as given;

    /// A set with a subset for each of these partitions.
    fn wish(partitions: &[usize]) -> Desired {
        let mut desired = given::desired([3, 0, 0]);
        let subset = |(index, partition): (usize, &usize)| Subset {
            name: SubsetName(format!("s{index}")),
            replicas: 0,
            hot_backups: 0,
            cold_backups: 0,
            partition: *partition,
        };
        desired.topology.subsets = partitions.iter().enumerate().map(subset).collect();
        desired
    }

    /// A primary of the former template in this subset.
    fn former(subset: Option<usize>) -> PodView {
        PodView { subset, revision: given::outdated(), ..given::pod("a", Role::Primary, 0) }
    }

    #[test]
    fn a_primary_is_replaced_if_neither_partition_keeps_it() {
        let pods = [Some(0), Some(0), Some(1), None].map(former);
        let count = |partition: usize, partitions: &[usize]| {
            let mut desired = wish(partitions);
            desired.update.partition = partition;
            Replaceable::among(&desired, &pods).count()
        };
        assert_eq!([count(0, &[0, 0]), count(1, &[0, 0]), count(9, &[0, 0])], [4, 3, 0]);
        assert_eq!([count(0, &[1, 0]), count(0, &[9, 9]), count(3, &[1, 0])], [3, 1, 1]);
    }

    #[test]
    fn a_pod_of_the_present_template_is_not_counted_for_a_partition() {
        let present = PodView { subset: Some(0), ..given::pod("b", Role::Primary, 1) };
        let counts = Replaceable::among(&wish(&[1]), &[present, former(Some(0))]);
        assert_eq!((counts.count(), counts.has_one_in(Some(0)), counts.is_empty()), (0, false, true));
    }

    #[test]
    fn partitions_of_subsets_are_those_of_a_rollout_alone() {
        let mut desired = wish(&[9]);
        desired.update = UpdatePolicy { kind: UpdateKind::OnDelete, ..desired.update };
        assert!(Replaceable::among(&desired, &[former(Some(0))]).has_one_in(Some(0)));
    }

    #[test]
    fn one_of_each_subset_is_taken_until_there_is_none() {
        let mut counts = Replaceable::among(&wish(&[1, 0]), &[Some(0), Some(0), None].map(former));
        let taken = [Some(0), Some(0), Some(1), None, None].map(|subset| counts.take(subset));
        assert_eq!(taken, [true, false, false, true, false]);
    }
}
