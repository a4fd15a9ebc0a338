//! An agent of a pair is two processes: the enforcer, which is PID 1 of the container, and the agent proper below it.
//!
//! An agent that is stopped, starved or stuck cannot end its application when its hold is over. The enforcer can: both
//! share one timer of the kernel, which the agent sets to the moment when nothing may be left of the application. If it
//! is ever reached, the enforcer kills the agent with everything below it. No message passes between them, so there is
//! none that could come late.
//!
//! It also opens the port for probes, and the agent gets that with the timer: the kubelet asks as soon as the container has
//! started, and where nobody listens by then it asks again a second later.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{self as unix, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use bps_protocol::{Agent, BootTime, Moment, Timing};
use bps_runtime::health;
use futures::StreamExt as _;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::Signal;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Origin;
use signal_hook_tokio::SignalsInfo;
use tokio::net::TcpListener;

use super::application::Application;
use super::clock::Alarm;
use super::draw::draw;
use super::init::PASSED_ON;
use super::stop_signal::StopSignal;
use super::tenant::KILLED_BEFORE_MAX;
use super::tree::{self, Ending, Environment};
use super::world::{AlarmClock as _, Kernel, Timer};

/// How long the agent waits for the timer: 5 s, for a machine that is busy with many starts.
const SHARED_WITHIN: Duration = Duration::from_secs(5);
/// How long the enforcer tries to kill what is left before it ends itself, with which the kernel kills it, whatever it is.
///
/// 9 ms: what can be killed is dead by then, and there is X/4 for that and for its last words, 50 ms by default.
const GONE_WITHIN: Duration = Duration::from_millis(9);
/// A clock of the kernel is slower than the protocol's by less than one part of so many. 9: `adjtimex(2)` takes a `tick` that is 10 %
/// less than it should be, and 500 millionths for the frequency.
const SLEWED_PART: u32 = 9;
/// The enforcer kills one part of so many of X before the hold ends.
const LEAD_PARTS: u32 = 4;
/// Argument that names the enforcer's socket to the agent.
const ENFORCER: &str = "--enforcer";

/// How an agent ended.
#[derive(Debug)]
pub struct Watched {
    /// What became of its process.
    pub ending: Ending,
    /// The enforcer killed it: the hold was over, and the application had not ended.
    pub was_overdue: bool,
    /// Why the rest is left to the kernel, which kills it with the first process of the container.
    pub left: Option<io::Error>,
}

/// Runs the agent with these arguments, ends with it, and ends it when its timer goes off.
///
/// Says nothing: what a process needs for logs is memory that each Pod would pay for twice.
///
/// `arguments` are those of this process, the verb first. `launcher` is this program. Whatever signal stops the container, the
/// agent gets SIGTERM for it. Call it on the main thread, see [`tree::Tree::start`].
///
/// # Errors
/// The address for probes cannot be used, or what the kernel refused. Nothing is left of the agent then.
pub async fn run(
    launcher: &Path,
    arguments: &[OsString],
    (stop_signal, health_bind): (StopSignal, Option<SocketAddr>),
) -> io::Result<Watched> {
    let mut probes = match health_bind {
        Some(address) => Some(health::listen(address).await.map_err(io::Error::other)?),
        None => None,
    };
    tree::adopt_orphans()?;
    // Before the start: an early SIGTERM is for the agent, and must not end this process instead.
    let mut signals = SignalsInfo::<WithOrigin>::new(PASSED_ON.map(Signal::as_raw))?;
    let name = format!("bps-agent-{:032x}", draw()?);
    let timer = Alarm::new()?;
    let mut lender = Some(Lender::listen(&name)?);
    let command = command(launcher, (arguments, &name));
    let mut agent = Application::start(Kernel, launcher, &command, &Environment::new())?;
    let process = agent.process();
    loop {
        tokio::select! {
            // Who has ended needs no enforcement, and no signal.
            biased;
            ended = agent.command_ended() => {
                let ending = ended?;
                let left = agent.kill_within(GONE_WITHIN).await.err();
                return Ok(Watched { ending, was_overdue: false, left });
            }
            rung = timer.rung() => {
                rung?;
                let left = agent.kill_within(GONE_WITHIN).await.err();
                let ending = agent.ending().unwrap_or(Ending::Killed(Signal::KILL.as_raw()));
                return Ok(Watched { ending, was_overdue: true, left });
            }
            lent = lend(&mut lender, (&timer, probes.as_ref()), process) => {
                lent?;
                (lender, probes) = (None, None);
            }
            Some(Origin { signal, process, .. }) = signals.next() => {
                let Some(signal) = Signal::from_named_raw(signal) else { continue };
                let is_stop = stop_signal.stops_container(signal, process.map(|process| process.pid));
                agent.pass(if is_stop { Signal::TERM } else { signal })?;
            }
        }
    }
}

