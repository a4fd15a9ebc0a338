//! The loop of an agent in a pair: carries what happens to the protocol, and carries out what the protocol wants.
//!
//! Decides nothing about who may act. Never waits for the API server, a peer or a disk: all that takes time happens in
//! other tasks, and this one only sleeps until something has happened.
//!
//! The loop keeps its state in parts. Each part has tests of its own, and decides what follows from a moment
//! and a few facts. The loop asks the parts, and carries out their answers.
//!
//! | part | what it decides |
//! |---|---|
//! | `timetable` | when the loop is woken next, and whether the machine wakes it in time |
//! | `lease_view` | which orders of the Lease are new, and whether the Lease needs this agent |
//! | `eligibility` | whether this agent may act with what is in its state directory |
//! | `state_claim` | what the writes of a tenure say of the state directories |
//! | `succession` | to which Pod clients are led while the role passes from one to the other |
//! | `withdrawal` | when an agent that was asked to leave may do so |
//!
//! | file | what the loop carries out there |
//! |---|---|
//! | `effects` | the effects of a step of the protocol, among them the beginning of a tenure |
//! | `hearing` | messages of the other agents |
//! | `ordered` | orders in the Lease |
//! | `leaving` | the end of the process, of a tenure, or of the agent's part in a Lease |
//! | `overlap` | planned handovers |
//! | `ports` | the ports of the application, which are kept or relayed |
//! | `replica` | replicated state |
//! | `telling` | records of a takeover: logs, metrics, annotations, messages to the peer |

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bps_api::HandoverOrder;
use bps_protocol::{
    Agent, BootTime, Chronicle, Event, Moment, Order, Protocol, Role, SeatNumber, Showing, Timing,
};
use bps_runtime::health::{Health, TICK_PERIOD};
use bps_runtime::shutdown::Shutdown;
use bps_wire::lease::{Member, Record};
use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::interval;
use tracing::{error, info, warn};

use self::eligibility::Eligibility;
use self::lease_view::{LeaseOrders, LeaseView};
use self::succession::Succession;
use self::timetable::Timetable;
use self::withdrawal::Withdrawal;
use super::causes::cause;
use super::enforcer::Leash;
use super::lifeline::Lifelines;
use super::marks::{State, word};
use super::passage::Passage;
use super::peer::Peers;
use super::publish::Shown;
use super::relay::Relay;
use super::relay::aftermath::Aftermath;
use super::replicate::Replica;
use super::store::{Report, Store};
use super::tenant::{Posture, Tenant};
use super::world::{AlarmClock as _, Kernel, Machine, Timer as _};

/// What an agent keeps from one Lease to the next.
pub struct Body<On: Machine = Kernel> {
    /// What it runs on.
    pub machine: On,
    /// The application.
    pub tenant: Tenant<On>,
    /// Ends it if this process cannot.
    pub leash: Leash<On::Timer>,
    /// The other agents.
    pub peers: Peers<On::Socket>,
    /// Serves whoever still comes here while it does not act.
    pub relay: Relay,
    /// Wakes the loop.
    pub alarm: On::Alarm,
    /// What people and the kubelet ask of the application.
    pub signals: SelectAll<BoxStream<'static, Signal>>,
    /// Role and epoch, for whoever shows them.
    pub states: watch::Sender<State>,
    /// Whether the loop goes round, for the kubelet.
    pub health: Health,
    /// Times of the pair, or the defaults while there is none.
    pub timing: Timing,
    /// Whether the application may outlast a planned handover; `None`: as the Lease says.
    pub handover: Option<HandoverOrder>,
    /// How long the Pod may take to end once its signal has come.
    pub end_within: Duration,
    /// Lets it act while no other seat of this Pod does.
    pub passage: Passage,
}

