//! Claims about every fault of the benchmark's table at the active of a pair: who follows and why, that what was broken is put
//! right, and that never do two act.
//!
//! The benchmark's own faults, done with its own means: what is measured is what is claimed.

use std::collections::BTreeSet;
use std::time::Duration;

use bps_api::{HAGroup, PairStatus};
use bps_protocol::Cause;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use lab::app::{Outage, Sample};
use lab::bench::Error;
use lab::bench::client::{Habit, Visit};
use lab::bench::pairs::crowd::{self, Pair};
use lab::bench::pairs::faults::Fault;
use lab::bench::pairs::hogs::{self, Hogs};
use lab::bench::pairs::site::{Serving, Site};
use lab::bench::pairs::trial::{PROXY_WITHIN, QUIET, befall};
use lab::bench::pairs::watch::Watch;
use lab::bench::pairs::workload::{Blueprint, Kind};
use lab::bench::rounds::Bench;
use lab::faults::Aim;
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::actors::Actors;
use crate::endings::{End, wrong_reason};
use crate::history::Turns;
use crate::notes::note;
use crate::outages::has_just_started;
use crate::pairs::takeover;
use crate::stage::{Stage, WEB};
use crate::wait;

/// The node without Pods, where clients and the sink are.
const LOOKOUT: &str = "n3";

/// How long a machine with too much to do is watched: more than ten times as long as an active lives without a promise.
const HOGGED: Duration = Duration::from_secs(30);

/// How long the processes of an active stand still that is woken late: two late wakes of the profile `Fast` (113 ms), and less than
/// half of its hold.
const LATE_FOR: Duration = Duration::from_millis(220);
/// For how long they may, so that no standby takes over: the hold less the time to stop, a period of pings and 50 ms.
const LATE_MAX: Duration = Duration::from_millis(300);

/// Pods of a pair.
const PAIR: usize = 2;
/// Pods of several pairs.
const SEVERAL: usize = 8;
/// Of how many of these pairs the active is killed. One pair stays as it is.
const STRUCK: usize = 3;
/// Pods of many pairs, as in the benchmark's row about scaling.
const MANY: usize = 32;

/// Why those are followed that nobody hears of in time.
const SILENT: [Cause; 2] = [Cause::HoldLost, Cause::LeaseExpired];
/// What agents say that got no processor time.
const LATE: &str = "Was woken late";
/// What their enforcer says when they got none until their hold was over.
const KILLED: &str = "Killed the agent with its application";

/// Pairs, and the benchmark's means to break them.
struct Scene {
    bench: Bench,
    site: Site,
    groups: Api<HAGroup>,
}

impl Scene {
    /// Builds so many Pods of a StatefulSet, whose applications tell a sink of each answer.
    async fn build(stage: &Stage, replicas: usize, watch: &Watch) -> Self {
        Self::of(stage, (Kind::Pairs, replicas), watch).await
    }

    /// The same of this kind.
    async fn of(stage: &Stage, (kind, replicas): (Kind, usize), watch: &Watch) -> Self {
        stage.starts(replicas);
        let cluster = stage.bench.cluster.clone();
        let bench = Bench { client: stage.client(), cluster, app: stage.bench.app.clone() };
        let blueprint = Blueprint {
            kind,
            name: WEB,
            replicas,
            sink: Some(watch.address),
            lookout: Some(LOOKOUT.to_owned()),
        };
        let site = Site::build(&bench.client, &stage.namespace, blueprint).await.unwrap();
        Self { bench, site, groups: stage.api() }
    }

    fn aim(&self, pod: &str) -> Aim {
        self.bench.cluster.aim_below_init(&self.site.aim(pod)).unwrap()
    }

    /// Requests from before a blow until everything is over that it should bring about, and when the blow came.
    async fn requests(
        &self,
        active: &Serving,
        blow: impl Future<Output = ()>,
        over: impl Future<Output = Result<(), Error>>,
    ) -> (Vec<Sample>, u64) {
        sleep(QUIET).await;
        self.site.forget_visits(&self.bench, active).await.unwrap();
        let visit = self.site.visit(&self.bench, active).await.unwrap();
        let struck_ns = crowd::realtime_ns();
        blow.await;
        over.await.unwrap();
        sleep(PROXY_WITHIN).await;
        (visit.end().await.unwrap().1, struck_ns)
    }

