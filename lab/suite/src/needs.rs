//! Declares what each part of the suite needs of the machine, and for how long it may have it.
//!
//! Parts that are not in the table keep a processor busy: most tests decide or compute.

use std::time::Duration;

/// Bound of a part that has none of its own. Source: the longest takes 110 s on two cores that it has to itself.
pub(crate) const PART_WITHIN: Duration = Duration::from_secs(900);
/// Bound of one lint. Source: clippy takes 120 s on two cores that have compiled nothing yet.
pub(crate) const LINT_WITHIN: Duration = Duration::from_secs(1_800);
/// Bound of the compilation of all tests. Source: 10 minutes on two cores that have compiled nothing yet.
pub(crate) const COMPILE_WITHIN: Duration = Duration::from_secs(3_600);
/// Bound of the compilation of the programs of Kubernetes and Helm. Source: 15 minutes on two cores, once.
pub(crate) const PROGRAMS_WITHIN: Duration = Duration::from_secs(5_400);
/// Bound of the claims. Source: 18 minutes on two cores, plus packages of the distribution that may be missing.
const CLUSTER_WITHIN: Duration = Duration::from_secs(3_600);

/// How much of the machine a part takes while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// All of it: no other part may run beside it.
    Machine,
    /// A processor or more, for as long as it runs.
    Processor,
    /// Little: it waits most of the time, and gets a processor when it wants one.
    Waiting,
}

/// What a part needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// How much of the machine it takes.
    pub(crate) share: Share,
    /// Whether it does nothing for any user but root.
    pub(crate) is_for_root: bool,
    /// Whether all that it says is shown even if all is well: it has a table of its own.
    pub(crate) is_shown: bool,
    /// How long it may take; after that it is killed.
    pub(crate) within: Duration,
    /// How long it took when this was written. Orders the parts of the first run; later runs know better.
    pub(crate) expected: Duration,
    /// What it is started with.
    pub(crate) arguments: &'static [&'static str],
}

impl Needs {
    /// Those of a part of which nothing is known.
    pub(crate) const DEFAULT: Self = Self {
        share: Share::Processor,
        is_for_root: false,
        is_shown: false,
        within: PART_WITHIN,
        expected: Duration::from_secs(10),
        arguments: &[],
    };
}

/// A compiled test: package and target as Cargo names them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestName {
    /// The package.
    pub(crate) package: String,
    /// The target: the name of a library, of a program, or of a file or folder in `tests`.
    pub(crate) target: String,
}

/// What the tests need that need something special, by package and target.
const TABLE: &[(&str, &str, Needs)] = &[
    // 198.18.0.0/15, the bridge and the cgroups of a cluster are there once on a machine.
    ("lab", "cluster", CLAIMS),
    // It also compares all mounts, links and folders of the machine before and after.
    ("lab", "lab_lifecycle", Needs { expected: secs(60), ..CLUSTER }),
    // Agents that wait for each other, three pairs at a time; what waits for its turn counts as a thread.
    ("lab", "api", Needs { expected: secs(200), arguments: &["--test-threads=6"], ..CONTROL_PLANES }),
    ("lab", "control_plane", Needs { expected: secs(30), ..CONTROL_PLANES }),
];

const CLAIMS: Needs = Needs { within: CLUSTER_WITHIN, expected: secs(1_100), is_shown: true, ..CLUSTER };
const CLUSTER: Needs = Needs { share: Share::Machine, is_for_root: true, ..Needs::DEFAULT };
/// On free ports of the loopback interface, in directories of their own: any number fits on a machine.
const CONTROL_PLANES: Needs = Needs { share: Share::Waiting, ..Needs::DEFAULT };

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What a test needs.
pub(crate) fn of(test: &TestName) -> Needs {
    let found =
        TABLE.iter().find(|(package, target, _)| (*package, *target) == (&test.package, &test.target));
    found.map_or(Needs::DEFAULT, |(_, _, needs)| *needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(package: &str, target: &str) -> Share {
        of(&TestName { package: package.to_owned(), target: target.to_owned() }).share
    }

    #[test]
    fn tests_with_nodes_have_the_machine_to_themselves_and_those_without_wait() {
        assert_eq!(["cluster", "lab_lifecycle"].map(|target| share("lab", target)), [Share::Machine; 2]);
        assert_eq!(["api", "control_plane"].map(|target| share("lab", target)), [Share::Waiting; 2]);
    }

    #[test]
    fn any_other_test_keeps_a_processor_busy() {
        assert_eq!(share("lab", "lab"), Share::Processor);
        assert_eq!(share("another", "api"), Share::Processor);
    }
}
