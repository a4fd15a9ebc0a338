//! What is left of a batch that cannot be carried out as a whole.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use bps_wire::level::{DirectoryId, Level};

use super::super::gate::{PromoteWhen, may_take};
use super::super::image::StatePath;
use super::{Door, Epoch, HIDDEN_FOLDER, StateDirectory, Word, new_inbox};

/// Carries out a batch with which nothing but its last step is wrong; whether the directory may act afterwards by a Lease that
/// calls it level, and whether the door calls it torn.
fn after(steps_before: &[Word]) -> (bool, bool) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("log"), "acknowledged").unwrap();
    let directory = StateDirectory::open(folder.path()).unwrap();
    let level = Level::Only([directory.id()].into());
    let door = Door::default();
    door.open(Epoch::default());
    let mut inbox = new_inbox(&directory);
    let wrong = [Word::Append(StatePath::parse(b"log").unwrap(), 1), Word::Piece(b"more".to_vec())];
    for word in steps_before.iter().chain(&wrong) {
        inbox.take(word.clone()).unwrap();
    }
    assert!(inbox.commit(door.enter(Epoch::default(), DirectoryId(1)).unwrap()).is_err());
    let id = directory.id();
    assert_eq!(StateDirectory::open(folder.path()).unwrap().id(), id, "it is on disk");
    (may_take(PromoteWhen::InSync, &level, id), door.is_torn())
}

#[test]
fn a_directory_with_half_a_batch_is_not_the_one_that_was_level() {
    let path = StatePath::parse(b"base").unwrap();
    let place = [Word::Write(path, 0o644), Word::Piece(b"moved from the log".to_vec())];
    assert_eq!(after(&place), (false, true));
}

#[test]
fn a_step_that_failed_alone_does_not_mend_what_an_earlier_batch_left() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("log"), "acknowledged").unwrap();
    let directory = StateDirectory::open(folder.path()).unwrap();
    let door = Door::default();
    door.open(Epoch::default());
    drop(door.enter(Epoch::default(), DirectoryId(1)).unwrap());
    let mut fails = new_inbox(&directory);
    for word in [Word::Append(StatePath::parse(b"log").unwrap(), 1), Word::Piece(b"more".to_vec())] {
        fails.take(word).unwrap();
    }
    assert!(fails.commit(door.enter(Epoch::default(), DirectoryId(1)).unwrap()).is_err());
    assert!(door.is_torn());
}

#[test]
fn a_step_that_failed_alone_takes_nothing_away() {
    assert_eq!(after(&[]), (true, false));
}

/// As when the application that acted here before had made one a link of the other.
#[test]
fn what_is_appended_to_a_file_with_two_names_is_appended_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let (log, other) = (folder.path().join("log"), folder.path().join("other"));
    fs::write(&log, "acknowledged").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(&log, &other).unwrap();
    let directory = StateDirectory::open(folder.path()).unwrap();
    let door = Door::default();
    door.open(Epoch::default());
    let mut inbox = new_inbox(&directory);
    for word in [Word::Append(StatePath::parse(b"log").unwrap(), 12), Word::Piece(b" more".to_vec())] {
        inbox.take(word).unwrap();
    }
    inbox.commit(door.enter(Epoch::default(), DirectoryId(1)).unwrap()).unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap(), "acknowledged more");
    assert_eq!(fs::read_to_string(&other).unwrap(), "acknowledged");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o640);
    let hidden = fs::read_dir(folder.path().join(HIDDEN_FOLDER)).unwrap();
    assert_eq!(hidden.count(), 1, "nothing is left aside but the number");
}
