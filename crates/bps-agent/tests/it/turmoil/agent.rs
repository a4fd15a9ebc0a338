//! A Pod: one container after the other, each with an agent and its enforcer; a seat in each pair that it belongs to.
//!
//! Puts an agent together as `agent::member` does, with the real parts on a simulated machine.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bps_agent::enforcer::Leash;
use bps_agent::exchange::Exchange;
use bps_agent::lifeline::Lifelines;
use bps_agent::marks::{State, word};
use bps_agent::pair::{Body, End, Pair};
use bps_agent::passage::{Passage, SharedTurnstile};
use bps_agent::peer::Peers;
use bps_agent::publish::Publisher;
use bps_agent::relay::{Relay, RelaySettings};
use bps_agent::search::{Membership, Search};
use bps_agent::settings::{PairArguments, PairSettings};
use bps_agent::store::Store;
use bps_agent::tenant::Tenant;
use bps_agent::world::{AlarmClock as _, Machine as _};
use bps_api::HandoverOrder;
use bps_protocol::{Agent, AgentId, Epoch, Incarnation, Moment, Protocol, SeatNumber, Timing};
use bps_runtime::health::Health;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use bps_wire::key_ring::KeyRing;
use bps_wire::uid::format_uid;
use clap::Parser;
use futures::StreamExt as _;
use futures::future::try_join_all;
use futures::stream::{self, select_all};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use turmoil::net::UdpSocket;

use crate::turmoil::machine::{Bell, Computer, Mailbox, true_time};
use crate::turmoil::server::PAIR;
use crate::turmoil::wire;

/// Where agents talk.
const PORT: u16 = 20_001;
/// Signals and certificates that wait for an agent; a run has fewer.
const WAITING_MAX: usize = 64;

/// What a Pod is told, by the arguments of the real program.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    pair: PairArguments,
}

/// What differs from Pod to Pod, and from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Whether it has a volume for the mark of its first start.
    pub(crate) has_state_dir: bool,
    /// Whether it has hooks.
    pub(crate) has_hooks: bool,
    /// Whether its application stands by, too; then there are hooks.
    pub(crate) runs_in_standby: bool,
    /// Whether its application may outlast a planned handover.
    pub(crate) handover: HandoverOrder,
    /// How long its Pod may take to end. Unit: seconds.
    pub(crate) end_within: u64,
}

/// A Pod.
pub(crate) struct Pod {
    pub(crate) computer: Computer,
    settings: PairSettings,
    /// Names of the Leases of its seats.
    pairs: Vec<&'static str>,
    habits: Habits,
    timing: Timing,
    life: Mutex<Life>,
    /// Until then its agent stands still.
    stalled_until: watch::Sender<Duration>,
}

/// What is there from one container to the next, and how the present one is reached.
#[derive(Default)]
struct Life {
    /// Pairs that it came to before.
    marked: BTreeSet<&'static str>,
    /// Those of each seat.
    signals: Vec<mpsc::Sender<Signal>>,
    certificates: Vec<mpsc::Sender<Epoch>>,
}

impl Life {
    /// Another container begins.
    fn forget(&mut self) {
        (self.signals, self.certificates) = (Vec::new(), Vec::new());
    }
}

/// What the seats of one container share.
struct Container {
    exchange: Exchange<Mailbox>,
    turnstile: SharedTurnstile,
    /// The enforcer's timer.
    hand: Bell,
}

fn keys() -> turmoil::Result<watch::Receiver<KeyRing>> {
    Ok(watch::channel(KeyRing::parse(&"0f".repeat(32))?).1)
}

fn uid(name: &str) -> String {
    format_uid(name.bytes().fold(1, |uid, byte| uid << 8 | u128::from(byte)))
}

/// The Pod as the Lease names it.
pub(crate) fn member(name: &str, address: IpAddr) -> Value {
    json!({"uid": uid(name), "pod": name, "address": SocketAddr::new(address, PORT)})
}

impl Pod {
    pub(crate) fn new(computer: Computer, address: IpAddr, habits: Habits, timing: &Timing) -> Arc<Self> {
        Self::of(computer, address, habits, timing, &[PAIR])
    }

