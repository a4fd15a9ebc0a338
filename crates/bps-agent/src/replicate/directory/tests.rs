//! The number of a state directory, what is noted in it, and that nothing leads out of it.

use std::collections::BTreeSet;

use bps_wire::level::Level;

use super::*;
use crate::replicate::gate::{PromoteWhen, may_take};

#[test]
fn a_directory_keeps_its_number_and_another_one_has_another() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let id = StateDirectory::open(one.path()).unwrap().id();
    assert_eq!(StateDirectory::open(one.path()).unwrap().id(), id);
    assert_ne!(StateDirectory::open(two.path()).unwrap().id(), id);
}

#[test]
fn whoever_shares_a_directory_with_one_that_renews_it_notices() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| StateDirectory::open(folder.path()).unwrap());
    assert!(one.is_own().unwrap() && two.is_own().unwrap());
    two.renew().unwrap();
    assert!(!one.is_own().unwrap() && two.is_own().unwrap());
}

#[test]
fn a_directory_that_was_emptied_or_has_lost_its_number_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let open = || StateDirectory::open(folder.path()).unwrap().id();
    let mut ids = vec![open()];
    std::fs::remove_file(folder.path().join(HIDDEN_FOLDER).join(ID_FILE)).unwrap();
    ids.push(open());
    std::fs::remove_dir_all(folder.path().join(HIDDEN_FOLDER)).unwrap();
    ids.push(open());
    for (index, id) in ids.iter().enumerate() {
        let level = Level::Only(BTreeSet::from([*id]));
        let may = ids.iter().map(|own| may_take(PromoteWhen::InSync, &level, *own));
        assert!(may.eq((0..ids.len()).map(|other| other == index)), "{ids:?}");
    }
}

#[test]
fn a_directory_that_was_left_in_the_middle_of_a_batch_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let directory = StateDirectory::open(folder.path()).unwrap();
    let id = directory.id();
    directory.begin_steps().unwrap();
    directory.end_steps().unwrap();
    assert_eq!(StateDirectory::open(folder.path()).unwrap().id(), id);
    directory.begin_steps().unwrap();
    let another = StateDirectory::open(folder.path()).unwrap().id();
    assert_ne!(another, id);
    assert_eq!(StateDirectory::open(folder.path()).unwrap().id(), another, "once");
}

#[test]
fn the_highest_epoch_is_that_of_one_lease() {
    let folder = tempfile::tempdir().unwrap();
    let directory = StateDirectory::open(folder.path()).unwrap();
    let epoch = Epoch { term: 3, sequence: 1 };
    assert_eq!(directory.epoch(7).unwrap(), Epoch::default());
    directory.keep_epoch(7, epoch).unwrap();
    let again = StateDirectory::open(folder.path()).unwrap();
    assert_eq!((again.epoch(7).unwrap(), again.epoch(8).unwrap()), (epoch, Epoch::default()));
}

#[test]
fn no_symbolic_link_leads_out() {
    let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("secret"), "x").unwrap();
    std::os::unix::fs::symlink(outside.path(), inside.path().join("out")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), inside.path().join("link")).unwrap();
    let directory = StateDirectory::open(inside.path()).unwrap();
    for path in ["out/secret", "link"] {
        let path = StatePath::parse(path.as_bytes()).unwrap();
        assert!(directory.open_file(&path).is_err(), "{path:?}");
    }
    directory.create_aside(1).unwrap();
    let through = StatePath::parse(b"out/new").unwrap();
    assert!(directory.move_aside_to(1, &through).is_err());
    assert!(!outside.path().join("new").exists());
    directory.remove_asides().unwrap();
}
