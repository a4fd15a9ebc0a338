//! Decides which seat of a Pod gets a Lease that names it.
//!
//! Pure. A seat with a copy that the Lease calls in sync needs nothing sent, and that copy may be the only one. So may
//! be the copy of a seat that was not given up: it goes last.

use bps_protocol::SeatNumber;
use bps_wire::level::{DirectoryId, Level};

/// A seat that has no Lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSeat {
    /// Which one.
    pub number: SeatNumber,
    /// Its state directory.
    pub directory: DirectoryId,
    /// What it had before; `None`: nothing yet.
    pub past: Option<Past>,
}

/// The last Lease of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// Uid of the Lease.
    pub lease: u128,
    /// The seats of a Pod count how often one was given up; this is the count after it. `None`: it had the Lease still
    /// when its agent ended.
    pub given_up: Option<u64>,
}

/// What a seat is to a Lease, the best one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fitness {
    /// The Lease calls its directory in sync.
    InSync,
    /// It had this Lease last: most of the state is there.
    Former,
    Empty,
    /// Another Lease had it, and needs nothing of it; the first one that was given up is the least likely to be wanted.
    GivenUp(u64),
    /// Another Lease may need it still.
    Kept,
}

/// The seat for the Lease with this uid, which says this of state directories; `None`: no seat is free.
pub fn choose(free: &[FreeSeat], lease: u128, level: &Level) -> Option<SeatNumber> {
    let best = free.iter().min_by_key(|seat| (fitness(seat, lease, level), seat.number));
    best.map(|seat| seat.number)
}

fn fitness(seat: &FreeSeat, lease: u128, level: &Level) -> Fitness {
    if level.names(seat.directory) {
        return Fitness::InSync;
    }
    match seat.past {
        None => Fitness::Empty,
        Some(past) if past.lease == lease => Fitness::Former,
        Some(Past { given_up: Some(count), .. }) => Fitness::GivenUp(count),
        Some(Past { given_up: None, .. }) => Fitness::Kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u128 = 50;
    const OTHER: u128 = 51;

    /// The directory of the seat has its number.
    fn seat(number: u8, past: Option<(u128, Option<u64>)>) -> FreeSeat {
        let past = past.map(|(lease, given_up)| Past { lease, given_up });
        FreeSeat { number: SeatNumber(number), directory: DirectoryId(number.into()), past }
    }

    fn in_sync(directory: u128) -> Level {
        Level::Only([directory, 99].map(DirectoryId).into())
    }

    #[test]
    fn a_lease_gets_the_seat_whose_copy_is_worth_most_to_it_and_least_to_others() {
        let empty = seat(0, None);
        let former = seat(1, Some((LEASE, Some(3))));
        let interrupted = seat(1, Some((LEASE, None)));
        let [first, later] = [(2, 1), (3, 2)].map(|(number, count)| seat(number, Some((OTHER, Some(count)))));
        let kept = seat(4, Some((OTHER, None)));
        let table = [
            (vec![], Level::Unsaid, None),
            (vec![empty, former, kept], in_sync(4), Some(4)),
            (vec![empty, former, first], in_sync(2), Some(2)),
            (vec![empty, former, first], in_sync(7), Some(1)),
            (vec![empty, interrupted, first], Level::Unsaid, Some(1)),
            (vec![empty, first, kept], Level::Unreadable, Some(0)),
            (vec![later, first, kept], Level::Unsaid, Some(2)),
            (vec![kept, later], Level::Unsaid, Some(3)),
            (vec![kept], Level::Unsaid, Some(4)),
            (vec![seat(6, None), seat(5, None)], Level::Unsaid, Some(5)),
        ];
        for (free, level, expected) in table {
            assert_eq!(choose(&free, LEASE, &level), expected.map(SeatNumber), "{free:?} {level:?}");
        }
    }
}
