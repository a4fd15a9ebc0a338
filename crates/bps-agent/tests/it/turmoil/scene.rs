//! One run: three Pods and an API server, what breaks and is mended, and the kubelet that starts containers again.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bps_api::keys;
use bps_protocol::{AgentId, Epoch, Lease};
use bps_wire::uid::format_uid;
use serde_json::{Value, json};
use tokio::sync::watch;
use turmoil::{Builder, Sim};

use crate::turmoil::agent::{Pod, member};
use crate::turmoil::api::Hub;
use crate::turmoil::machine::{Computer, Flaw};
use crate::turmoil::record::{Entry, Journal, What, check, check_settled, spans};
use crate::turmoil::script::{End, Fault, PODS, Planned, Script};
use crate::turmoil::server::{self, API};
use crate::turmoil::world::EPOCH_SECONDS;

/// When faults begin.
pub(crate) const FAULTS_FROM: Duration = Duration::from_secs(3);
/// How long after everything was mended exactly one acts: a restart's wait (2 s), the kubelet's pauses, a read that is overdue
/// (2 s), and a few attempts.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// How long after that a run ends.
const ENDS_AFTER: Duration = Duration::from_secs(3);
/// How long the kubelet takes to start a container again.
const RESTART_PAUSE: Duration = Duration::from_millis(300);
/// Longest time that a certificate takes. Unit: milliseconds.
const CERTIFICATE_MAX: u64 = 5;

pub(crate) const NAMES: [&str; PODS] = ["a", "b", "c"];

/// What happens besides what the hosts do.
#[derive(Clone, Copy, Debug)]
enum Step {
    Break(Planned),
    Mend(Fault),
    /// The kubelet starts the container of a Pod.
    Start(usize),
    Certify(usize, Epoch),
    Calm,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// All that happened.
    pub(crate) entries: Vec<Entry>,
    /// Versions of the Lease and the slice, and what the slice shows in the end.
    pub(crate) objects: (u64, String),
    /// What does not hold.
    pub(crate) verdict: Result<(), String>,
}

struct Scene<'a> {
    sim: Sim<'a>,
    hub: Hub,
    journal: Journal,
    pods: Vec<Arc<Pod>>,
    addresses: Vec<IpAddr>,
    latency: Duration,
    /// How late the API server answers.
    lateness: watch::Sender<Duration>,
    calm: Duration,
    steps: BTreeMap<(Duration, usize), Step>,
    planned: usize,
    /// Pods whose node is off, or that the kubelet will start again.
    down: [bool; PODS],
}

/// Runs a script on machines that are as they should be, or not.
///
/// # Errors
/// An agent ended with an error.
pub(crate) fn run(seed: u64, script: &Script, flaw: Flaw) -> turmoil::Result<Outcome> {
    let settled = script.calm + SETTLED_AFTER;
    let scene = played(seed, script, flaw, settled + ENDS_AFTER)?;
    let entries = scene.journal.entries();
    let spans = spans(&entries);
    let verdict = check(&spans).and_then(|()| check_settled(&spans, settled));
    let revision = scene.hub.with(|state| state.world.revision());
    let objects = (revision, server::shown(&scene.hub).to_string());
    Ok(Outcome { entries, objects, verdict })
}

/// The Lease so long after faults began, and all that happened until then.
///
/// # Errors
/// An agent ended with an error.
pub(crate) fn lease_after(
    seed: u64,
    script: &Script,
    faults_for: Duration,
) -> turmoil::Result<(Lease, Vec<Entry>)> {
    let until = FAULTS_FROM + faults_for;
    assert!(until < script.calm, "containers are started again then");
    let scene = played(seed, script, Flaw::default(), until)?;
    Ok((server::lease(&scene.hub).lease, scene.journal.entries()))
}

fn played(seed: u64, script: &Script, flaw: Flaw, until: Duration) -> turmoil::Result<Scene<'static>> {
    let mut scene = Scene::new(seed, script, flaw);
    for planned in &script.faults {
        scene.plan(FAULTS_FROM + planned.at, Step::Break(*planned));
    }
    scene.plan(script.calm, Step::Calm);
    while scene.sim.elapsed() < until {
        scene.turn()?;
    }
    Ok(scene)
}

