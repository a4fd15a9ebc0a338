//! What happens to an agent, and what it wants done about it.

use super::{AgentId, BootTime, Epoch, Lease, Message, Version, Write};

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The Lease was read, by a watch or because of [`Effect::ReadLease`].
    LeaseRead {
        /// Its content.
        lease: Lease,
        /// Its version.
        version: Version,
    },
    /// The API server applied a write. A write that fails in another way is reported by nothing: it is repeated.
    WriteApplied {
        /// The number of the write.
        number: u64,
        /// The version that it made.
        version: Version,
    },
    /// The API server refused a write because the Lease has another version than its base.
    WriteConflicted,
    /// Another agent said something; the transport vouches for who it was.
    Received {
        /// The sender.
        from: AgentId,
        /// What it said.
        message: Message,
    },
    /// The last process of the application has ended. Before any message that arrived after it.
    ApplicationEnded,
    /// The kernel closed, in order, all connections to the application of this tenure.
    Certificate {
        /// The epoch of the tenure.
        epoch: Epoch,
    },
    /// The time of [`Effect::WakeAt`] has come.
    Timer,
    /// A person or the operator wants something.
    Ordered(Order),
}

/// What a person or the operator may want of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Hand over to the peer; without effect unless it acts and its peer lives.
    SwitchOver,
    /// Let the tenure end: the application does not work any more, and does not end either. Nobody is handed anything
    /// before it has ended, so it may take until the hold is over.
    GiveUp,
    /// Do not act until [`Order::Unfence`].
    Fence,
    /// Act again when the rules permit it; without effect on who leaves.
    Unfence,
    /// Do not act any more, as the agent ends: also sees to it that the Lease is not left to name its last tenure.
    Leave,
    /// Whether the peer shall not act either: then nobody hands over to it.
    PeerFenced(bool),
    /// Do not claim the Lease until [`Order::Permit`]: the own copy of the application's state lacks something. A
    /// handover is accepted, as its sender knows better, and a tenure goes on.
    Withhold,
    /// Claim the Lease again when the rules permit it.
    Permit,
    /// The answer for an application that has ended and keeps state: whether the peer has all of it.
    Settle {
        /// It has; the active may hand over.
        is_level: bool,
    },
}

/// Something to do at once, in the order given; none may be waited for before the next event is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Say this to another agent; it may get lost.
    Send {
        /// The receiver.
        to: AgentId,
        /// What to say.
        message: Message,
    },
    /// Write the Lease if it has the version of the write's base.
    WriteLease(Write),
    /// Read the Lease from the store, not from a cache.
    ReadLease,
    /// Run the application in active mode, and publish the own address with this epoch.
    Activate {
        /// The epoch that every output must carry.
        epoch: Epoch,
        /// Not before this time, on the own clock: what is left of the application of a certified end may take as long.
        not_before: BootTime,
    },
    /// End the application; none of its processes may be left at this time.
    Stop {
        /// On the own clock.
        by: BootTime,
    },
    /// The same application, which is being ended, has until then: longer because the hold was renewed, or shorter.
    StopBy {
        /// On the own clock.
        by: BootTime,
    },
    /// Somebody else acts: end the application at once.
    Kill,
    /// Run the application in standby mode. Never before it has ended in active mode.
    StandBy,
    /// Report [`Event::Timer`] at this time; it replaces the time before.
    WakeAt(BootTime),
}
