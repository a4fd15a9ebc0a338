//! How many Pods every subset of the nodes has in each role, beside how many it is to have.
//!
//! What runs changes its role by a label, and what has started cannot wait again. So Pods are compared from the top: primaries;
//! primaries and hot backups together; all. A subset that lacks a primary and has a hot backup too many lacks nothing but a swap.

use std::cmp::Reverse;

use crate::model::{Desired, Role};

/// Pods of each subset as the plan makes them, in the order of the wish; empty if the set has no subsets.
#[derive(Clone, Debug, Default)]
pub(super) struct Balance {
    rows: Vec<Row>,
}

/// One subset.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    wanted: Counts,
    has: Counts,
    /// Whether its nodes have no room: a Pod of it has waited for one for too long.
    is_full: bool,
}

/// Pods by role.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    primaries: usize,
    hot: usize,
    cold: usize,
}

impl Counts {
    const fn of(&mut self, role: Role) -> &mut usize {
        match role {
            Role::Primary => &mut self.primaries,
            Role::Hot => &mut self.hot,
            Role::Cold => &mut self.cold,
        }
    }

    /// Pods of this role and of those above it.
    const fn down_to(self, role: Role) -> usize {
        match role {
            Role::Primary => self.primaries,
            Role::Hot => self.primaries + self.hot,
            Role::Cold => self.primaries + self.hot + self.cold,
        }
    }
}

impl Row {
    const fn lack(self, role: Role) -> usize {
        self.wanted.down_to(role).saturating_sub(self.has.down_to(role))
    }

    const fn excess(self, role: Role) -> usize {
        self.has.down_to(role).saturating_sub(self.wanted.down_to(role))
    }
}

impl Balance {
    /// What is wanted; no Pod is entered yet.
    pub(super) fn of(desired: &Desired) -> Self {
        let row = |subset: &crate::model::Subset| Row {
            wanted: Counts {
                primaries: subset.count(Role::Primary),
                hot: subset.count(Role::Hot),
                cold: subset.count(Role::Cold),
            },
            has: Counts::default(),
            is_full: false,
        };
        Self { rows: desired.topology.subsets.iter().map(row).collect() }
    }

    pub(super) fn enter(&mut self, subset: usize, role: Role) {
        *self.rows[subset].has.of(role) += 1;
    }

    pub(super) fn leave(&mut self, subset: usize, role: Role) {
        *self.rows[subset].has.of(role) -= 1;
    }

    /// Has no more Pods made for a subset.
    pub(super) fn close(&mut self, subset: usize) {
        self.rows[subset].is_full = true;
    }

    /// Whether there are subsets, and Pods wait for nodes in each.
    pub(super) fn is_full(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.is_full)
    }

    /// The subset that a new Pod of a role is made for; of several that are alike the first. `None` if there are no subsets.
    pub(super) fn neediest(&self, role: Role) -> Option<usize> {
        let rank = |index: usize, row: Row| {
            (!row.is_full, row.lack(role), Reverse(row.excess(role)), Reverse(index))
        };
        (0..self.rows.len()).max_by_key(|index| rank(*index, self.rows[*index]))
    }

    /// Gives one more Pod of a subset this role; returns how many it has then beyond its share.
    pub(super) fn join(&mut self, subset: Option<usize>, role: Role) -> usize {
        // What is in no subset is beyond every share.
        let Some(subset) = subset else { return 1 };
        self.enter(subset, role);
        self.rows[subset].excess(role)
    }

    /// Gives one more Pod of a subset this role if it has less than its share; returns whether it got it.
    pub(super) fn receive(&mut self, subset: Option<usize>, role: Role) -> bool {
        let Some(subset) = subset.filter(|subset| self.has_lack(*subset, role)) else { return false };
        self.enter(subset, role);
        true
    }

    /// Gives one Pod of a role up if its subset has more than its share; returns whether it was.
    pub(super) fn spare(&mut self, subset: Option<usize>, role: Role) -> bool {
        let Some(subset) = subset else { return true };
        let is_spare = self.has_excess(subset, role);
        if is_spare {
            self.leave(subset, role);
        }
        is_spare
    }

    /// Whether a subset has more Pods than its share, down to this role.
    pub(super) fn has_excess(&self, subset: usize, role: Role) -> bool {
        self.rows[subset].excess(role) > 0
    }

    /// Whether any subset has more Pods than its share, down to this role.
    pub(super) fn has_any_excess(&self, role: Role) -> bool {
        self.rows.iter().any(|row| row.excess(role) > 0)
    }

    /// Whether a subset has fewer Pods than its share, down to this role.
    pub(super) fn has_lack(&self, subset: usize, role: Role) -> bool {
        self.rows[subset].lack(role) > 0
    }

    /// Pods, down to a role, that are in one subset and belong to another one.
    pub(super) fn misplaced(&self, role: Role) -> usize {
        self.exchanged(role, |_| true)
    }

    /// Those of them that can be made in the other one: not where Pods wait for nodes.
    pub(super) fn movable(&self, role: Role) -> usize {
        self.exchanged(role, |row| !row.is_full)
    }

    fn exchanged(&self, role: Role, takes: impl Fn(&Row) -> bool) -> usize {
        let lack: usize = self.rows.iter().filter(|row| takes(row)).map(|row| row.lack(role)).sum();
        let excess: usize = self.rows.iter().map(|row| row.excess(role)).sum();
        lack.min(excess)
    }
}