impl Scene<'_> {
    fn new(seed: u64, script: &Script, flaw: Flaw) -> Self {
        let mut sim = Builder::new()
            .rng_seed(seed)
            .epoch(UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS.unsigned_abs()))
            .simulation_duration(2 * (script.calm + SETTLED_AFTER + ENDS_AFTER))
            // Hosts take turns within a millisecond: what takes less would arrive before it was sent.
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(script.latency.max(Duration::from_millis(1)))
            .udp_capacity(4_096)
            .tcp_capacity(1_024)
            .build();
        let journal = Journal::default();
        let addresses: Vec<IpAddr> = NAMES.iter().map(|name| sim.lookup(*name)).collect();
        let members: Vec<_> = NAMES.iter().zip(&addresses).map(|(name, at)| member(name, *at)).collect();
        let hub = server::cluster(&members[..2]);
        let served = hub.clone();
        let (lateness, late) = watch::channel(Duration::ZERO);
        sim.host(API, move || server::serve(served.clone(), late.clone()));
        let mut pods = Vec::new();
        for (index, name) in NAMES.into_iter().enumerate() {
            let own = seed.wrapping_mul(PODS as u64).wrapping_add(index as u64);
            let flaw = if flaw.only.is_none_or(|only| only == index) { flaw } else { Flaw::default() };
            let computer = Computer::new(name, own, (script.skews[index], flaw), journal.clone());
            let pod = Pod::new(computer, addresses[index], script.habits[index], &script.timing);
            let started = pod.clone();
            sim.host(name, move || started.clone().live());
            pods.push(pod);
        }
        let (steps, down) = (BTreeMap::new(), [false; PODS]);
        let Script { latency, calm, .. } = *script;
        Self { sim, hub, journal, pods, addresses, latency, lateness, calm, steps, planned: 0, down }
    }

    fn plan(&mut self, at: Duration, step: Step) {
        self.planned += 1;
        self.steps.insert((at, self.planned), step);
    }

    fn note(&self, text: String) {
        self.journal.write(self.sim.elapsed(), "", What::Note(text));
    }

    /// A millisecond for everybody.
    fn turn(&mut self) -> turmoil::Result {
        let now = self.sim.elapsed();
        while let Some(entry) = self.steps.first_entry().filter(|entry| entry.key().0 <= now) {
            let step = entry.remove();
            self.take(step);
        }
        for (index, name) in NAMES.into_iter().enumerate() {
            if !self.down[index] && !self.sim.is_host_running(name) {
                self.down[index] = true;
                self.plan(now + RESTART_PAUSE, Step::Start(index));
            }
        }
        self.sim.step()?;
        Ok(())
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Break(Planned { fault, lasts, .. }) => {
                self.note(format!("{fault:?} for {lasts:?}"));
                self.strike(fault, lasts);
                self.plan(self.sim.elapsed() + lasts, Step::Mend(fault));
            }
            Step::Mend(fault) => {
                self.note(format!("over: {fault:?}"));
                self.mend(fault);
            }
            Step::Start(index) => {
                self.down[index] = false;
                if !self.sim.is_host_running(NAMES[index]) {
                    self.sim.bounce(NAMES[index]);
                }
            }
            Step::Certify(index, epoch) => self.pods[index].certify(epoch),
            Step::Calm => self.calm(),
        }
    }

    fn address(&self, end: End) -> IpAddr {
        match end {
            End::Pod(index) => self.addresses[index],
            End::Api => self.sim.lookup(API),
        }
    }

    fn strike(&mut self, fault: Fault, lasts: Duration) {
        let now = self.sim.elapsed();
        match fault {
            Fault::Slow(from, to, latency) => {
                self.sim.set_link_max_message_latency(self.address(from), self.address(to), latency);
            }
            Fault::Loss(from, to, of_thousand) => {
                let rate = f64::from(of_thousand) / 1_000.0;
                self.sim.set_link_fail_rate(self.address(from), self.address(to), rate);
            }
            Fault::Cut(from, to) => self.sim.partition(self.address(from), self.address(to)),
            Fault::CutOneWay(from, to) => self.sim.partition_oneway(self.address(from), self.address(to)),
            Fault::Held(from, to) => self.sim.hold(self.address(from), self.address(to)),
            Fault::ApiStops => self.sim.crash(API),
            Fault::ApiLate(by) => drop(self.lateness.send_replace(by)),
            Fault::ContainerDies(index) => {
                let ended = self.die(index);
                // The kernel says it on a connection, which goes as long as the network does.
                if let Some(epoch) = ended {
                    let takes = self.pods[index].computer.draw_milliseconds(CERTIFICATE_MAX);
                    let at = now + Duration::from_millis(1) + takes;
                    for other in (0..PODS).filter(|other| *other != index) {
                        self.plan(at, Step::Certify(other, Epoch::from(epoch)));
                    }
                }
            }
            Fault::NodeDies(index) => drop(self.die(index)),
            Fault::ApplicationEnds(index) => self.pods[index].computer.end_application(now),
            Fault::Stall(index) => self.pods[index].stall(self.calm.min(now + lasts)),
            Fault::Leaves(index) => self.pods[index].ask_to_end(),
            Fault::Deleted(index) => {
                self.pods[index].ask_to_end();
                self.down[index] = true;
            }
            Fault::SwitchOver => {
                let epoch = u64::from(server::lease(&self.hub).lease.epoch);
                server::annotate(&self.hub, keys::ANNOTATION_HA_SWITCH_OVER, Some(epoch.to_string()));
            }
            Fault::Fenced(index) => {
                let uid = format_uid(self.pods[index].id().0);
                server::annotate(&self.hub, keys::ANNOTATION_HA_FENCED, Some(uid));
            }
            Fault::Replace => self.replace(),
            Fault::Vacate => self.vacate(),
        }
    }

    /// The operator asks for another partner of the holder, see R6. It changes its mind only where it asked for none.
    fn replace(&mut self) {
        let lease = server::lease(&self.hub).lease;
        let third = PODS - 1;
        let is_asked = lease.pending.is_some_and(|pending| pending.joining != AgentId::NOBODY);
        if !is_asked && !lease.members.contains(&self.pods[third].id()) {
            self.ask(&lease, &member(NAMES[third], self.addresses[third]));
        }
    }

    /// The operator asks for no partner, see R6.
    fn vacate(&mut self) {
        let lease = server::lease(&self.hub).lease;
        if lease.pending.is_none() && !lease.is_lone() {
            let uid = format_uid(AgentId::NOBODY.0);
            self.ask(&lease, &json!({"uid": uid, "pod": "", "address": "0.0.0.0:0"}));
        }
    }

    /// The operator writes who is to be in the place beside the holder.
    fn ask(&mut self, lease: &Lease, joining: &Value) {
        let holder = lease.holder;
        let leaving = lease.members.into_iter().find(|id| holder.is_some_and(|holder| holder != *id));
        let Some(leaving) = leaving else { return };
        let pending = json!({"leaving": format_uid(leaving.0), "joining": joining}).to_string();
        server::annotate(&self.hub, keys::ANNOTATION_HA_PENDING, Some(pending));
    }

    /// Nothing runs in a Pod any more; the tenure that this ends.
    fn die(&mut self, index: usize) -> Option<u64> {
        let computer = &self.pods[index].computer;
        let acting = computer.table().acting();
        computer.cut_off(self.sim.elapsed());
        self.sim.crash(NAMES[index]);
        self.down[index] = true;
        acting
    }

    fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::Slow(from, to, _) => {
                self.sim.set_link_max_message_latency(self.address(from), self.address(to), self.latency);
            }
            Fault::Loss(from, to, _) => {
                self.sim.set_link_fail_rate(self.address(from), self.address(to), 0.0);
            }
            Fault::Cut(from, to) => self.sim.repair(self.address(from), self.address(to)),
            Fault::CutOneWay(from, to) => self.sim.repair_oneway(self.address(from), self.address(to)),
            Fault::Held(from, to) => self.sim.release(self.address(from), self.address(to)),
            Fault::ApiStops if !self.sim.is_host_running(API) => self.sim.bounce(API),
            Fault::ApiLate(_) => drop(self.lateness.send_replace(Duration::ZERO)),
            Fault::ContainerDies(index) | Fault::NodeDies(index) => self.take(Step::Start(index)),
            Fault::SwitchOver => server::annotate(&self.hub, keys::ANNOTATION_HA_SWITCH_OVER, None),
            Fault::Fenced(_) => server::annotate(&self.hub, keys::ANNOTATION_HA_FENCED, None),
            Fault::ApiStops
            | Fault::ApplicationEnds(_)
            | Fault::Stall(_)
            | Fault::Leaves(_)
            | Fault::Deleted(_)
            | Fault::Replace
            | Fault::Vacate => {}
        }
    }

    /// Mends everything. The API server starts anew, because turmoil's TCP never repeats what a cut has lost.
    fn calm(&mut self) {
        self.note("calm".to_owned());
        let between = (0..PODS).flat_map(|to| (0..to).map(move |from| (End::Pod(from), End::Pod(to))));
        for (from, to) in between.chain((0..PODS).map(|index| (End::Pod(index), End::Api))) {
            self.mend(Fault::Slow(from, to, Duration::ZERO));
            self.mend(Fault::Loss(from, to, 0));
            self.mend(Fault::Held(from, to));
        }
        self.mend(Fault::ApiLate(Duration::ZERO));
        self.mend(Fault::SwitchOver);
        self.mend(Fault::Fenced(0));
        self.sim.crash(API);
        self.mend(Fault::ApiStops);
        (0..PODS).for_each(|index| self.take(Step::Start(index)));
    }
}