/// The same arguments with the name of the socket behind the verb.
fn command(program: &Path, (arguments, name): (&[OsString], &str)) -> Vec<OsString> {
    let mut command = vec![program.as_os_str().to_owned()];
    command.extend(arguments.iter().cloned());
    let verb = 1.min(arguments.len());
    command.insert(1 + verb, OsStr::new(&format!("{ENFORCER}={name}")).to_owned());
    command
}

async fn lend(lender: &mut Option<Lender>, loan: Loan<'_>, to: i32) -> io::Result<()> {
    match lender {
        Some(lender) => lender.lend(loan, to).await,
        None => std::future::pending().await,
    }
}

/// The timer, and the port for probes if there is one.
type Loan<'a> = (&'a Alarm, Option<&'a TcpListener>);

/// Gives both to the agent, and to nobody else.
struct Lender {
    listener: tokio::net::UnixListener,
}

impl Lender {
    /// In the abstract namespace: no file, and gone with this process.
    fn listen(name: &str) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&unix::SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: tokio::net::UnixListener::from_std(listener)? })
    }

    /// Waits for the process, and sends it copies of both. May be dropped and called again.
    async fn lend(&self, (timer, probes): Loan<'_>, to: i32) -> io::Result<()> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            // Other containers of the Pod may connect, too; the kernel says who it is.
            if stream.peer_cred()?.pid() != Some(to) {
                continue;
            }
            let lent: Vec<_> = std::iter::once(timer.as_fd()).chain(probes.map(AsFd::as_fd)).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&lent)), "there is space for two");
            // A descriptor travels with at least one byte, for which a new socket has room.
            sendmsg(&stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
            return Ok(());
        }
    }
}

/// What an agent has from its enforcer.
#[derive(Debug)]
pub struct Lent {
    /// The timer.
    pub leash: Leash,
    /// The port for probes, if it was to be opened.
    pub probes: Option<std::net::TcpListener>,
}

/// The agent's hand on the timer.
#[derive(Debug)]
pub struct Leash<Hand = OwnedFd> {
    timer: Hand,
    set_to: Option<BootTime>,
}

impl Lent {
    /// Takes it from the enforcer whose socket has this name.
    ///
    /// # Errors
    /// There is no such enforcer, or it did not answer in time.
    pub fn take(name: &str) -> io::Result<Self> {
        let stream = UnixStream::connect_addr(&unix::SocketAddr::from_abstract_name(name)?)?;
        stream.set_read_timeout(Some(SHARED_WITHIN))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        rustix::io::retry_on_intr(|| {
            recvmsg(&stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })
        .map_err(|error| {
            if error == Errno::AGAIN { io::ErrorKind::TimedOut.into() } else { io::Error::from(error) }
        })?;
        let mut received = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(lent) => Some(lent),
            RecvAncillaryMessage::ScmCredentials(_) | _ => None,
        });
        let mut received = received.next().ok_or(io::ErrorKind::UnexpectedEof)?;
        let leash = Leash::new(received.next().ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(Self { leash, probes: received.next().map(Into::into) })
    }
}

impl Leash {
    /// Another hand on the same timer, for another seat. Each sets it only when its own hold changes, and one seat acts
    /// at most.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn share(&self) -> io::Result<Self> {
        Ok(Self { timer: self.timer.try_clone()?, set_to: None })
    }
}

impl<Hand: Timer> Leash<Hand> {
    /// With a timer that is not set.
    pub fn new(timer: Hand) -> Self {
        Self { timer, set_to: None }
    }

    /// Sets the timer to when nothing may be left of the application, or switches it off. To be called after each change
    /// of the agent, before it starts an application, and from time to time. `lingers_until` is when an application must be gone
    /// whose tenure has passed to the peer, if there is one.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn follow(
        &mut self,
        agent: &Agent,
        lingers_until: Option<BootTime>,
        at: &Moment<'_>,
    ) -> io::Result<()> {
        let due = due(agent, lingers_until, at.timing).map(|due| early(due, at));
        if due != self.set_to {
            self.timer.set(due)?;
            self.set_to = due;
        }
        Ok(())
    }
}