    /// Waits until there are so many pairs, each with both of its Pods.
    async fn paired(&self, count: usize) -> Vec<PairStatus> {
        let paired = async || {
            let pairs = self.site.pairs().await?;
            let is_whole = pairs.len() == count && pairs.iter().all(|pair| pair.state == "Paired");
            Ok(is_whole.then_some(pairs))
        };
        self.site.until("pairs with both of their Pods", paired).await.unwrap()
    }

    /// Why this Pod acts.
    async fn reason(&self, to: &str) -> String {
        takeover(self.groups.clone(), to, |_| true).await.reason
    }

    /// The active of this pair acts on, in the same tenure. Only the machine may have befallen it: where dozens of Pods
    /// start on a few cores, an agent may get no processor time for as long as a hold lasts. Then it was followed because
    /// nothing was heard of it in time, or because its enforcer killed it first, and its log says so, too.
    async fn assert_left_alone(&self, now: &[PairStatus], before: &PairStatus) {
        let now = now.iter().find(|pair| pair.name == before.name).expect("the pair is still there");
        if tenure(now) == tenure(before) {
            return;
        }
        let told = takeover(self.groups.clone(), &now.active, |takeover| !takeover.reason.is_empty()).await;
        let log = self.log(&before.active).await;
        note(format!("{before:?} was followed: {told:?}"));
        let is_killed = log.contains(KILLED);
        let is_silent = SILENT.iter().any(|cause| cause.as_str() == told.reason);
        let is_dead = told.reason == Cause::CertificateOfDeath.as_str();
        let is_starved = is_silent && (is_killed || log.contains(LATE)) || is_dead && is_killed;
        assert!(is_starved, "nothing befell {before:?}: {told:?}\n{log}");
    }

    /// What a Pod has said, also before its container was started again.
    async fn log(&self, pod: &str) -> String {
        let pods = self.site.api::<Pod>();
        let mut log = String::new();
        for previous in [true, false] {
            // Most have had no container before.
            let parameters = LogParams { previous, ..LogParams::default() };
            log += &pods.logs(pod, &parameters).await.unwrap_or_default();
        }
        log
    }

    /// Lets a fault befall the active; returns what is wrong about that.
    async fn suffer(&self, stage: &Stage, fault: Fault) -> Vec<String> {
        let come = async |active: &Serving| {
            let visit = async |habit| self.site.visit_with(&self.bench, active, habit).await;
            Ok((active.clone(), tokio::try_join!(visit(Habit::Fresh), visit(Habit::Kept))?))
        };
        let go = async |(active, (fresh, kept)): (Serving, (Visit, Visit))| {
            let ((_, fresh), (kept, _)) = tokio::try_join!(fresh.end(), kept.end())?;
            Ok((active, fresh, kept))
        };
        let befallen = befall((&self.bench, &self.site), fault, (come, go)).await;
        // A leader that could not renew its Lease has ended, and a kubelet would have started it again. What follows is told by
        // the operator.
        stage.bench.one_operator().await;
        let after = self.site.settled().await;
        match (befallen, after) {
            (Ok((before, samples, kept)), Ok(after)) => {
                note(format!("{}: {}, kept {kept}", fault.title(), Outage::from_samples(&samples)));
                let is_followed = before.pod != after.pod;
                let reason = if is_followed { Some(self.reason(&after.pod).await) } else { None };
                End { before, after, samples, kept, reason }.wrong(fault)
            }
            (befallen, after) => {
                let errors = [befallen.err(), after.err()].into_iter().flatten();
                errors.map(|error| format!("{:#}", anyhow::Error::from(error))).collect()
            }
        }
    }
}

/// Who acts in a pair, and since when.
fn tenure(pair: &PairStatus) -> (&str, &str) {
    (&pair.active, &pair.epoch)
}

