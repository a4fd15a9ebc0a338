//! Decides which seat of a Pod gets a Lease that names it.
//!
//! Pure. A seat with a copy that the Lease calls in sync needs nothing sent, and that copy may be the only one. So may
//! be the copy of a seat that was not given up: it goes last. What another Lease calls in sync is not given away.

use bps_protocol::SeatNumber;
use bps_wire::level::{DirectoryId, Level};

/// A seat that has no Lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSeat {
    /// Which one.
    pub number: SeatNumber,
    /// Its state directory.
    pub directory: DirectoryId,
    /// What it had before.
    pub past: SeatPast,
}

/// What a seat had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatPast {
    /// No Lease yet.
    Nothing,
    /// This Lease last.
    Lease {
        /// Its uid.
        lease: u128,
        /// The seats of a Pod count how often one was given up; this is the count after it. `None`: it had the Lease
        /// still when its agent ended, or the Lease was deleted while it called the copy in sync.
        given_up: Option<u64>,
    },
    /// A Lease, but the note of it cannot be understood.
    Unreadable,
}

/// What a Lease says of state directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseLevel {
    /// Its uid.
    pub lease: u128,
    /// Which directories it calls in sync.
    pub level: Level,
}

/// The seat that a Lease gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatChoice {
    /// Which one.
    pub number: SeatNumber,
    /// Another Lease had the seat last, and what is in it makes room.
    pub replaces_copy: bool,
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

/// The seat for this Lease; `None`: none is free whose copy no other Lease needs. `others` are all other Leases of the
/// group, which matter only if a copy would be replaced.
pub fn choose(free: &[FreeSeat], wanted: &LeaseLevel, others: &[LeaseLevel]) -> Option<SeatChoice> {
    let fit = free.iter().map(|seat| (fitness(seat, wanted), seat));
    let may_have = |(fitness, seat): &(Fitness, &FreeSeat)| {
        *fitness == Fitness::InSync || !others.iter().any(|other| needs(other, seat))
    };
    let best = fit.filter(may_have).min_by_key(|(fitness, seat)| (*fitness, seat.number));
    best.map(|(fitness, seat)| SeatChoice {
        number: seat.number,
        replaces_copy: match fitness {
            Fitness::InSync | Fitness::Former | Fitness::Empty => false,
            Fitness::GivenUp(_) | Fitness::Kept => true,
        },
    })
}

fn fitness(seat: &FreeSeat, LeaseLevel { lease, level }: &LeaseLevel) -> Fitness {
    if level.names(seat.directory) {
        return Fitness::InSync;
    }
    match seat.past {
        SeatPast::Nothing => Fitness::Empty,
        SeatPast::Lease { lease: last, .. } if last == *lease => Fitness::Former,
        SeatPast::Lease { given_up: Some(count), .. } => Fitness::GivenUp(count),
        SeatPast::Lease { given_up: None, .. } | SeatPast::Unreadable => Fitness::Kept,
    }
}

/// Whether a Lease calls the copy of a seat in sync, or may do so.
fn needs(LeaseLevel { lease, level }: &LeaseLevel, seat: &FreeSeat) -> bool {
    match level {
        Level::Unsaid => false,
        Level::Only(_) => level.names(seat.directory),
        Level::Unreadable => match seat.past {
            SeatPast::Nothing => false,
            SeatPast::Lease { lease: last, .. } => last == *lease,
            SeatPast::Unreadable => true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u128 = 50;
    const OTHER: u128 = 51;

    /// The directory of the seat has its number.
    fn seat(number: u8, past: SeatPast) -> FreeSeat {
        FreeSeat { number: SeatNumber(number), directory: DirectoryId(number.into()), past }
    }

    fn of(lease: u128, given_up: Option<u64>) -> SeatPast {
        SeatPast::Lease { lease, given_up }
    }

    fn in_sync(directory: u128) -> Level {
        Level::Only([directory, 99].map(DirectoryId).into())
    }

    fn chosen(free: &[FreeSeat], level: Level, others: &[LeaseLevel]) -> Option<(u8, bool)> {
        let choice = choose(free, &LeaseLevel { lease: LEASE, level }, others);
        choice.map(|SeatChoice { number, replaces_copy }| (number.0, replaces_copy))
    }

    #[test]
    fn a_lease_gets_the_seat_whose_copy_is_worth_most_to_it_and_least_to_others() {
        let empty = seat(0, SeatPast::Nothing);
        let former = seat(1, of(LEASE, Some(3)));
        let interrupted = seat(1, of(LEASE, None));
        let [first, later] = [(2, 1), (3, 2)].map(|(number, count)| seat(number, of(OTHER, Some(count))));
        let kept = seat(4, of(OTHER, None));
        let unreadable = seat(5, SeatPast::Unreadable);
        let table = [
            (vec![], Level::Unsaid, None),
            (vec![empty, former, kept], in_sync(4), Some((4, false))),
            (vec![empty, former, first], in_sync(2), Some((2, false))),
            (vec![empty, former, first], in_sync(7), Some((1, false))),
            (vec![empty, interrupted, first], Level::Unsaid, Some((1, false))),
            (vec![empty, first, kept], Level::Unreadable, Some((0, false))),
            (vec![later, first, kept], Level::Unsaid, Some((2, true))),
            (vec![kept, later], Level::Unsaid, Some((3, true))),
            (vec![unreadable, later], Level::Unsaid, Some((3, true))),
            (vec![kept], Level::Unsaid, Some((4, true))),
            (vec![unreadable], Level::Unsaid, Some((5, true))),
            (vec![seat(6, SeatPast::Nothing), seat(5, SeatPast::Nothing)], Level::Unsaid, Some((5, false))),
        ];
        for (free, level, expected) in table {
            assert_eq!(chosen(&free, level.clone(), &[]), expected, "{free:?} {level:?}");
        }
    }

    #[test]
    fn a_copy_that_another_lease_calls_in_sync_is_not_given_away() {
        let [one, two] = [0, 1].map(|number| seat(number, of(OTHER, None)));
        let given_up = seat(2, of(OTHER, Some(1)));
        let unreadable = seat(3, SeatPast::Unreadable);
        let other = |level| vec![LeaseLevel { lease: OTHER, level }];
        let stranger = vec![LeaseLevel { lease: 77, level: Level::Unreadable }];
        let table = [
            (vec![one, two], Level::Unsaid, other(in_sync(0)), Some((1, true))),
            (vec![one, two], Level::Unsaid, other(in_sync(7)), Some((0, true))),
            (vec![one, two], Level::Unsaid, other(Level::Unsaid), Some((0, true))),
            (vec![one], Level::Unsaid, other(in_sync(0)), None),
            (vec![one], in_sync(0), other(in_sync(0)), Some((0, false))),
            (vec![given_up], Level::Unsaid, other(in_sync(2)), None),
            (vec![one, two], Level::Unsaid, other(Level::Unreadable), None),
            (vec![one, two], Level::Unsaid, stranger.clone(), Some((0, true))),
            (vec![unreadable], Level::Unsaid, stranger, None),
        ];
        for (free, level, others, expected) in table {
            assert_eq!(chosen(&free, level.clone(), &others), expected, "{free:?} {level:?} {others:?}");
        }
    }
}
