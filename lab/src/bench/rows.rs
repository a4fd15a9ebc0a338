//! The rows of the table, with the figures that they stand beside.
//!
//! Paper: M. Zhu, R. Kang, E. Oki (section III). Original: that paper's controller, built from its public
//! repository and measured on a cluster like this one, median / worst of 8; its handling time ends with its last action,
//! ours with the last acknowledged write, that of the status included. Pure.

/// Rows that one round measures together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Create, update, decrease, delete a primary.
    Cycle,
    /// Create with cold Pods that have one init container, as the paper's have.
    PlainGate,
    /// A client while a primary is deleted.
    ClientDelete,
    /// A client while a primary's process is killed.
    ClientKill,
    /// A ticket to a cold Pod.
    Gate,
    /// Counters of the operator around one create.
    Counters,
}

impl Group {
    /// All groups, in the order of the table.
    pub const ALL: [Self; 6] =
        [Self::Cycle, Self::PlainGate, Self::ClientDelete, Self::ClientKill, Self::Gate, Self::Counters];

    /// For progress.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cycle => "create, update, decrease, delete",
            Self::PlainGate => "create without image gate",
            Self::ClientDelete => "client while a primary is deleted",
            Self::ClientKill => "client while a primary is killed",
            Self::Gate => "ticket to a cold pod",
            Self::Counters => "reconciles and conflicts of one create",
        }
    }

    /// For names of sets.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cycle => "cycle",
            Self::PlainGate => "plain",
            Self::ClientDelete => "delete",
            Self::ClientKill => "kill",
            Self::Gate => "gate",
            Self::Counters => "count",
        }
    }
}

/// What the figures of a row are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// A number.
    Count,
}

impl Unit {
    /// Writes a figure with the digits that mean something.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Seconds => format!("{value:.3} s"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

/// A target: at most this. In the unit of the row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Of the median.
    pub median: f64,
    /// Of the 90th percentile; `None` if only the median counts.
    pub p90: Option<f64>,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// What `--only` calls it.
    pub id: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Of its figures.
    pub unit: Unit,
    /// What the paper measured.
    pub paper: &'static str,
    /// What the original controller did on such a cluster.
    pub original: &'static str,
    /// What it should be; `None` if something else decides.
    pub target: Option<Target>,
    /// What it is measured with.
    pub group: Group,
}

const fn both(median: f64, p90: f64) -> Target {
    Target { median, p90: Some(p90) }
}

const fn median(median: f64) -> Target {
    Target { median, p90: None }
}