/// A client is well again, each standby answered it, and none of them had to wait until a Lease had run out.
async fn assert_followed(scene: &Scene, (samples, struck_ns): (&[Sample], u64), struck: &[Pair]) {
    let outage = Outage::from_samples(samples);
    let each = crowd::outages(samples, struck, struck_ns);
    note(format!("{outage}; each of the pairs: {each:?}"));
    assert!(outage.is_answered && each.iter().all(Option::is_some), "{outage}; {each:?}");
    for pair in struck {
        assert_eq!(wrong_reason(false, &scene.reason(&pair.standby).await), None);
    }
}

/// The sink was told of answers, and of none by somebody who was not the only active.
fn assert_one_at_a_time(watch: &Watch) {
    let (answers, stale) = watch.seen();
    note(format!("{stale} of {answers} answers were of one that had been followed"));
    assert!(answers > 0 && stale == 0, "{}", watch.describe());
}

/// Whether more suffers than the Pods of a pair: a node, or the API server.
const fn befalls_the_machine(fault: Fault) -> bool {
    match fault {
        Fault::ApiServerStoppedThenKilled
        | Fault::OperatorKilledThenKilled
        | Fault::ApiServerCutOff
        | Fault::NodeCutOff
        | Fault::NodeLost => true,
        Fault::ApplicationKilled
        | Fault::ContainerKilled
        | Fault::SandboxKilled
        | Fault::PodDeleted
        | Fault::SwitchedOver => false,
    }
}

pub(crate) async fn whatever_befalls_its_active_a_pair_serves_again_and_never_do_two_act(stage: Stage) {
    let faults = Fault::ALL.into_iter().filter(|fault| !befalls_the_machine(*fault));
    Box::pin(suffers_each(&stage, faults)).await;
}

pub(crate) async fn whatever_befalls_its_node_or_the_api_server_a_pair_serves_again_and_never_do_two_act(
    stage: Stage,
) {
    // The operator of these claims is no Pod: a claim of its own is about that fault.
    let is_meant = |fault: &Fault| befalls_the_machine(*fault) && *fault != Fault::OperatorKilledThenKilled;
    Box::pin(suffers_each(&stage, Fault::ALL.into_iter().filter(is_meant))).await;
}

