//! Barriers of an active with its ledger, its sender, and a standby on the loopback interface; the Lease is played.

use std::collections::BTreeSet;
use std::time::Duration;

use bps_api::{StateLag, keys};
use bps_protocol::Version;
use bps_runtime::shutdown::Shutdown;
use bps_wire::lag::Told;
use bps_wire::level::DirectoryId;
use bps_wire::level::Level;
use bps_wire::uid::format_uid;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::lines::{ACTIVE, Active, STANDBY, Standby, epoch};
use super::{Door, content, fs};
use crate::metrics::AgentMetrics;
use crate::replicate::gate::PromoteWhen;
use crate::replicate::image::StatePath;
use crate::replicate::lag::{TELL_AFTER, TELL_EVERY};
use crate::replicate::ledger::{Answer, Kept, Ledger, STANDBY_MAX, View, Wires};
use crate::replicate::left_out::LeftOut;
use crate::replicate::sender::{Progress, Reach};
use crate::store::Note;

const PATIENCE: Duration = Duration::from_secs(30);

/// An active in its tenure, and the Lease as it writes it.
struct Scene {
    active: Active,
    views: watch::Sender<View>,
    told: watch::Sender<Told>,
    barriers: mpsc::Sender<oneshot::Sender<Answer>>,
    settle: mpsc::Sender<()>,
    settled: mpsc::Receiver<bool>,
    notes: mpsc::Receiver<Note>,
}

impl Scene {
    fn start(active: Active) -> Self {
        let (views, viewed) = watch::channel(View::default());
        let (barriers, asked) = mpsc::channel(8);
        let (settle, to_settle) = mpsc::channel(1);
        let (reporter, settled) = mpsc::channel(1);
        let (resigns, _) = mpsc::channel(1);
        let (written, notes) = mpsc::channel(1);
        let ((told, tells), metrics) = (watch::channel(Told::default()), AgentMetrics::default());
        let wires = Wires {
            own: ACTIVE,
            directory: active.directory.clone(),
            door: Door::default(),
            promote_when: PromoteWhen::InSync,
            left_out: LeftOut::default(),
            views: viewed,
            told: tells,
            barriers: asked,
            settle: to_settle,
            settled: reporter,
            resigns,
            snapshots: active.snapshots.clone(),
            progress: active.progress.clone(),
            notes: written,
            metrics: metrics.clone(),
        };
        tokio::spawn(async move { Ledger::new(wires).run(Shutdown::new()).await.unwrap() });
        let scene = Self { active, views, told, barriers, settle, settled, notes };
        scene.active.acting.send_replace(Some(epoch(1)));
        scene.views.send_modify(|view| {
            (view.acting, view.is_written, view.version) = (Some(epoch(1)), true, Version(1));
            view.peer = Some(STANDBY);
        });
        scene
    }

    fn asked(&self) -> oneshot::Receiver<Answer> {
        let (waiter, answer) = oneshot::channel();
        self.barriers.try_send(waiter).unwrap();
        answer
    }

    /// Brings the standby level, and has the Lease say so.
    async fn level(&mut self, standby: &Standby) {
        let both = [self.active.directory.id(), standby.directory.id()];
        standby.door.open(epoch(1));
        self.wants(&both).await;
        self.says(&both);
    }

    async fn barrier(&self) -> Answer {
        timeout(PATIENCE, self.asked()).await.expect("in time").unwrap()
    }

    /// Waits until the active wants the Lease to say this; it does not say so yet.
    async fn wants(&mut self, level: &[DirectoryId]) {
        let pods = [ACTIVE, STANDBY].map(|pod| format_uid(pod.0));
        let expected = [
            (keys::ANNOTATION_HA_IN_SYNC, Some(Level::write(&level.iter().copied().collect()))),
            (keys::ANNOTATION_HA_IN_SYNC_PODS, Some(pods[..level.len()].join(","))),
            (keys::ANNOTATION_HA_LAG, None),
        ];
        loop {
            let note = timeout(PATIENCE, self.notes.recv()).await.expect("in time").unwrap();
            if note.annotations == expected.clone().into() {
                assert_eq!(note.base, self.views.borrow().version);
                return;
            }
        }
    }