/// The table.
pub const ROWS: &[Row] = &[
    Row {
        id: "handling-create",
        what: "handling: create 2/2/2",
        unit: Unit::Milliseconds,
        paper: "211 ms",
        original: "-",
        target: Some(both(20.0, 40.0)),
        group: Group::Cycle,
    },
    Row {
        id: "actions-create",
        what: "  of it, to the last action",
        unit: Unit::Milliseconds,
        paper: "-",
        original: "58 / 79 ms",
        target: None,
        group: Group::Cycle,
    },
    Row {
        id: "handling-update",
        what: "handling: update to 3/3/3",
        unit: Unit::Milliseconds,
        paper: "113 ms",
        original: "-",
        target: Some(both(15.0, 30.0)),
        group: Group::Cycle,
    },
    Row {
        id: "actions-update",
        what: "  of it, to the last action",
        unit: Unit::Milliseconds,
        paper: "-",
        original: "109 / 237 ms",
        target: None,
        group: Group::Cycle,
    },
    Row {
        id: "handling-decrease",
        what: "handling: decrease to 1/1/1",
        unit: Unit::Milliseconds,
        paper: "226 ms",
        original: "-",
        target: Some(both(15.0, 30.0)),
        group: Group::Cycle,
    },
    Row {
        id: "actions-decrease",
        what: "  of it, to the last action",
        unit: Unit::Milliseconds,
        paper: "-",
        original: "586 / 1050 ms",
        target: None,
        group: Group::Cycle,
    },
    Row {
        id: "handling-failure",
        what: "handling: primary deleted",
        unit: Unit::Milliseconds,
        paper: "79 ms",
        original: "-",
        target: Some(both(8.0, 20.0)),
        group: Group::Cycle,
    },
    Row {
        id: "actions-failure",
        what: "  of it, to the last action",
        unit: Unit::Milliseconds,
        paper: "-",
        original: "68 / 204 ms",
        target: None,
        group: Group::Cycle,
    },
    Row {
        id: "promoted",
        what: "  of it, to the promotion",
        unit: Unit::Milliseconds,
        paper: "-",
        original: "-",
        target: None,
        group: Group::Cycle,
    },
    Row {
        id: "total-create",
        what: "total: create until all in place",
        unit: Unit::Seconds,
        paper: "5.344 s",
        original: "1.246 / 1.348 s",
        target: Some(median(1.15)),
        group: Group::Cycle,
    },
    Row {
        id: "total-create-plain",
        what: "  the same without imageGate",
        unit: Unit::Seconds,
        paper: "5.344 s",
        original: "1.246 / 1.348 s",
        target: None,
        group: Group::PlainGate,
    },
    Row {
        id: "total-update",
        what: "total: update until all in place",
        unit: Unit::Seconds,
        paper: "3.681 s",
        original: "1.035 / 1.169 s",
        target: Some(median(0.90)),
        group: Group::Cycle,
    },
    Row {
        id: "total-decrease",
        what: "total: decrease until surplus terminating",
        unit: Unit::Seconds,
        paper: "2.137 s",
        original: "0.722 / 1.069 s",
        target: Some(median(0.05)),
        group: Group::Cycle,
    },
    Row {
        id: "delete-successor",
        what: "total: primary deleted, successor labelled",
        unit: Unit::Seconds,
        paper: "-",
        original: "-",
        target: Some(median(0.03)),
        group: Group::Cycle,
    },
    Row {
        id: "delete-restored",
        what: "total: primary deleted, three tiers back",
        unit: Unit::Seconds,
        paper: "1.933 s",
        original: "0.707 / 1.066 s",
        target: Some(median(0.65)),
        group: Group::Cycle,
    },
    Row {
        id: "client-delete-failed",
        what: "client, primary deleted: failed requests",
        unit: Unit::Count,
        paper: "-",
        original: "226",
        target: Some(both(0.0, 0.0)),
        group: Group::ClientDelete,
    },
    Row {
        id: "client-delete-out",
        what: "client, primary deleted: out",
        unit: Unit::Seconds,
        paper: "-",
        original: "1.105 / 1.150 s",
        target: None,
        group: Group::ClientDelete,
    },
    Row {
        id: "client-delete-exposed",
        what: "service, primary deleted: successor exposed",
        unit: Unit::Seconds,
        paper: "-",
        original: "-",
        target: Some(median(0.03)),
        group: Group::ClientDelete,
    },
    Row {
        id: "client-kill-out",
        what: "client, primary killed: out",
        unit: Unit::Seconds,
        paper: "-",
        original: "1.231 / 2.130 s",
        target: Some(both(0.70, 1.15)),
        group: Group::ClientKill,
    },
    Row {
        id: "client-kill-failed",
        what: "client, primary killed: failed requests",
        unit: Unit::Count,
        paper: "-",
        original: "-",
        target: None,
        group: Group::ClientKill,
    },
    Row {
        id: "gate-gone",
        what: "cold pod: ticket sent -> gate gone",
        unit: Unit::Milliseconds,
        paper: "-",
        original: "-",
        target: Some(median(5.0)),
        group: Group::Gate,
    },
    Row {
        id: "gate-ready",
        what: "cold pod: ticket sent -> application Ready",
        unit: Unit::Seconds,
        paper: "-",
        original: "-",
        target: None,
        group: Group::Gate,
    },
    Row {
        id: "reconciles",
        what: "reconciles of one create",
        unit: Unit::Count,
        paper: "-",
        original: "27",
        target: Some(median(8.0)),
        group: Group::Counters,
    },
    Row {
        id: "conflicts",
        what: "conflicts (409) of one create",
        unit: Unit::Count,
        paper: "-",
        original: "6.5",
        target: Some(both(0.0, 0.0)),
        group: Group::Counters,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_rows_have_the_same_name_and_every_group_has_one() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.id).collect();
        assert_eq!(names.len(), ROWS.len());
        let groups: BTreeSet<_> = ROWS.iter().map(|row| row.group).collect();
        assert_eq!(groups, BTreeSet::from(Group::ALL));
    }
}
