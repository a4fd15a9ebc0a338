//! A standby whose volume is full. Only root may mount such a volume: without it these tests say that they are left out.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use bps_wire::level::DirectoryId;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use tokio::time::timeout;

use super::lines::{Active, Standby, epoch, greeted};
use super::{Door, Epoch, Path, StateDirectory, Word, content, fs, new_inbox};
use crate::replicate::blockage::StateRefusal;
use crate::replicate::image::StatePath;
use crate::replicate::sender::Progress;
use crate::replicate::word::PIECE_MAX_BYTES;

const PATIENCE: Duration = Duration::from_secs(30);
const MIB: usize = 1 << 20;

/// A volume of 8 MiB in memory that is mounted nowhere, with a folder for the state and a file that takes room beside it.
struct Volume {
    mount: OwnedFd,
}

impl Volume {
    /// `None`: this process may mount nothing.
    fn new() -> Option<Self> {
        let made = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
            fsconfig_set_string(&context, "size", "8m")?;
            fsconfig_create(&context)?;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        });
        let Ok(mount) = made else {
            println!("left out: only root may mount a volume");
            return None;
        };
        let volume = Self { mount };
        fs::create_dir(volume.state()).unwrap();
        Some(volume)
    }

    fn root(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.mount.as_raw_fd().to_string())
    }

    fn state(&self) -> PathBuf {
        self.root().join("state")
    }

    /// Takes room away that does not belong to the state.
    fn fill(&self, bytes: usize) {
        fs::write(self.root().join("filler"), vec![1; bytes]).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.root().join("filler")).unwrap();
    }
}

#[tokio::test]
async fn a_standby_without_room_says_so_and_gets_the_state_once_it_has_some() {
    let Some(volume) = Volume::new() else { return };
    let from = tempfile::tempdir().unwrap();
    fs::write(from.path().join("big"), vec![3; 3 * MIB]).unwrap();
    let standby = Standby::start(&volume.state()).await;
    standby.door.open(epoch(1));
    volume.fill(6 * MIB);
    let mut active = Active::start(from.path(), standby.address, "0f");
    active.acting.send_replace(Some(epoch(1)));
    active.look(1);
    let is_refused = |progress: &Progress| progress.refusal == Some(StateRefusal::Full);
    drop(timeout(PATIENCE, active.progress.wait_for(is_refused)).await.expect("in time").unwrap());
    assert!(content(&volume.state()).is_empty());

    volume.free();
    active.acknowledged(standby.directory.id(), 1).await;
    assert_eq!(active.progress.borrow().refusal, None);
    assert_eq!(content(from.path()), content(&volume.state()));
    standby.stop().await;
}

#[tokio::test]
async fn a_batch_for_which_there_was_no_room_is_refused_before_anything_is_read_or_sent() {
    let Some(volume) = Volume::new() else { return };
    let standby = Standby::start(&volume.state()).await;
    standby.door.open(epoch(1));
    volume.fill(6 * MIB);
    let mut channel = greeted(standby.address, "0f", epoch(1)).await.unwrap();
    assert_eq!(channel.hear_answer().await.unwrap(), Word::All);
    let piece = Word::Piece(vec![7; PIECE_MAX_BYTES]);
    let path = StatePath::parse(b"big").unwrap();
    let batch = [Word::Write(path, 0o644)].into_iter().chain(vec![piece; 3 * MIB / PIECE_MAX_BYTES]);
    // It may have refused and gone before it was told all.
    let _: std::io::Result<()> = channel.say(&batch.collect::<Vec<_>>()).await;
    assert_eq!(channel.hear_answer().await.unwrap(), Word::Refuse(StateRefusal::Full));

    let mut channel = greeted(standby.address, "0f", epoch(1)).await.unwrap();
    assert_eq!(channel.hear_answer().await.unwrap(), Word::Refuse(StateRefusal::Full));
    volume.free();
    let mut channel = greeted(standby.address, "0f", epoch(1)).await.unwrap();
    assert_eq!(channel.hear_answer().await.unwrap(), Word::All);
    standby.stop().await;
}

/// What was received has room, and its copy at the end of the file has none.
#[test]
fn a_batch_that_has_no_room_to_be_carried_out_leaves_no_mixture() {
    let Some(volume) = Volume::new() else { return };
    let directory = StateDirectory::open(&volume.state()).unwrap();
    fs::write(volume.state().join("log"), "acknowledged").unwrap();
    let (id, door) = (directory.id(), Door::default());
    door.open(Epoch::default());
    let mut inbox = new_inbox(&directory);
    let path = |text: &str| StatePath::parse(text.as_bytes()).unwrap();
    let appended = vec![Word::Piece(vec![7; PIECE_MAX_BYTES]); 2 * MIB / PIECE_MAX_BYTES];
    let first = [Word::MakeFolder(path("folder"), 0o755), Word::Append(path("log"), 12)];
    for word in first.into_iter().chain(appended) {
        inbox.take(word).unwrap();
    }
    volume.fill(5 * MIB);
    let error = inbox.commit(door.enter(Epoch::default(), DirectoryId(1)).unwrap()).unwrap_err();
    assert_eq!(StateRefusal::of(&error), Some(StateRefusal::Full));
    assert!(inbox.needs() >= 4 * MIB as u64, "what was received, and its copy");
    assert_eq!((directory.id(), door.is_torn()), (id, false));
    assert_eq!(content(&volume.state()).keys().collect::<Vec<_>>(), ["log"]);

    // A further batch is carried out.
    inbox.abandon().unwrap();
    inbox.take(Word::MakeFolder(path("folder"), 0o755)).unwrap();
    inbox.commit(door.enter(Epoch::default(), DirectoryId(1)).unwrap()).unwrap();
}
