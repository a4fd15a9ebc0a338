//! Both ends of a connection on the loopback interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bps_protocol::AgentId;
use bps_runtime::shutdown::Shutdown;
use bps_wire::key_ring::KeyRing;
use bps_wire::level::DirectoryId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Arc, Door, Epoch, HIDDEN_FOLDER, Scanner, Snapshot, StateDirectory, Word, content, fs};
use crate::callers::{Callers, Listening};
use crate::lifeline::{Line, Partner};
use crate::replicate::channel::Channel;
use crate::replicate::image::StatePath;
use crate::replicate::inbox::Inbox;
use crate::replicate::outbox::BatchEnd;
use crate::replicate::receiver::Receiver;
use crate::replicate::sender::{Progress, Reach, Sender};

pub(super) const ACTIVE: AgentId = AgentId(1);
pub(super) const STANDBY: AgentId = AgentId(2);
const GROUP: u128 = 7;
/// Longer than anything here takes; only a hang lasts as long.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn epoch(term: u32) -> Epoch {
    Epoch { term, sequence: 0 }
}

fn line(own: AgentId, partner: (AgentId, SocketAddr), key: &str) -> (Line, watch::Sender<Option<Partner>>) {
    let keys = watch::channel(KeyRing::parse(&key.repeat(32)).unwrap()).1;
    let (told, partner) = watch::channel(Some(partner));
    (Line { group: GROUP, own, keys, partner }, told)
}

/// A standby that listens.
pub(super) struct Standby {
    pub(super) directory: StateDirectory,
    pub(super) door: Door,
    pub(super) address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<()>,
    _partner: watch::Sender<Option<Partner>>,
}

impl Standby {
    pub(super) async fn start(folder: &Path) -> Self {
        Self::start_at(folder, (Ipv4Addr::LOCALHOST, 0).into()).await
    }

    pub(super) async fn start_at(folder: &Path, address: SocketAddr) -> Self {
        let directory = StateDirectory::open(folder).unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (door, shutdown) = (Door::default(), Shutdown::new());
        let (line, partner) = line(STANDBY, (ACTIVE, address), "0f");
        let callers = Callers::at(Listening::new(listener), line.partner.clone());
        let receiver = Receiver::new(line, directory.clone(), door.clone());
        let run = receiver.run(callers, shutdown.clone());
        let task = tokio::spawn(async move { run.await.unwrap() });
        Self { directory, door, address, shutdown, task, _partner: partner }
    }

    pub(super) async fn stop(self) {
        self.shutdown.request();
        self.task.await.unwrap();
    }
}

/// An active that sends.
pub(super) struct Active {
    pub(super) directory: StateDirectory,
    pub(super) acting: watch::Sender<Option<Epoch>>,
    pub(super) snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    pub(super) progress: watch::Receiver<Progress>,
    scanner: Scanner,
    _partner: watch::Sender<Option<Partner>>,
}

impl Active {
    pub(super) fn start(folder: &Path, standby: SocketAddr, key: &str) -> Self {
        let directory = StateDirectory::open(folder).unwrap();
        let (acting, acted) = watch::channel(None);
        let (snapshots, seen) = watch::channel(None);
        let (progress, reached) = watch::channel(Progress::default());
        let (line, partner) = line(ACTIVE, (STANDBY, standby), key);
        let sender = Sender { line, directory: directory.clone(), acting: acted, snapshots: seen, progress };
        // It ends with the test's runtime.
        tokio::spawn(async move { sender.run(Shutdown::new()).await.unwrap() });
        let scanner = Scanner::new(directory.clone());
        Self { directory, acting, snapshots, progress: reached, scanner, _partner: partner }
    }

    pub(super) fn look(&mut self, sequence: u64) {
        self.snapshots.send_replace(Some(Arc::new(self.scanner.look(sequence).unwrap())));
    }

    pub(super) async fn acknowledged(&mut self, by: DirectoryId, sequence: u64) {
        let has = |progress: &Progress| progress.acknowledged == Some((by, sequence));
        timeout(PATIENCE, self.progress.wait_for(has)).await.expect("in time").unwrap();
    }
}

/// An active in its first tenure, and a standby that has what it has.
async fn level(from: &Path, to: &Path) -> (Standby, Active) {
    let standby = Standby::start(to).await;
    standby.door.open(epoch(1));
    let mut active = Active::start(from, standby.address, "0f");
    active.acting.send_replace(Some(epoch(1)));
    active.look(1);
    active.acknowledged(standby.directory.id(), 1).await;
    (standby, active)
}