/// When a timer has to be set to go off in time although the kernel's clock is slow: before another agent can have taken over. The less
/// time is left, the closer it comes: an agent that lives sets it again and again, and notices the end by itself.
fn early(due: BootTime, at: &Moment<'_>) -> BootTime {
    let Timing { hold, watch, stop, lateness, .. } = *at.timing;
    // Half of what a supervisor may be late is left for the wake of this one.
    let spare = (stop / LEAD_PARTS + watch).saturating_sub(hold + lateness / 2);
    let longest = due.since(at.now) / SLEWED_PART;
    due.before(longest.saturating_sub(spare / SLEWED_PART * (SLEWED_PART - 1)))
}

/// When the enforcer kills: after the agent itself would have (X/2 before the end of the hold, and less for an application
/// that lingers), and early enough for the kernel to end what was killed.
fn due(agent: &Agent, lingers_until: Option<BootTime>, timing: &Timing) -> Option<BootTime> {
    let lead = timing.stop / LEAD_PARTS;
    let acts_until = agent.role.is_acting().then(|| agent.hold_end().before(lead));
    let lingers_until = lingers_until.map(|end| end.before(lead.min(KILLED_BEFORE_MAX / 2)));
    acts_until.into_iter().chain(lingers_until).min()
}

#[cfg(test)]
mod tests {
    use bps_protocol::{AgentId, Incarnation, Peer, Role, Tenure, Timing};
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create, timerfd_gettime};

    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_agent_is_told_of_its_enforcer_before_its_own_arguments() {
        let arguments = words(&["run", "--group=web", "--", "server", "run"]);
        let expected = words(&["/bps-agent", "run", "--enforcer=name", "--group=web", "--", "server", "run"]);
        assert_eq!(command(Path::new("/bps-agent"), (&arguments, "name")), expected);
    }

    #[test]
    fn a_seat_that_stands_by_does_not_switch_the_timer_of_the_acting_one_off() {
        let flags = TimerfdFlags::CLOEXEC;
        let mut one = Leash::new(timerfd_create(TimerfdClockId::Boottime, flags).unwrap());
        let mut two = one.share().unwrap();
        let is_set = |leash: &Leash| timerfd_gettime(&leash.timer).unwrap().it_value.tv_sec > 0;
        let (timing, now) = (Timing::default(), crate::clock::now());
        let at = Moment { now, timing: &timing };
        let end = now + Duration::from_secs(900);
        let peer = Peer { id: AgentId(2), hold_end: BootTime(0), ping: None, witness: None };
        let tenure = Tenure { api_hold_end: end, grace_end: end, peer, joining: None };
        let standby = Agent::new(AgentId(1), Incarnation(1));
        let active = Agent { role: Role::Active, tenure: Some(tenure), ..standby };
        one.follow(&active, None, &at).unwrap();
        for role in [Role::Standby, Role::Lapsed] {
            two.follow(&Agent { role, ..standby }, None, &at).unwrap();
            assert!(is_set(&one) && is_set(&two), "{role:?}");
        }
        one.follow(&standby, None, &at).unwrap();
        assert!(!is_set(&two));
    }

    #[test]
    fn the_timer_is_set_while_an_application_may_act() {
        let timing = Timing::default();
        let peer = Peer { id: AgentId(2), hold_end: BootTime(0), ping: None, witness: None };
        let end = BootTime(0) + Duration::from_secs(9);
        let tenure = Tenure { api_hold_end: end, grace_end: end, peer, joining: None };
        let standby = Agent::new(AgentId(1), Incarnation(1));
        let with = |role| Agent { role, tenure: Some(tenure), ..standby };
        let killed_at = Some(BootTime(0) + Duration::from_millis(8_950));
        assert_eq!(due(&standby, None, &timing), None);
        assert_eq!(due(&standby, Some(end), &timing), killed_at);
        for (role, expected) in [
            (Role::Active, killed_at),
            (Role::Stopping, killed_at),
            (Role::Ended, None),
            (Role::HandedOver, None),
            (Role::Lapsed, None),
        ] {
            assert_eq!(due(&with(role), None, &timing), expected, "{role:?}");
            let earlier = Some(end.before(Duration::from_secs(1)));
            let killed_at = Some(BootTime(0) + Duration::from_millis(7_950));
            assert_eq!(due(&with(role), earlier, &timing), killed_at, "{role:?}");
        }
        assert!(timing.stop / 4 < timing.stop / 2, "the agent itself comes first");
        // Most of the time that an application has which lingers is its own, however long stopping may take in a tenure.
        let patient = Timing { stop: Duration::from_secs(20), ..timing };
        assert_eq!(due(&standby, Some(end), &patient), Some(end.before(Duration::from_millis(500))));
    }

    #[test]
    fn the_timer_goes_off_in_time_on_the_slowest_clock_and_after_the_agent_itself_on_the_fastest() {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap();
        let milliseconds = Duration::from_millis;
        for [hold, watch, stop] in
            [[450, 501, 50], [1_101, 1_153, 50], [1_900, 2_000, 200], [30_000, 30_100, 20_000]]
        {
            let timing = Timing::with(milliseconds(hold), milliseconds(watch), milliseconds(stop));
            let (now, hold_end) = (BootTime(7), BootTime(7) + timing.hold);
            let due = hold_end.before(timing.stop / 4);
            let set = early(due, &Moment { now, timing: &timing }).since(now);
            let slowest = Duration::from_nanos(nanoseconds(set) * 10_000 / 8_995);
            assert!(slowest + timing.lateness / 2 <= timing.watch, "{hold}: {set:?}");

            // Before it kills by itself, the agent sets it as it begins to stop, and as often as it steps.
            let kills_itself = hold_end.before(timing.stop / 2);
            let set_last = kills_itself.before((timing.stop / 2).min(timing.ping_period));
            let set = early(due, &Moment { now: set_last, timing: &timing }).since(set_last);
            assert!(kills_itself < set_last + set * 100 / 111, "{hold}: {set:?}");
        }
        // By default an agent that is late has as long as its own hold lets it act.
        let timing = Timing::default();
        let (now, hold_end) = (BootTime(7), BootTime(7) + timing.hold);
        let rings = early(hold_end.before(timing.stop / 4), &Moment { now, timing: &timing });
        assert!(hold_end.before(timing.stop) < rings);
    }

    #[tokio::test]
    async fn the_timer_that_is_lent_rings_at_the_lender_and_can_be_put_off() {
        let name = format!("bps-agent-test-{}", std::process::id());
        let (lender, timer) = (Lender::listen(&name).unwrap(), Alarm::new().unwrap());
        let own = i32::try_from(std::process::id()).unwrap();
        let taken = tokio::task::spawn_blocking(move || Lent::take(&name));
        lender.lend((&timer, None), own).await.unwrap();
        let Lent { leash, probes } = taken.await.unwrap().unwrap();
        assert!(probes.is_none());

        leash.timer.set(Some(BootTime(0))).unwrap();
        timer.rung().await.unwrap();

        leash.timer.set(Some(BootTime(0))).unwrap();
        leash.timer.set(None).unwrap();
        assert!(
            futures::FutureExt::now_or_never(timer.rung()).is_none(),
            "it rang though it was switched off"
        );
    }

    #[tokio::test]
    async fn the_port_for_probes_is_lent_open() {
        let name = format!("bps-agent-probes-{}", std::process::id());
        let (lender, timer) = (Lender::listen(&name).unwrap(), Alarm::new().unwrap());
        let probes = health::listen((std::net::Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        // Asked before there is anybody to answer.
        let asked = std::net::TcpStream::connect(probes.local_addr().unwrap()).unwrap();
        let taken = tokio::task::spawn_blocking(move || Lent::take(&name));
        lender.lend((&timer, Some(&probes)), own).await.unwrap();
        drop(probes);
        let lent = taken.await.unwrap().unwrap().probes.expect("a port");
        lent.set_nonblocking(false).unwrap();
        let (_, from) = lent.accept().unwrap();
        assert_eq!(from, asked.local_addr().unwrap());
    }

    #[tokio::test]
    async fn a_stranger_does_not_get_the_timer() {
        let name = format!("bps-agent-stranger-{}", std::process::id());
        let (lender, timer) = (Lender::listen(&name).unwrap(), Alarm::new().unwrap());
        let taken = tokio::task::spawn_blocking(move || Lent::take(&name));
        let somebody_else = 1;
        let mut lent = std::pin::pin!(lender.lend((&timer, None), somebody_else));
        tokio::select! {
            lent = &mut lent => panic!("it was lent: {lent:?}"),
            taken = taken => assert_eq!(taken.unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
        }
    }
}