/// What belongs to one Lease.
#[derive(Debug)]
pub struct Pair {
    /// Who may act.
    pub protocol: Protocol,
    /// The Lease.
    pub store: Store,
    /// Certificates of the other member.
    pub lifelines: Lifelines,
    /// The application's state, if it is replicated.
    pub replica: Option<Replica>,
    /// With which epoch clients are to be led here, for whoever publishes it.
    pub showing: watch::Sender<Option<Showing>>,
    /// In which slice; `None`: there is none.
    pub slice: watch::Sender<Option<String>>,
    /// What the slice shows of it.
    pub shown: watch::Receiver<Option<Shown>>,
    /// Whether it looks for another Lease once this one does not name it any more.
    pub is_of_group: bool,
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to end.
    Left,
    /// The Lease is gone or does not name this agent, and no other agent counts on it.
    Dismissed,
    /// The same, but the Lease called the copy of this seat in sync to the last: one that is made again may do so, too.
    Bereft,
}

/// What the loop keeps for itself; see the module for its parts.
struct Turn<'a, On: Machine> {
    body: &'a mut Body<On>,
    pair: Pair,
    /// When the loop is woken.
    timetable: Timetable,
    /// The Lease as its versions have shown it.
    lease: LeaseView,
    /// Whether the agent may act with its state directory.
    eligibility: Eligibility,
    /// The events that the loop awaits while the role passes from one Pod to the other.
    succession: Succession,
    /// How long clients may still connect to this Pod because the agent acted.
    aftermath: Aftermath,
    /// When the agent may leave.
    withdrawal: Withdrawal,
    /// How the last tenures ended and began.
    chronicle: Chronicle,
}

impl<On: Machine> Body<On> {
    /// Waits until something asks the process to end, while there is no Lease; signals for the application are lost.
    pub async fn asked_to_end(&mut self) {
        let mut ticks = interval(TICK_PERIOD);
        loop {
            tokio::select! {
                Some(signal) = self.signals.next() => if is_end(signal, self.passage.seat()) { return },
                _ = ticks.tick() => self.health.tick(),
            }
        }
    }

    /// Runs until it is asked to end and has handed over, released the Lease, or could do neither in time; or until
    /// the Lease does not need it any more.
    ///
    /// `shutdowns` are those of the process and of the tasks of this Lease. Call it on the main thread, see
    /// [`super::tree::Tree::start`].
    ///
    /// # Errors
    /// What the kernel refused. The process must end then, and the application ends with it.
    pub async fn run(&mut self, pair: Pair, shutdowns: [&Shutdown; 2]) -> io::Result<End> {
        let withdrawal = Withdrawal::new(self.relay.linger());
        let mut turn = Turn {
            body: self,
            pair,
            timetable: Timetable::default(),
            lease: LeaseView::default(),
            eligibility: Eligibility::default(),
            succession: Succession::default(),
            aftermath: Aftermath::default(),
            withdrawal,
            chronicle: Chronicle::default(),
        };
        let patience = turn.withdrawal.time_to_end(turn.body.end_within, &turn.body.timing);
        turn.pair.protocol.be_patient(patience);
        turn.body.passage.begin();
        turn.body.tenant.enlist();
        turn.be_standby();
        // What was found of the Lease: without it the first step would ask for it.
        if let Ok(report) = turn.pair.store.reports.try_recv() {
            turn.reported(report)?;
        }
        turn.step(Event::Timer)?;
        loop {
            turn.leave_once_copied()?;
            if turn.is_over() && turn.is_over_for_all_heard()? {
                return Ok(End::Left);
            }
            if !turn.is_dismissed() {
                turn.stay();
            } else if turn.is_empty()? {
                // No step follows by which it could come out.
                turn.body.passage.leave();
                return Ok(turn.dismissal());
            }
            let is_leaving = turn.withdrawal.is_leaving();
            let Body { tenant, alarm, peers, signals, passage, .. } = &mut *turn.body;
            let Pair { store, lifelines, replica, .. } = &mut turn.pair;
            let (succession, held_until) = (&mut turn.succession, turn.eligibility.held_until());
            tokio::select! {
                // The end of the application comes before all that may have been said because of it. Then the time,
                // because a hold that is over must not be mistaken for one that an answer still extends. Messages are
                // last: no flood of them keeps the agent from anything else.
                biased;
                ended = tenant.ended() => turn.ended(ended?)?,
                rung = alarm.rung() => {
                    rung?;
                    turn.pass_time()?;
                }
                word = replica::word(replica, held_until) => turn.replicated(word)?,
                come = succession.come() => turn.arrived(come)?,
                Some(signal) = signals.next() => turn.signalled(signal)?,
                () = any_requested(shutdowns), if !is_leaving => turn.leave()?,
                () = passage.changed() => turn.step(Event::Timer)?,
                Some(epoch) = lifelines.certificates.recv() => turn.step(Event::Certificate { epoch })?,
                Some(report) = store.reports.recv() => turn.reported(report)?,
                said = peers.receive() => if let Some((from, content)) = said {
                    turn.heard(from, content)?;
                },
            }
        }
    }
}