    /// With a seat in each of these pairs.
    pub(crate) fn of(
        computer: Computer,
        address: IpAddr,
        habits: Habits,
        timing: &Timing,
        pairs: &[&'static str],
    ) -> Arc<Self> {
        let mut arguments = vec![
            "agent".to_owned(),
            format!("--lease={PAIR}"),
            format!("--slice={PAIR}"),
            "--key-file=/keys".to_owned(),
            format!("--peer-bind=0.0.0.0:{PORT}"),
            format!("--pod-uid={}", uid(computer.name())),
            format!("--pod={}", computer.name()),
            format!("--pod-ip={address}"),
            format!("--end-within={}", habits.end_within),
            // Faults end it more often than anybody would.
            "--restart-pause-max=1".to_owned(),
        ];
        if habits.has_hooks || habits.runs_in_standby {
            arguments.extend(["--on-active=a", "--on-standby=s", "--on-fence=f"].map(str::to_owned));
        }
        arguments.extend(habits.runs_in_standby.then(|| "--run-in-standby".to_owned()));
        arguments.extend(match habits.handover {
            HandoverOrder::BreakBeforeMake => None,
            HandoverOrder::MakeBeforeBreak => Some("--handover=make-before-break".to_owned()),
        });
        let settings =
            Arguments::parse_from(arguments).pair.settings().expect("one seat").expect("it names a Lease");
        let stalled_until = watch::Sender::new(Duration::ZERO);
        let (pairs, life) = (pairs.to_vec(), Mutex::default());
        Arc::new(Self { computer, settings, pairs, habits, timing: *timing, life, stalled_until })
    }

    pub(crate) fn id(&self) -> AgentId {
        self.settings.own.id
    }

    /// Sends SIGTERM to the agent, if there is one.
    pub(crate) fn ask_to_end(&self) {
        for signals in &self.life.lock().expect("no panic").signals {
            // One that has ended needs no signal.
            let _: Result<(), TrySendError<Signal>> = signals.try_send(Signal::TERM);
        }
    }

    /// Tells the agent that the application of this tenure of its first pair has certainly ended.
    pub(crate) fn certify(&self, epoch: Epoch) {
        if let Some(certificates) = self.life.lock().expect("no panic").certificates.first() {
            // One that has ended needs no certificate.
            let _: Result<(), TrySendError<Epoch>> = certificates.try_send(epoch);
        }
    }

    /// Lets the agent stand still until this true time; its application and its enforcer go on.
    pub(crate) fn stall(&self, until: Duration) {
        self.stalled_until.send_replace(until);
    }

    /// One container, from its start to its end.
    pub(crate) async fn live(self: Arc<Self>) -> turmoil::Result {
        self.computer.note("starts");
        let socket = UdpSocket::bind(self.settings.peer_bind).await?;
        let container = Container {
            exchange: Exchange::new(Mailbox(socket)),
            turnstile: SharedTurnstile::default(),
            hand: Bell::new(self.computer.clone(), Duration::ZERO),
        };
        self.life.lock().expect("no panic").forget();
        let seats = self.pairs.iter().zip(0..).map(|(pair, number)| {
            let passage = self.turnstile(&container).passage(SeatNumber(number));
            self.sit(&container, pair, passage)
        });
        let seats = Box::pin(try_join_all(seats));
        let ended = tokio::select! {
            // Who is killed does nothing more.
            biased;
            () = self.enforced(&container.hand) => "killed by its enforcer".to_owned(),
            ends = self.stalling(seats) => format!("{:?}", ends?),
        };
        self.computer.note(ended);
        // All that is left of the application is killed with the agent, and the container ends after it.
        while !self.computer.table().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    fn turnstile(&self, container: &Container) -> SharedTurnstile {
        let is_apart = self.computer.flaw().lacks_turnstile;
        if is_apart { SharedTurnstile::default() } else { container.turnstile.clone() }
    }

    /// One seat, from the start of its agent to its end.
    async fn sit(&self, container: &Container, pair: &'static str, passage: Passage) -> turmoil::Result<End> {
        let (mut tasks, over) = (Tasks::new(), Shutdown::new());
        let (mut body, certificates) = self.body(&mut tasks, &over, container, passage)?;
        tokio::spawn(note_roles(self.computer.clone(), body.states.subscribe()));
        let own = &self.settings.own;
        let client = wire::client();
        let search = Search::new(client.clone(), Membership::Lease(pair.to_owned()), own.clone());
        let (agent, is_first) = self.agent(pair);
        let found = loop {
            let found = search.find(drop).await;
            let present = if is_first { Some(found) } else { search.present(&found).await };
            if let Some(found) = present {
                break found;
            }
        };
        body.peers = Peers::new(container.exchange.extension(Some(found.record.group)), own.id, keys()?);
        body.peers.know(&found.record);
        let store = Store::start(&mut tasks, &over, (client.clone(), &own.namespace, found), self.timing);
        let (showing, to_show) = watch::channel(None);
        let retries = body.tenant.metrics().publish_retries.clone();
        let (slice, names) = watch::channel(Some(pair.to_owned()));
        let publisher = Publisher::new(self.computer.clone(), (client, names), own.clone(), retries);
        let shown = publisher.shown();
        tasks.spawn("publisher", publisher.run(to_show, over.clone()));
        let lifelines = Lifelines::told(own.id, certificates);
        let protocol = Protocol::new(agent, self.timing);
        // One of several seats may go to another pair.
        let is_of_group = self.pairs.len() > 1;
        let pair = Pair { protocol, store, lifelines, replica: None, showing, slice, shown, is_of_group };
        Ok(body.run(pair, [&over, &over]).await?)
    }

    fn body(
        &self,
        tasks: &mut Tasks,
        over: &Shutdown,
        container: &Container,
        passage: Passage,
    ) -> turmoil::Result<(Body<Computer>, mpsc::Receiver<Epoch>)> {
        let PairSettings {
            own, peer_bind, relay_ports, hooks, restart_pause_max, handover, end_within, ..
        } = self.settings.clone();
        let computer = self.computer.clone();
        let (signals, asked) = mpsc::channel(WAITING_MAX);
        let (certifier, certificates) = mpsc::channel(WAITING_MAX);
        self.reach_by(signals, certifier);
        let command = ("/agent".into(), vec!["server".into()]);
        let asked = stream::unfold(asked, async |mut asked| asked.recv().await.map(|signal| (signal, asked)));
        let body = Body {
            tenant: Tenant::new(computer.clone(), command, hooks, self.timing.stop)
                .pausing_at_most(restart_pause_max),
            leash: Leash::new(container.hand.clone()),
            peers: Peers::new(container.exchange.extension(None), own.id, keys()?),
            relay: Relay::start(tasks, over, RelaySettings { ip: peer_bind.ip(), ports: relay_ports }),
            alarm: Bell::new(computer.clone(), computer.flaw().is_late_by),
            signals: select_all([asked.boxed()]),
            states: watch::Sender::new(State::UNASSIGNED),
            health: Health::new(),
            timing: self.timing,
            handover,
            end_within,
            passage,
            machine: computer,
        };
        Ok((body, certificates))
    }

    fn reach_by(&self, signals: mpsc::Sender<Signal>, certificates: mpsc::Sender<Epoch>) {
        let mut life = self.life.lock().expect("no panic");
        life.signals.push(signals);
        life.certificates.push(certificates);
    }

    /// The agent as it may start, see `agent::member`, and whether it does for the first time.
    fn agent(&self, pair: &'static str) -> (Agent, bool) {
        let incarnation = Incarnation(self.computer.draw(u64::MAX));
        let is_new = self.life.lock().expect("no panic").marked.insert(pair);
        if self.habits.has_state_dir && is_new {
            return (Agent::new(self.id(), incarnation), true);
        }
        let at = Moment { now: self.computer.now(), timing: &self.timing };
        (Agent::r7_restarted(&at, self.id(), incarnation), false)
    }

    async fn enforced(&self, hand: &Bell) {
        if self.computer.flaw().lacks_enforcer {
            std::future::pending::<()>().await;
        }
        hand.rung().await.expect("a simulated alarm does not fail");
    }

    /// The work, which stands still when it is told to.
    async fn stalling<Output>(&self, work: impl Future<Output = Output>) -> Output {
        let mut work = pin!(work);
        let mut pause = pin!(sleep(Duration::ZERO));
        poll_fn(|context| {
            let rest = self.stalled_until.borrow().saturating_sub(true_time());
            if rest.is_zero() {
                return work.as_mut().poll(context);
            }
            pause.set(sleep(rest));
            match pause.as_mut().poll(context) {
                Poll::Ready(()) => work.as_mut().poll(context),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

async fn note_roles(computer: Computer, mut states: watch::Receiver<State>) {
    while states.changed().await.is_ok() {
        let State { role, epoch } = *states.borrow_and_update();
        computer.note(format!("{} {epoch}", role.map_or("unassigned", word)));
    }
}