/// A pair that these faults befall, one after the other, which must end as the benchmark's table wants it.
async fn suffers_each(stage: &Stage, faults: impl Iterator<Item = Fault>) {
    let watch = Watch::start(&stage.bench.cluster, LOOKOUT).await.unwrap();
    let scene = Scene::build(stage, PAIR, &watch).await;
    let mut wrong = Vec::new();
    for fault in faults {
        let told = watch.seen().0;
        let mut found = scene.suffer(stage, fault).await;
        if watch.seen().0 == told {
            found.push("the sink was told of nothing".to_owned());
        }
        let said = stage.complaints().await;
        let is_excused = fault == Fault::ApiServerStoppedThenKilled && has_just_started(&said);
        if !is_excused {
            found.extend(said);
        }
        wrong.extend(found.into_iter().map(|what| format!("{}: {what}", fault.title())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", watch.describe());
    assert_one_at_a_time(&watch);
}

pub(crate) async fn an_active_is_followed_at_once_although_the_operator_was_killed_before_it(stage: Stage) {
    let watch = Watch::start(&stage.bench.cluster, LOOKOUT).await.unwrap();
    let scene = Scene::build(&stage, PAIR, &watch).await;
    let active = scene.site.settled().await.unwrap();
    let struck: Vec<Pair> = scene.paired(1).await.into_iter().map(Pair::from).collect();
    let aim = scene.aim(&active.pod);
    let blow = async {
        stage.bench.operators().await[0].kill();
        aim.fire(Signal::KILL).unwrap();
    };
    let (samples, struck_ns) = scene.requests(&active, blow, scene.site.recovered(&active)).await;
    stage.bench.one_operator().await;
    assert_followed(&scene, (&samples, struck_ns), &struck).await;
    let after = scene.site.settled().await.unwrap();
    assert_ne!(after.uid, active.uid, "who follows goes on when there is an operator again");
    assert_one_at_a_time(&watch);
}

/// No two of a pair acted at the same time; who acted in each, one after the other.
async fn one_after_the_other(actors: Actors) -> Vec<(String, Turns)> {
    let turns: Vec<_> = actors.stop().await.into_iter().collect();
    note(format!("{turns:?}"));
    assert!(turns.iter().all(|(_, turns)| turns.returned.is_empty()), "two acted: {turns:?}");
    turns
}

pub(crate) async fn several_actives_killed_at_once_are_followed_at_once_each_by_its_standby(stage: Stage) {
    let watch = Watch::start(&stage.bench.cluster, LOOKOUT).await.unwrap();
    let scene = Scene::build(&stage, SEVERAL, &watch).await;
    let serving = scene.site.settled().await.unwrap();
    let before = scene.paired(SEVERAL / PAIR).await;
    let spared = &before[STRUCK..];
    let struck: Vec<Pair> = before[..STRUCK].iter().cloned().map(Pair::from).collect();
    let aims: Vec<Aim> = struck.iter().map(|pair| scene.aim(&pair.active)).collect();
    let actors = Actors::start(&stage);
    let blow = async {
        for aim in &aims {
            aim.fire(Signal::KILL).unwrap();
        }
    };
    let over =
        async { timeout(wait::LIMIT, crowd::taken_over(&scene.site, &struck)).await.expect("successors") };
    let (samples, struck_ns) = scene.requests(&serving, blow, over).await;
    assert_followed(&scene, (&samples, struck_ns), &struck).await;
    let after = scene.paired(before.len()).await;
    for pair in spared {
        let now = after.iter().find(|it| it.name == pair.name).map(tenure);
        assert_eq!(now, Some(tenure(pair)), "a pair without a fault is left alone");
    }
    assert_eq!(one_after_the_other(actors).await.len(), before.len());
    assert_one_at_a_time(&watch);
}

pub(crate) async fn nobody_takes_over_while_the_machine_has_too_much_to_do(stage: Stage) {
    let watch = Watch::start(&stage.bench.cluster, LOOKOUT).await.unwrap();
    let scene = Scene::build(&stage, PAIR, &watch).await;
    let active = scene.site.settled().await.unwrap();
    let hogged = async {
        let hogs = Hogs::start(hogs::COUNT).unwrap();
        sleep(HOGGED).await;
        drop(hogs);
    };
    let (samples, _) = scene.requests(&active, hogged, async { Ok(()) }).await;
    let outage = Outage::from_samples(&samples);
    note(format!("{outage}"));
    assert_eq!(outage.failed, 0, "{outage}");
    // Tenures never go back, so one that is the same at the end was the only one.
    assert_eq!(scene.site.settled().await.unwrap(), active);
    assert_one_at_a_time(&watch);
}

/// Its processes stand still for less than a hold, as they do where others have the processor.
pub(crate) async fn a_fast_pair_whose_agent_is_woken_late_lives_on_writes_and_says_so(stage: Stage) {
    let watch = Watch::start(&stage.bench.cluster, LOOKOUT).await.unwrap();
    let scene = Scene::of(&stage, (Kind::FastPairs, PAIR), &watch).await;
    let active = scene.site.settled().await.unwrap();
    let aim = scene.bench.cluster.aim_at_container(&scene.site.aim(&active.pod)).unwrap();
    let paused = std::cell::Cell::new(Duration::ZERO);
    let blow = async {
        let began = aim.fire(Signal::STOP).unwrap();
        sleep(LATE_FOR).await;
        let over = aim.fire(Signal::CONT).unwrap();
        paused.set(over.monotonic.saturating_sub(began.monotonic));
    };
    let (samples, _) = scene.requests(&active, blow, async { Ok(()) }).await;
    let outage = Outage::from_samples(&samples);
    note(format!("woken {:?} late: {outage}", paused.get()));
    let told = wait::until(stage.api(), "", |groups: &[HAGroup]| {
        let status = groups.first().and_then(|group| group.status.clone()).unwrap_or_default();
        let told = status.conditions.into_iter().find(|condition| condition.reason == "LateNode");
        told.map(|condition| condition.message).ok_or(format!("{} for another reason, or none", status.state))
    })
    .await;
    assert!(told.contains(&active.pod), "{told}");
    // The machine may have been late itself: then the standby is right to take over.
    if paused.get() < LATE_MAX {
        assert_eq!(outage.failed, 0, "{outage}");
        assert_eq!(scene.site.settled().await.unwrap(), active);
    }
    assert_one_at_a_time(&watch);
}

pub(crate) async fn an_active_is_followed_at_once_while_its_group_grows_by_a_pair(stage: Stage) {
    let watch = Watch::start(&stage.bench.cluster, LOOKOUT).await.unwrap();
    let scene = Scene::build(&stage, PAIR, &watch).await;
    let active = scene.site.settled().await.unwrap();
    let struck: Vec<Pair> = scene.paired(1).await.into_iter().map(Pair::from).collect();
    let aim = scene.aim(&active.pod);
    let actors = Actors::start(&stage);
    let blow = async {
        scene.site.scale(2 * PAIR).await.unwrap();
        aim.fire(Signal::KILL).unwrap();
    };
    let (samples, struck_ns) = scene.requests(&active, blow, scene.site.recovered(&active)).await;
    assert_followed(&scene, (&samples, struck_ns), &struck).await;
    scene.paired(2).await;
    let turns = one_after_the_other(actors).await;
    assert_eq!(turns.len(), 2, "one acts in each pair");
    assert_one_at_a_time(&watch);
}

pub(crate) async fn an_active_is_followed_at_once_while_other_pairs_of_its_group_go(stage: Stage) {
    let watch = Watch::start(&stage.bench.cluster, LOOKOUT).await.unwrap();
    // Of the Pods of a StatefulSet the first ones stay.
    let scene = Scene::build(&stage, PAIR, &watch).await;
    let serving = scene.site.settled().await.unwrap();
    let struck: Vec<Pair> = scene.paired(1).await.into_iter().map(Pair::from).collect();
    stage.starts(SEVERAL);
    scene.site.scale(SEVERAL).await.unwrap();
    scene.paired(SEVERAL / PAIR).await;
    let aim = scene.aim(&struck[0].active);
    let actors = Actors::start(&stage);
    let blow = async {
        scene.site.scale(PAIR).await.unwrap();
        aim.fire(Signal::KILL).unwrap();
    };
    let over = async {
        timeout(wait::LIMIT, crowd::taken_over(&scene.site, &struck)).await.expect("a successor")?;
        scene.site.pods_are("2 Pods", |pods| pods.len() == PAIR).await
    };
    let (samples, struck_ns) = Box::pin(scene.requests(&serving, blow, over)).await;
    assert_followed(&scene, (&samples, struck_ns), &struck).await;
    scene.paired(1).await;
    one_after_the_other(actors).await;
    assert_one_at_a_time(&watch);
}

pub(crate) async fn a_deployment_grows_to_sixteen_pairs_and_shrinks_to_one_and_never_do_two_act(
    stage: Stage,
) {
    let watch = Watch::start(&stage.bench.cluster, LOOKOUT).await.unwrap();
    let scene = Scene::of(&stage, (Kind::PairsOfDeployment, PAIR), &watch).await;
    let active = scene.site.settled().await.unwrap();
    let first = scene.paired(1).await.remove(0);
    let breathed = async {
        scene.site.scale(MANY).await?;
        let pairs = scene.paired(MANY / PAIR).await;
        let pods: BTreeSet<_> = pairs.iter().flat_map(|pair| [&pair.active, &pair.standby]).collect();
        assert_eq!(pods.len(), MANY, "each Pod is in one pair: {pairs:?}");
        scene.assert_left_alone(&pairs, &first).await;
        scene.site.scale(PAIR).await?;
        // Of those that leave, one may act until its grace period is over.
        scene.site.pods_are("2 Pods", |pods| pods.len() == PAIR).await?;
        scene.paired(1).await;
        Ok(())
    };
    let (samples, _) = Box::pin(scene.requests(&active, async {}, breathed)).await;
    note(format!("{}", Outage::from_samples(&samples)));
    assert_one_at_a_time(&watch);
}