    /// Waits until the active wants the Lease to tell of a lag; it tells so then.
    async fn tells(&mut self) -> StateLag {
        loop {
            let note = timeout(PATIENCE, self.notes.recv()).await.expect("in time").unwrap();
            if let (Some(text), 1) = (note.annotations.get(keys::ANNOTATION_HA_LAG), note.annotations.len()) {
                assert_eq!(note.base, self.views.borrow().version);
                let told = Told::read(text.as_deref());
                self.told.send_replace(told.clone());
                self.views.send_modify(|view| view.version.0 += 1);
                return told.lag().expect("a lag");
            }
        }
    }

    /// The Lease says this, in its next version.
    fn says(&self, level: &[DirectoryId]) {
        let level: BTreeSet<_> = level.iter().copied().collect();
        self.views.send_modify(|view| {
            (view.version.0, view.level) = (view.version.0 + 1, Level::Only(level));
        });
    }
}

#[tokio::test]
async fn a_pair_in_sync_keeps_barriers_on_both_disks_and_goes_on_alone_only_when_the_lease_says_so() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let standby = Standby::start(to.path()).await;
    let active = Active::start(from.path(), standby.address, "0f");
    let (own, other) = (active.directory.id(), standby.directory.id());
    let mut scene = Scene::start(active);

    // Nobody has acted: as long as anybody might, nothing is kept.
    let mut first = scene.asked();
    scene.wants(&[own]).await;
    assert!(first.try_recv().is_err());
    scene.says(&[own]);
    let kept = timeout(PATIENCE, first).await.expect("in time").unwrap().unwrap();
    assert_eq!((kept.epoch, kept.is_alone), (epoch(1), true));

    scene.level(&standby).await;
    let mut spans = Vec::new();
    for number in 0..20 {
        fs::write(from.path().join(format!("file-{}", number % 3)), number.to_string()).unwrap();
        let asked = Instant::now();
        let Kept { is_alone, .. } = scene.barrier().await.unwrap();
        spans.push(asked.elapsed());
        assert!(!is_alone);
        assert_eq!(content(from.path()), content(to.path()));
    }
    spans.sort_unstable();
    println!("a barrier on both disks: median {:?}, worst {:?}", spans[10], spans[19]);

    standby.door.close();
    fs::write(from.path().join("log"), "later").unwrap();
    let began = Instant::now();
    let mut alone = scene.asked();
    scene.wants(&[own]).await;
    assert!(began.elapsed() >= STANDBY_MAX);
    assert!(alone.try_recv().is_err(), "the standby may still act");
    scene.says(&[own]);
    assert!(timeout(PATIENCE, alone).await.expect("in time").unwrap().unwrap().is_alone);

    // From the send of the write on its acknowledgement is needed.
    standby.door.open(epoch(1));
    scene.wants(&[own, other]).await;
    standby.door.close();
    fs::write(from.path().join("log"), "last").unwrap();
    let mut waiting = scene.asked();
    tokio::time::sleep(2 * STANDBY_MAX).await;
    assert!(waiting.try_recv().is_err(), "the write may have succeeded");
    standby.door.open(epoch(1));
    assert!(!timeout(PATIENCE, waiting).await.expect("in time").unwrap().unwrap().is_alone);
    assert_eq!(content(from.path()), content(to.path()));
    standby.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_at_whose_address_nobody_listens_is_not_waited_for() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let standby = Standby::start(to.path()).await;
    let (address, other) = (standby.address, standby.directory.id());
    standby.stop().await;
    let active = Active::start(from.path(), address, "0f");
    let own = active.directory.id();
    let mut scene = Scene::start(active);
    scene.says(&[own, other]);

    let began = Instant::now();
    let mut alone = scene.asked();
    scene.wants(&[own]).await;
    assert!(began.elapsed() < STANDBY_MAX);
    assert!(alone.try_recv().is_err(), "the standby may still act");
    scene.says(&[own]);
    assert!(timeout(PATIENCE, alone).await.expect("in time").unwrap().unwrap().is_alone);
}

#[tokio::test]
async fn an_application_that_ended_is_handed_over_only_to_a_level_standby() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let standby = Standby::start(to.path()).await;
    let active = Active::start(from.path(), standby.address, "0f");
    let own = active.directory.id();
    let mut scene = Scene::start(active);
    scene.says(&[own]);
    scene.settle.try_send(()).unwrap();
    assert_eq!(timeout(PATIENCE, scene.settled.recv()).await.expect("in time"), Some(false));

    scene.level(&standby).await;
    fs::write(from.path().join("log"), "last words").unwrap();
    scene.settle.try_send(()).unwrap();
    assert_eq!(timeout(PATIENCE, scene.settled.recv()).await.expect("in time"), Some(true));
    assert_eq!(content(from.path()), content(to.path()));

    standby.door.close();
    fs::write(from.path().join("log"), "lost words").unwrap();
    scene.settle.try_send(()).unwrap();
    assert_eq!(timeout(PATIENCE, scene.settled.recv()).await.expect("in time"), Some(false));
    standby.stop().await;
}

