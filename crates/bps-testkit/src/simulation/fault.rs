//! Faults, where they strike, and schedules of them as text that can be printed, kept and replayed.

use std::{fmt, str::FromStr};

/// Which request or watch event a fault strikes. All four are counted from 1 over a whole run, over every
/// incarnation of the operator, so that a second fault can fall into the recovery from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// The n-th request that writes (a wake-up counts as one).
    Write(u32),
    /// The n-th request that reads (get, list, start of a watch).
    Read(u32),
    /// The n-th event that any watch is about to deliver.
    Event(u32),
    /// The n-th request about a Lease, a Secret or an Event: such requests never end, so they are counted apart.
    Background(u32),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The request never arrives; the client sees a reset connection.
    LostBefore,
    /// The request is carried out; the client sees a reset connection.
    LostAfter,
    /// The request is carried out; the client sees 504.
    TimeoutAfter,
    Conflict,
    Forbidden,
    NotFound,
    Gone,
    Invalid,
    /// 429, with so many seconds in `Retry-After`.
    TooManyRequests(u32),
    Internal,
    Unavailable,
    /// The answer takes so many milliseconds of simulated time.
    Slow(u32),
    /// The operator dies; the request never arrives.
    CrashBefore,
    /// The request is carried out and the operator dies.
    CrashAfter,
    /// A read that allows it (`resourceVersion=0`) is served from a state that is so many events old.
    Stale(u32),
    /// The event is never delivered, and the watch goes on.
    Drop,
    /// The event is delivered twice.
    Duplicate,
    /// The watch ends in 410, history is compacted, and the client must list again.
    Gap,
    /// The watch ends without a word.
    Close,
    /// Deliveries of this watch wait until so many further events are committed, or 30 s have passed.
    Lag(u32),
    /// The watch stays open and never delivers again.
    Stall,
}

/// Faults without a parameter, by name.
const PLAIN: &[(&str, Fault)] = &[
    ("lost-before", Fault::LostBefore),
    ("lost-after", Fault::LostAfter),
    ("timeout-after", Fault::TimeoutAfter),
    ("409", Fault::Conflict),
    ("403", Fault::Forbidden),
    ("404", Fault::NotFound),
    ("410", Fault::Gone),
    ("422", Fault::Invalid),
    ("500", Fault::Internal),
    ("503", Fault::Unavailable),
    ("crash-before", Fault::CrashBefore),
    ("crash-after", Fault::CrashAfter),
    ("drop", Fault::Drop),
    ("duplicate", Fault::Duplicate),
    ("gap", Fault::Gap),
    ("close", Fault::Close),
    ("stall", Fault::Stall),
];

/// Faults with a number, by name.
type Numbered = (&'static str, fn(u32) -> Fault);
const NUMBERED: &[Numbered] =
    &[("429", Fault::TooManyRequests), ("slow", Fault::Slow), ("stale", Fault::Stale), ("lag", Fault::Lag)];

/// Everything that can befall a write.
pub const WRITE_FAULTS: &[Fault] = &[
    Fault::LostBefore,
    Fault::LostAfter,
    Fault::TimeoutAfter,
    Fault::Conflict,
    Fault::Forbidden,
    Fault::NotFound,
    Fault::Gone,
    Fault::Invalid,
    Fault::TooManyRequests(1),
    Fault::Internal,
    Fault::Unavailable,
    Fault::Slow(2_000),
    Fault::CrashBefore,
    Fault::CrashAfter,
];

/// Everything that can befall a read.
pub const READ_FAULTS: &[Fault] = &[
    Fault::LostBefore,
    Fault::Forbidden,
    Fault::Gone,
    Fault::TooManyRequests(1),
    Fault::Internal,
    Fault::Unavailable,
    Fault::Slow(2_000),
    Fault::CrashBefore,
    Fault::Stale(1),
    Fault::Stale(4),
];

/// Everything that can befall a watch event.
pub const EVENT_FAULTS: &[Fault] =
    &[Fault::Drop, Fault::Duplicate, Fault::Gap, Fault::Close, Fault::Lag(1), Fault::Lag(4), Fault::Stall];

/// Which faults strike where. Printed as `w3:lost-after,r2:slow=1500,e5:drop,b1:500`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Plan(pub Vec<(Choice, Fault)>);

impl Plan {
    /// The fault for a choice, if one is planned.
    pub fn at(&self, choice: Choice) -> Option<Fault> {
        self.0.iter().find(|(planned, _)| *planned == choice).map(|(_, fault)| *fault)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(n) => write!(f, "w{n}"),
            Self::Read(n) => write!(f, "r{n}"),
            Self::Event(n) => write!(f, "e{n}"),
            Self::Background(n) => write!(f, "b{n}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = PLAIN.iter().find(|(_, fault)| fault == self) {
            return f.write_str(name);
        }
        let (Self::TooManyRequests(n) | Self::Slow(n) | Self::Stale(n) | Self::Lag(n)) = *self else {
            unreachable!("every fault is in one of the two tables")
        };
        let (name, _) = NUMBERED.iter().find(|(_, make)| make(n) == *self).expect("in the second table");
        write!(f, "{name}={n}")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(choice, fault)| format!("{choice}:{fault}")).collect();
        f.write_str(&parts.join(","))
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts
            .map(|part| one(part).ok_or_else(|| format!("no such fault: {part}")))
            .collect::<Result<_, _>>()
            .map(Plan)
    }
}

fn one(text: &str) -> Option<(Choice, Fault)> {
    let (choice, fault) = text.split_once(':')?;
    let number = choice.get(1..)?.parse().ok()?;
    let choice = match choice.as_bytes()[0] {
        b'w' => Choice::Write(number),
        b'r' => Choice::Read(number),
        b'e' => Choice::Event(number),
        b'b' => Choice::Background(number),
        _ => return None,
    };
    let fault = match fault.split_once('=') {
        Some((name, n)) => NUMBERED.iter().find(|(known, _)| *known == name)?.1(n.parse().ok()?),
        None => PLAIN.iter().find(|(known, _)| *known == fault)?.1,
    };
    Some((choice, fault))
}
