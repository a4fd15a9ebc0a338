//! Who is let in, and when the door is shut; `tests/threads.rs` has what happens when threads meet at it.

use bps_wire::level::DirectoryId;
use futures::FutureExt as _;

use super::{Door, Epoch};

const GIVER: DirectoryId = DirectoryId(7);

fn epoch(term: u32) -> Epoch {
    Epoch { term, sequence: 0 }
}

#[test]
fn nobody_enters_a_closed_door_or_with_an_older_epoch() {
    let door = Door::default();
    assert!(door.enter(epoch(1), GIVER).is_err());
    door.open(epoch(2));
    assert!(door.enter(epoch(1), GIVER).is_err());
    door.enter(epoch(3), GIVER).unwrap().done();
    assert!(door.enter(epoch(2), GIVER).is_err());
    assert_eq!((door.giver(), door.admits(epoch(3)), door.admits(epoch(2))), (Some(GIVER), true, false));
}

#[test]
fn a_door_is_shut_when_the_last_one_has_left() {
    let door = Door::default();
    door.open(epoch(1));
    assert!(door.is_in_order());
    let pass = door.enter(epoch(1), GIVER).unwrap();
    assert!(!door.is_in_order(), "somebody is inside");
    assert!(door.enter(epoch(1), GIVER).is_err(), "one at a time");
    door.close();
    let mut shut = Box::pin(door.shut());
    assert!((&mut shut).now_or_never().is_none());
    drop(pass);
    assert!(shut.now_or_never().is_some());
    assert!(!door.is_in_order(), "it was left half done");
    assert!(door.enter(epoch(1), GIVER).is_err());
}

#[test]
fn another_lease_begins_with_its_own_epochs_and_what_was_torn_stays_so_until_a_whole_batch() {
    let door = Door::default();
    door.open(epoch(1));
    drop(door.enter(epoch(9), GIVER).unwrap());
    door.forget();
    assert!(!door.admits(epoch(9)), "it is closed");
    door.open(Epoch::default());
    assert_eq!((door.admits(epoch(3)), door.giver(), door.is_torn()), (true, None, true));
    door.enter(epoch(3), GIVER).unwrap().nothing_done();
    assert!(door.is_torn(), "a batch of which nothing was carried out mends nothing");
    door.enter(epoch(3), GIVER).unwrap().done();
    door.enter(epoch(3), GIVER).unwrap().nothing_done();
    assert!(!door.is_torn());
}

#[test]
fn who_takes_too_long_inside_is_distrusted_until_it_leaves() {
    let door = Door::default();
    door.open(epoch(1));
    door.distrust();
    assert!(!door.is_distrusted(), "nobody is inside");
    let pass = door.enter(epoch(1), GIVER).unwrap();
    door.distrust();
    assert!(door.is_distrusted());
    pass.done();
    assert!(!door.is_distrusted());
}
