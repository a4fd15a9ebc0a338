//! Every change of role that an agent can make, as one table, and the diagram drawn from it.
//!
//! The rules do not read the table; the model checker holds every change in every world against it, and every row
//! against the worlds.

use std::fmt::Write as _;

use super::Role;

/// One arrow of the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Role before.
    pub from: Role,
    /// Role after.
    pub to: Role,
    /// The rules that make the change.
    pub rules: &'static str,
    /// When it happens, for people.
    pub when: &'static str,
}

/// Every change of role, in the order of a tenure; at most one row for a pair of roles.
pub const TRANSITIONS: [Transition; 16] = [
    row(Role::Standby, Role::Active, "R3 R4", "its claim is answered, or it accepts a handover"),
    row(Role::Standby, Role::Lapsed, "R3", "the answer to its claim comes too late to act"),
    row(Role::Active, Role::Stopping, "R1", "its hold nears its end, or it is told to stop"),
    row(Role::Active, Role::Ended, "R1", "its application has ended by itself"),
    row(Role::Active, Role::Lapsed, "R1", "its application and its hold end together"),
    row(Role::Active, Role::Standby, "R1", "its application has ended, and it knows who took over"),
    row(Role::Stopping, Role::Ended, "R1", "its application has ended while the hold lasts"),
    row(Role::Stopping, Role::Lapsed, "R1", "its application has ended with the hold"),
    row(Role::Stopping, Role::Standby, "R1", "its application has ended, and it knows who took over"),
    row(Role::Ended, Role::HandedOver, "R4", "it hands over to its peer"),
    row(Role::Ended, Role::Standby, "R1 R5", "it releases the Lease, or reads that somebody took over"),
    row(Role::Ended, Role::Lapsed, "R1", "its hold ends before it could hand over"),
    row(
        Role::HandedOver,
        Role::Standby,
        "R1 R2 R3",
        "its hold ends, or it promises, learns or claims something else",
    ),
    row(Role::HandedOver, Role::Active, "R4", "its peer hands back"),
    row(Role::Lapsed, Role::Active, "R3 R4", "it resumes, takes over, or accepts a handover"),
    row(Role::Lapsed, Role::Standby, "R2 R3", "it promises, or learns of a later tenure"),
];

const fn row(from: Role, to: Role, rules: &'static str, when: &'static str) -> Transition {
    Transition { from, to, rules, when }
}

/// The table as a state diagram in Mermaid's notation.
pub fn diagram() -> String {
    let mut text = String::from(
        "stateDiagram-v2\n    [*] --> Standby: it starts, bound for T unless for the first time (R7)\n",
    );
    for Transition { from, to, rules, when } in TRANSITIONS {
        writeln!(text, "    {from:?} --> {to:?}: {when} ({rules})").expect("a string takes everything");
    }
    text
}