/// It may come back with another directory before this agent has heard what is in that one.
#[tokio::test]
async fn nothing_is_handed_over_to_who_is_not_connected_any_more_or_to_another_one() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let standby = Standby::start(to.path()).await;
    let mut scene = Scene::start(Active::start(from.path(), standby.address, "0f"));
    let own = scene.active.directory.id();
    scene.says(&[own]);
    scene.level(&standby).await;
    scene.views.send_modify(|view| view.peer = Some(ACTIVE));
    scene.settle.try_send(()).unwrap();
    assert_eq!(timeout(PATIENCE, scene.settled.recv()).await.expect("in time"), Some(false));
    scene.views.send_modify(|view| view.peer = Some(STANDBY));
    scene.settle.try_send(()).unwrap();
    assert_eq!(timeout(PATIENCE, scene.settled.recv()).await.expect("in time"), Some(true));
    standby.stop().await;
    let is_lost = |progress: &Progress| progress.reach != Reach::Connected;
    drop(timeout(PATIENCE, scene.active.progress.wait_for(is_lost)).await.expect("in time").unwrap());
    scene.settle.try_send(()).unwrap();
    assert_eq!(timeout(PATIENCE, scene.settled.recv()).await.expect("in time"), Some(false));
}

#[tokio::test]
async fn barriers_of_a_standby_and_of_an_ended_tenure_are_refused() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let standby = Standby::start(to.path()).await;
    let scene = Scene::start(Active::start(from.path(), standby.address, "0f"));
    let ending = scene.asked();
    // It waits until the Lease says who is level, which it never will.
    tokio::time::sleep(Duration::from_millis(200)).await;
    scene.views.send_modify(|view| view.acting = None);
    assert_eq!(
        timeout(PATIENCE, ending).await.expect("in time").unwrap(),
        Err("the tenure has ended".into())
    );
    assert_eq!(scene.barrier().await, Err("this agent does not act".into()));
    standby.stop().await;
}

#[tokio::test]
async fn the_lease_tells_what_a_standby_lacks_that_it_does_not_name_and_no_more_once_it_is_level() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let standby = Standby::start(to.path()).await;
    let active = Active::start(from.path(), standby.address, "0f");
    let (own, other) = (active.directory.id(), standby.directory.id());
    let mut scene = Scene::start(active);
    scene.says(&[own]);
    scene.level(&standby).await;

    standby.door.close();
    fs::write(from.path().join("one"), "12345").unwrap();
    let began = Instant::now();
    scene.wants(&[own]).await;
    scene.says(&[own]);
    let first = scene.tells().await;
    assert!(began.elapsed() >= TELL_AFTER);
    assert_eq!((first.entries, first.bytes), (1, 5));
    let told = Instant::now();
    fs::write(from.path().join("two"), "1234567").unwrap();
    let second = scene.tells().await;
    assert!(told.elapsed() >= TELL_EVERY);
    assert_eq!(second, StateLag { entries: 2, bytes: 12, ..first });

    // The same note that names it tells of no lag any more.
    standby.door.open(epoch(1));
    scene.wants(&[own, other]).await;
    standby.stop().await;
}

#[tokio::test]
async fn what_could_not_be_sent_is_looked_for_again_before_anything_is_acknowledged() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Nobody listens there yet, so that the first look waits to be sent.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    fs::write(from.path().join("a"), "x").unwrap();
    let mut scene = Scene::start(Active::start(from.path(), address, "0f"));
    let mut looks = scene.active.snapshots.subscribe();
    let first = timeout(PATIENCE, looks.wait_for(Option::is_some)).await.expect("in time").unwrap().clone();
    drop(first.unwrap().kept.take(&StatePath::parse(b"a").unwrap()));
    fs::rename(from.path().join("a"), from.path().join("b")).unwrap();
    let standby = Standby::start_at(to.path(), address).await;
    standby.door.open(epoch(1));
    let has = |progress: &Progress| progress.acknowledged.is_some();
    drop(timeout(PATIENCE, scene.active.progress.wait_for(has)).await.expect("in time").unwrap());
    assert_eq!(content(from.path()), content(to.path()));
    standby.stop().await;
}