#[tokio::test]
async fn a_standby_is_brought_level_and_follows_also_after_it_was_away() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(to.path().join("stale"), "x").unwrap();
    fs::write(from.path().join("big"), vec![3; 3 << 20]).unwrap();
    let (standby, mut active) = level(from.path(), to.path()).await;
    assert_eq!(content(from.path()), content(to.path()));

    fs::write(from.path().join("log"), "one").unwrap();
    active.look(2);
    active.acknowledged(standby.directory.id(), 2).await;
    assert_eq!(content(from.path()), content(to.path()));

    standby.door.close();
    fs::write(from.path().join("log"), "two").unwrap();
    active.look(3);
    let lost = active.progress.wait_for(|progress| progress.reach != Reach::Connected);
    timeout(PATIENCE, lost).await.expect("a closed door ends the connection").unwrap();
    assert_eq!(fs::read(to.path().join("log")).unwrap(), b"one");
    standby.door.open(epoch(1));
    active.acknowledged(standby.directory.id(), 3).await;
    assert_eq!(content(from.path()), content(to.path()));
    standby.stop().await;
}

#[tokio::test]
async fn a_standby_is_absent_while_nobody_listens_at_its_address() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (standby, mut active) = level(from.path(), to.path()).await;
    assert_eq!(active.progress.borrow().reach, Reach::Connected);

    let address = standby.address;
    standby.stop().await;
    let absent = active.progress.wait_for(|progress| progress.reach == Reach::Absent);
    timeout(PATIENCE, absent).await.expect("in time").unwrap();

    let standby = Standby::start_at(to.path(), address).await;
    standby.door.open(epoch(1));
    let there = active.progress.wait_for(|progress| progress.reach == Reach::Connected);
    timeout(PATIENCE, there).await.expect("in time").unwrap();
    standby.stop().await;
}

#[tokio::test]
async fn what_a_standby_acknowledged_before_it_came_back_without_it_counts_no_more() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join("log"), "one").unwrap();
    let (standby, mut active) = level(from.path(), to.path()).await;
    let (address, directory) = (standby.address, standby.directory.id());
    standby.stop().await;

    // It has lost everything but its number, and takes its time to get it again.
    let listener = TcpListener::bind(address).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let keys = watch::channel(KeyRing::parse(&"0f".repeat(32)).unwrap()).1;
    let mut channel = Channel::accepted(stream, keys).await.unwrap();
    let Word::Hello { .. } = channel.hear().await.unwrap() else { panic!("it greets") };
    channel.draw().await.unwrap();
    channel.say(&[Word::Challenge { directory }]).await.unwrap();
    assert_eq!(channel.hear().await.unwrap(), Word::Attach);
    channel.trust();
    channel.say(&[Word::All]).await.unwrap();
    let there = active.progress.wait_for(|progress| progress.reach == Reach::Connected);
    let acknowledged = timeout(PATIENCE, there).await.expect("in time").unwrap().acknowledged;
    assert_eq!(acknowledged, None);
}

#[tokio::test]
async fn an_older_epoch_is_refused_also_after_a_restart() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join("a"), "x").unwrap();
    let standby = Standby::start(to.path()).await;
    standby.door.open(epoch(1));
    let mut active = Active::start(from.path(), standby.address, "0f");
    active.acting.send_replace(Some(epoch(5)));
    active.look(1);
    active.acknowledged(standby.directory.id(), 1).await;
    assert_eq!(standby.directory.epoch(GROUP).unwrap(), epoch(5));
    standby.stop().await;

    // A new process knows nothing but what is on disk.
    let standby = Standby::start(to.path()).await;
    standby.door.open(Epoch::default());
    let mut channel = greeted(standby.address, "0f", epoch(4)).await.unwrap();
    assert!(channel.hear().await.is_err(), "it was refused");
    let mut channel = greeted(standby.address, "0f", epoch(5)).await.unwrap();
    assert!(matches!(channel.hear().await.unwrap(), Word::Has(..)));
    standby.stop().await;
}

#[tokio::test]
async fn a_look_of_which_a_file_could_not_be_sent_is_not_acknowledged() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (standby, mut active) = level(from.path(), to.path()).await;
    fs::write(from.path().join("a"), "x").unwrap();
    let snapshot = active.scanner.look(2).unwrap();
    drop(snapshot.kept.take(&StatePath::parse(b"a").unwrap()));
    fs::rename(from.path().join("a"), from.path().join("b")).unwrap();
    active.snapshots.send_replace(Some(Arc::new(snapshot)));
    let torn = active.progress.wait_for(|progress| progress.flawed == Some((2, BatchEnd::Torn)));
    let acknowledged = timeout(PATIENCE, torn).await.expect("in time").unwrap().acknowledged;
    assert_eq!(acknowledged, Some((standby.directory.id(), 1)));
    active.look(3);
    active.acknowledged(standby.directory.id(), 3).await;
    assert_eq!(content(from.path()), content(to.path()));
    standby.stop().await;
}