async fn any_requested([one, other]: [&Shutdown; 2]) {
    tokio::select! {
        () = one.requested() => {}
        () = other.requested() => {}
    }
}

/// Whether the signal asks the agent to end. Each seat gets it, and the first one logs it.
fn is_end(signal: Signal, seat: SeatNumber) -> bool {
    let is_end = [Signal::TERM, Signal::INT].contains(&signal);
    if is_end && seat == SeatNumber::default() {
        info!(reason = if signal == Signal::TERM { "SIGTERM" } else { "SIGINT" }, "Received signal");
    }
    is_end
}

impl<On: Machine> Turn<'_, On> {
    fn now(&self) -> BootTime {
        self.body.machine.now()
    }

    fn signalled(&mut self, signal: Signal) -> io::Result<()> {
        if is_end(signal, self.body.passage.seat()) {
            return self.ask_to_leave();
        }
        self.body.tenant.pass(signal)
    }

    fn reported(&mut self, report: Report) -> io::Result<()> {
        match report {
            // A read may be behind the watch; the protocol has no use for it either.
            Report::Read(record) if self.body.peers.is_behind(&record) => Ok(()),
            Report::Read(record) if self.body.peers.know(&record) => {
                self.pair.lifelines.know(&record);
                self.know(&record);
                self.aftermath.sees(record.takeover, self.now() + self.body.relay.linger());
                let Record { lease, version, slice, orders, level, .. } = *record;
                let agent = *self.pair.protocol.agent();
                self.lease.read(version, agent.seen.map(|seen| seen.version));
                if self.pair.is_of_group {
                    self.pair
                        .slice
                        .send_if_modified(|known| std::mem::replace(known, slice.clone()) != slice);
                }
                // First: who shall not act must not take what this version offers.
                self.know_level(version, lease.members, level);
                self.obey(LeaseOrders::of(version, orders, lease.members, agent.id))?;
                self.step(Event::LeaseRead { lease, version })?;
                let peer = self.other_address();
                self.body.tenant.follow(peer);
                self.switch_over()
            }
            Report::Read(_) => {
                self.lease.lose();
                if !self.pair.is_of_group {
                    error!("Ignored a Lease that was made anew: delete the Pods of the pair, too");
                }
                Ok(())
            }
            Report::Gone => {
                if self.lease.lose() {
                    warn!("Lost the Lease: it was deleted");
                }
                Ok(())
            }
            Report::Applied { number, record } => {
                // Who was admitted by this write is who the state goes to from now on.
                if !self.body.peers.is_behind(&record) && self.body.peers.know(&record) {
                    self.know(&record);
                }
                let Record { version, lease, level, .. } = *record;
                self.know_level(version, lease.members, level);
                self.step(Event::WriteApplied { number, version })
            }
            Report::Conflicted => self.step(Event::WriteConflicted),
        }
    }

    /// Does what is due. No application begins whose time is over: a whole container may have stood still.
    fn pass_time(&mut self) -> io::Result<()> {
        let (now, agent) = (self.now(), *self.pair.protocol.agent());
        self.tell_lateness(now);
        let is_over = agent.role == Role::Active && agent.hold_end() <= now;
        if !is_over {
            self.body.tenant.go_on(now)?;
        }
        let event = self.as_time_passes();
        self.step(event)?;
        self.stop_pausing_alone(now)
    }

    /// Whoever waits before it starts an application that ended again and again holds the role meanwhile: a standby that came since
    /// gets it.
    fn stop_pausing_alone(&mut self, now: BootTime) -> io::Result<()> {
        let has_successor = self.pair.protocol.has_successor(now);
        if self.body.tenant.is_relieved(has_successor) {
            info!("Hands over instead of waiting for the next start of the application");
            self.step(Event::Ordered(Order::GiveUp))?;
        }
        Ok(())
    }

    /// What the protocol does about an event, knowing whether it may take over.
    fn step(&mut self, event: Event) -> io::Result<()> {
        // First: another seat of this Pod may have gone in since the last step.
        if let Some(order) = self.fence() {
            self.step_now(Event::Ordered(order))?;
        }
        if let Some(order) = self.permit() {
            self.step_now(Event::Ordered(order))?;
        }
        self.step_now(event)
    }

    fn step_now(&mut self, event: Event) -> io::Result<()> {
        let now = self.now();
        self.body.health.tick();
        self.show_readiness();
        let agent = *self.pair.protocol.agent();
        let (before, unresolved) = (agent.role, agent.unresolved);
        let is_outlasted = self.is_outlasted(now, event);
        self.pair.protocol.live_on_writes(self.timetable.is_too_late(now));
        let mut effects = self.pair.protocol.step(now, event);
        if is_outlasted {
            self.let_linger(now, &mut effects);
        }
        let lingers_until = self.body.tenant.lingers_until();
        let at = Moment { now, timing: &self.body.timing };
        self.body.leash.follow(self.pair.protocol.agent(), lingers_until, &at)?;
        self.follow(now, &event, &agent);
        // First: who hears that this agent acts must find its application, and the application its ports.
        self.relay(now);
        self.show_replica(before);
        self.carry_out(effects)?;
        // Before this thread does anything else.
        let is_empty = self.body.tenant.is_gone() && !self.body.tenant.has_hook();
        self.body.passage.follow(self.pair.protocol.agent(), is_empty);
        self.show_replica(self.pair.protocol.agent().role);
        self.show();
        self.note_progress();
        self.watch_successor();
        let others = [self.body.tenant.due(), self.withdrawal.stays_until(now)];
        self.body.alarm.set(Some(self.timetable.next_ring(now, others)))?;
        let (role, epoch) = (self.pair.protocol.agent().role, self.pair.protocol.agent().epoch);
        if role != before {
            let (reason, is_answer) = cause(&event);
            let sent = unresolved.filter(|_| is_answer).map(|unresolved| unresolved.sent);
            let elapsed = self.now().since(sent.unwrap_or(now));
            let elapsed_ms = format_args!("{:.3}", elapsed.as_secs_f64() * 1_000.0);
            info!(role = word(role), %epoch, reason, %elapsed_ms, "Changed role");
        }
        let state = State { role: Some(role), epoch };
        self.body.states.send_if_modified(|shown| std::mem::replace(shown, state) != state);
        Ok(())
    }

    fn stand_by(&mut self) {
        let (epoch, peer) = (self.pair.protocol.agent().epoch, self.other_address());
        self.body.tenant.stand_by(self.now(), Posture { epoch, peer });
    }

    fn other_address(&self) -> Option<IpAddr> {
        let Agent { id, seen, .. } = *self.pair.protocol.agent();
        let directory = self.body.peers.directory();
        let members =
            seen.map_or_else(|| directory.keys().copied().collect(), |seen| seen.lease.members.to_vec());
        let peer = members.into_iter().find(|member| *member != id).and_then(|peer| directory.get(&peer));
        peer.and_then(Member::ip)
    }
}

mod eligibility;
mod lease_view;
mod state_claim;
mod succession;
mod timetable;
mod withdrawal;

mod effects;
mod hearing;
mod leaving;
mod ordered;
mod overlap;
mod ports;
mod replica;
mod telling;