#[tokio::test]
async fn a_copy_of_the_active_s_volume_gets_a_number_of_its_own_and_is_brought_level() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let id = StateDirectory::open(from.path()).unwrap().id();
    let hidden = to.path().join(HIDDEN_FOLDER);
    fs::create_dir(&hidden).unwrap();
    fs::copy(from.path().join(HIDDEN_FOLDER).join("id"), hidden.join("id")).unwrap();
    fs::write(from.path().join("a"), "x").unwrap();
    let standby = Standby::start(to.path()).await;
    assert_eq!(standby.directory.id(), id);
    standby.door.open(epoch(1));
    let mut active = Active::start(from.path(), standby.address, "0f");
    active.acting.send_replace(Some(epoch(1)));
    active.look(1);
    let has = |progress: &Progress| progress.acknowledged.is_some();
    let acknowledged =
        timeout(PATIENCE, active.progress.wait_for(has)).await.expect("in time").unwrap().acknowledged;
    let renewed = standby.directory.id();
    assert_ne!(renewed, id);
    assert_eq!(acknowledged, Some((renewed, 1)));
    assert_eq!(StateDirectory::open(to.path()).unwrap().id(), renewed, "it is kept");
    assert_eq!(content(from.path()), content(to.path()));
    standby.stop().await;
}

#[tokio::test]
async fn a_directory_that_both_use_is_not_received_into_also_after_one_gave_it_another_number() {
    let folder = tempfile::tempdir().unwrap();
    let standby = Standby::start(folder.path()).await;
    standby.door.open(epoch(1));
    let active = Active::start(folder.path(), standby.address, "0f");
    let number = active.directory.renew().unwrap();
    let greeting = greeted(standby.address, "0f", epoch(1)).await;
    assert!(greeting.is_err(), "what it has is the active's own");
    assert_eq!(standby.directory.id(), number, "so that it notices when the active greets it again");
    active.acting.send_replace(Some(epoch(1)));
    let is_noticed = async {
        while active.directory.is_own().unwrap() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, is_noticed)
        .await
        .expect("it gives it another number, by which the active sends nothing");
    standby.stop().await;
}

#[tokio::test]
async fn a_connection_waits_for_what_the_one_before_still_does_on_a_thread() {
    let to = tempfile::tempdir().unwrap();
    let standby = Standby::start(to.path()).await;
    standby.door.open(epoch(1));
    // As a thread has it that writes on after its connection was given up.
    let former = Inbox::new(standby.directory.clone(), standby.directory.turn().await).unwrap();
    let mut channel = greeted(standby.address, "0f", epoch(1)).await.unwrap();
    let mut heard = Box::pin(channel.hear());
    assert!(timeout(Duration::from_millis(100), &mut heard).await.is_err(), "two receive at once");
    drop(former);
    assert_eq!(timeout(PATIENCE, heard).await.expect("its turn").unwrap(), Word::All);
    standby.stop().await;
}

#[tokio::test]
async fn strangers_are_refused() {
    let to = tempfile::tempdir().unwrap();
    let standby = Standby::start(to.path()).await;
    assert!(greeted(standby.address, "0f", epoch(1)).await.is_err(), "the door is closed");
    standby.door.open(epoch(1));
    assert!(greeted(standby.address, "f0", epoch(1)).await.is_err(), "it has another key");
    let words = [
        Word::Hello { group: GROUP + 1, from: ACTIVE, to: STANDBY, directory: DirectoryId(1) },
        Word::Hello { group: GROUP, from: AgentId(3), to: STANDBY, directory: DirectoryId(1) },
        Word::Hello { group: GROUP, from: ACTIVE, to: ACTIVE, directory: DirectoryId(1) },
        Word::Attach,
        Word::Commit(1),
    ];
    for word in words {
        let mut channel = connected(standby.address, "0f", epoch(1)).await;
        channel.say(std::slice::from_ref(&word)).await.unwrap();
        assert!(channel.take_drawn().await.is_err(), "{word:?}");
    }
    assert!(greeted(standby.address, "0f", epoch(1)).await.is_ok());
    standby.stop().await;
}

async fn connected(address: SocketAddr, key: &str, epoch: Epoch) -> Channel<TcpStream> {
    let keys = watch::channel(KeyRing::parse(&key.repeat(32)).unwrap()).1;
    let stream = TcpStream::connect(address).await.unwrap();
    Channel::connected(stream, keys, epoch).await.unwrap()
}

/// A channel on which the standby believes that it is the active.
pub(super) async fn greeted(
    address: SocketAddr,
    key: &str,
    epoch: Epoch,
) -> std::io::Result<Channel<TcpStream>> {
    let mut channel = connected(address, key, epoch).await;
    let hello = Word::Hello { group: GROUP, from: ACTIVE, to: STANDBY, directory: DirectoryId(1) };
    channel.say(&[hello]).await?;
    channel.take_drawn().await?;
    channel.hear().await?;
    channel.say(&[Word::Attach]).await?;
    channel.trust();
    Ok(channel)
}
