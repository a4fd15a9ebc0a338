//! Two agents, their Lease and their journal.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{PipeReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bps_api::keys;
use bps_protocol::{AgentId, Hold};
use bps_wire::uid::format_uid;
use kube::Client;
use kube::config::Kubeconfig;
use lab::control_plane::ControlPlane;
use lab::machine::process::ProcessId;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::{OnceCell, SemaphorePermit};

use super::journal::{self, Start, now};
use super::programs::{full_pipe, programs, start};
use crate::turns::{self, Company};

/// Longest wait for something that takes milliseconds or some T; only a hang lasts as long.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Time for some pings.
pub(super) const HEARD_WITHIN: Duration = Duration::from_millis(500);
/// Lines of each agent's log that a failed test prints.
const SHOWN_LINES: usize = 30;
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);
pub(super) const NAMESPACE: &str = "default";

/// The application. Its children do not hold the lock: they are not what must not run twice.
const APPLICATION: &str = r#"
say() { echo "$1 $HA_EPOCH $AGENT $$ $(date +%s%N) $HA_PEER" >> "$JOURNAL"; }
exec 9>> "$JOURNAL.lock"
flock -n 9 || say two
say start
case "$LIFELINE" in
held) exec sleep 1000 ;;
closed) exec bash -c 'eval "exec $HA_LIFELINE_FD>&-"; exec sleep 1000' ;;
esac
if [ -n "$STUBBORN" ]; then trap '' TERM; else trap 'say stop; exit 0' TERM; fi
while :; do sleep 5 9>&- & wait $!; done
"#;

/// Own, because some tests stop its API server.
static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// How many stages there were. Tells them apart: the addresses and the Pods of each are its own.
static STAGES: AtomicU8 = AtomicU8::new(0);

pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) directory: PathBuf,
    pub(super) client: Client,
    /// Where the agents listen. Those of no two stages meet, whatever ports they have.
    addresses: [Ipv4Addr; 2],
    pub(super) ports: [u16; 2],
    health_ports: [u16; 2],
    pub(super) uids: [u128; 2],
    agents: [Option<Child>; 2],
    /// The application, as a script.
    pub(super) application: &'static str,
    /// More arguments of the agents.
    pub(super) arguments: Vec<String>,
    /// Longest pause between two starts of an application that ends again and again. Unit: seconds.
    pub(super) restart_pause_max: u32,
    /// What applications do with their lifeline: "held" or "closed" by the only process, or "": by children, too.
    pub(super) lifeline: &'static str,
    /// Whether agents are told their group instead of their Lease.
    pub(super) is_grouped: bool,
    /// Whether applications ignore SIGTERM.
    pub(super) is_stubborn: bool,
    /// When a standby may act, if the state directory of each agent is replicated.
    pub(super) promote_when: Option<&'static str>,
    /// Pipes that nobody reads, into which agents write their logs that start after this; else they write a file.
    pub(super) unread: Option<Vec<PipeReader>>,
    is_api_server_stopped: bool,
    company: Company,
    _turn: SemaphorePermit<'static>,
}

impl Stage {
    /// A Lease and a slice that nobody has written yet, and nobody who could.
    pub(super) async fn set(name: &'static str) -> Self {
        Self::set_in(Company::Others, name).await
    }

    /// The same, and no other stage is there meanwhile.
    pub(super) async fn set_alone(name: &'static str) -> Self {
        Self::set_in(Company::Nobody, name).await
    }

    async fn set_in(company: Company, name: &'static str) -> Self {
        let turn = turns::take(company).await;
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let control_plane = CONTROL_PLANE.get_or_init(start).await;
        let client = control_plane.client().await.expect("a client");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pair-tests").join(name);
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join("keys"), format!("{}\n", "5a".repeat(32))).expect("a key file");
        let addresses = [2, 3].map(|last| Ipv4Addr::new(127, 0, number, last));
        let ports = addresses.map(|address| {
            let socket = UdpSocket::bind((address, 0)).expect("a free port");
            socket.local_addr().expect("an address").port()
        });
        let health_ports = addresses.map(|address| {
            let listener = TcpListener::bind((address, 0)).expect("a free port");
            listener.local_addr().expect("an address").port()
        });
        let first_uid = 0xa9e0_0000_0000_4000_8000_0000_0000_0000 + 16 * u128::from(number);
        let uids = [0, 1].map(|agent| first_uid + agent);
        let kubeconfig = Kubeconfig::read_from(control_plane.kubeconfig_path()).expect("a kubeconfig");
        let kubeconfig = serde_json::to_vec(&kubeconfig).expect("JSON");
        fs::write(directory.join("kubeconfig"), kubeconfig).expect("a file");
        let agents = [None, None];
        let (is_grouped, is_stubborn, is_api_server_stopped) = (false, false, false);
        let stage = Self {
            name,
            directory,
            client,
            addresses,
            ports,
            health_ports,
            uids,
            agents,
            application: APPLICATION,
            arguments: Vec::new(),
            // Most kill it more often than anybody would.
            restart_pause_max: 1,
            lifeline: "",
            is_grouped,
            is_stubborn,
            promote_when: None,
            unread: None,
            is_api_server_stopped,
            company,
            _turn: turn,
        };
        stage.create_slice().await;
        stage.create_lease(0).await;
        stage
    }

    pub(super) fn start_agents(&mut self) {
        self.start_agent(0);
        self.start_agent(1);
    }

    /// Starts an agent as the kubelet would: the same Pod, the same emptyDir.
    pub(super) fn start_agent(&mut self, agent: usize) {
        let directory = self.directory.join(pod(agent));
        let state = directory.join("state");
        fs::create_dir_all(&state).expect("a directory");
        let log = File::options().create(true).append(true).open(directory.join("log")).expect("a log");
        let unread = self.unread.as_mut().map(full_pipe);
        let log = unread.map_or_else(|| Stdio::from(log), Stdio::from);
        let named = ["--lease", self.name, "--slice", self.name];
        let grouped = ["--group", self.name];
        let child = Command::new(&programs().agent)
            .arg("run")
            .args(if self.is_grouped { &grouped[..] } else { &named })
            .args(["--namespace", NAMESPACE])
            .args(["--peer-bind", &format!("{}:{}", self.address(agent), self.ports[agent])])
            .args(["--health-bind", &format!("{}:{}", self.address(agent), self.health_ports[agent])])
            .arg("--key-file")
            .arg(self.directory.join("keys"))
            .arg("--state-dir")
            .arg(&directory)
            .arg("--state-file")
            .arg(directory.join("state.json"))
            .args(["--restart-pause-max", &self.restart_pause_max.to_string()])
            .args(self.promote_when.map(|_| format!("--replicate={}", state.display())))
            .args(self.promote_when.map(|when| format!("--promote-when={when}")))
            .args(&self.arguments)
            .args(["--", "sh", "-c", self.application])
            .env("KUBECONFIG", self.directory.join("kubeconfig"))
            .env("POD_UID", format_uid(self.uids[agent]))
            .env("POD_NAME", pod(agent))
            .env("POD_IP", ip(agent))
            .env("STUBBORN", if self.is_stubborn { "yes" } else { "" })
            // Some seconds for an application that is asked to end, and not half a minute for one that does not.
            .env(keys::ENV_HA_END_WITHIN_SECONDS, "8")
            .env("LIFELINE", self.lifeline)
            .env("AGENT", agent.to_string())
            .env("ADDRESS", self.address(agent).to_string())
            .env("STATE", &state)
            .env("PROGRAM", &programs().agent)
            .env("LAB_APP", &programs().app)
            .env("JOURNAL", self.directory.join("journal"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the agent starts");
        self.agents[agent] = Some(child);
    }

    pub(super) fn log(&self, agent: usize) -> String {
        fs::read_to_string(self.directory.join(pod(agent)).join("log")).expect("a log")
    }

    /// Where the agent listens.
    pub(super) fn address(&self, agent: usize) -> Ipv4Addr {
        self.addresses[agent]
    }

    pub(super) fn id(&self, agent: usize) -> AgentId {
        AgentId(self.uids[agent])
    }

    /// Every line of the journal that begins with this word.
    pub(super) fn lines(&self, word: &str) -> Vec<Start> {
        journal::lines(&self.directory.join("journal"), word)
    }

    pub(super) fn starts(&self) -> Vec<Start> {
        self.lines("start")
    }

    /// When the application of a tenure ended because it was asked to.
    pub(super) fn stop_of(&self, start: Start) -> Option<Duration> {
        self.lines("stop").into_iter().find(|stop| stop.epoch == start.epoch).map(|stop| stop.at)
    }

    /// The start that follows another one.
    pub(super) async fn start_after(&self, before: Start) -> Start {
        self.until("the next start", async || {
            let starts = self.starts();
            let index = starts.iter().position(|start| *start == before)?;
            starts.get(index + 1).copied()
        })
        .await
    }

    /// The active, once it lives in Peer mode with the last epoch that was acted with: both agents are well then.
    pub(super) async fn settled(&self) -> Start {
        let settled = self.until("a settled pair", async || {
            let record = self.lease().await.lease;
            let last = self.starts().last().copied()?;
            let is_settled = record.hold == Hold::Peer && u64::from(record.epoch) == last.epoch;
            (is_settled && record.holder == Some(self.id(last.agent))).then_some(last)
        });
        let settled = settled.await;
        // Nothing outside shows that an active has heard its peer's present incarnation; two faults in one ping period
        // are another test.
        tokio::time::sleep(HEARD_WITHIN).await;
        settled
    }

    /// The role in an agent's state file.
    pub(super) fn role(&self, agent: usize) -> String {
        let text = fs::read_to_string(self.directory.join(pod(agent)).join("state.json")).unwrap_or_default();
        let state: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        state["role"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) async fn await_role(&self, agent: usize, role: &str) {
        self.until(role, async || (self.role(agent) == role).then_some(())).await;
    }

    /// Whether an agent tells the kubelet that it is ready.
    pub(super) fn is_ready(&self, agent: usize) -> bool {
        let probe = || {
            let mut stream = TcpStream::connect((self.address(agent), self.health_ports[agent]))?;
            stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        };
        let answer = probe().expect("an answer");
        assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.0 503"), "{answer}");
        answer.starts_with("HTTP/1.0 200")
    }

    /// Kills an agent, and waits until all of it has ended with its first process; returns when that was.
    ///
    /// A kubelet starts a container again only after that, too: what is left would still have the ports.
    pub(super) fn kill_agent(&mut self, agent: usize) -> Duration {
        let application = self.starts().into_iter().rfind(|start| start.agent == agent);
        let application = application.and_then(|start| ProcessId::of(start.pid));
        let process = self.process(agent);
        let killed = now();
        let mut child = self.agents[agent].take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("it was started here");
        let began = Instant::now();
        let gone = |left: ProcessId| !left.is_running();
        while !(gone(process) && application.is_none_or(gone)) {
            assert!(began.elapsed() < PATIENCE, "the application or its agent outlived the enforcer");
            std::thread::sleep(LOOK_EVERY);
        }
        killed
    }

    /// Asks an agent to end; returns the code that it ends with.
    pub(super) async fn terminate_agent(&mut self, agent: usize) -> Option<i32> {
        self.ask_agent_to_end(agent);
        self.ended_agent(agent).await
    }

    /// The same without a look at the end.
    pub(super) fn ask_agent_to_end(&self, agent: usize) {
        let child = self.agents[agent].as_ref().expect("it runs");
        kill_process(Pid::from_child(child), Signal::TERM).expect("it runs");
    }

    /// The agent proper, not the enforcer above it.
    fn process(&self, agent: usize) -> ProcessId {
        let child = self.agents[agent].as_ref().expect("it runs");
        let enforcer = ProcessId::of(Pid::from_child(child).as_raw_pid()).expect("it runs");
        let agents = enforcer.children();
        assert_eq!(agents.len(), 1, "{agents:?}");
        *agents.first().expect("there is one")
    }

    pub(super) fn signal_agent(&self, agent: usize, signal: Signal) {
        assert!(self.process(agent).signal(signal).expect("it may be signalled"));
    }

    /// The code that an agent ended with by itself.
    pub(super) async fn ended_agent(&mut self, agent: usize) -> Option<i32> {
        let mut child = self.agents[agent].take().expect("it runs");
        let ended = tokio::task::spawn_blocking(move || child.wait());
        let status = tokio::time::timeout(PATIENCE, ended).await.expect("it ends").expect("no panic");
        status.expect("a status").code()
    }

    /// Lets agents that start after this relay from a port; returns it. Nothing listens there at either address yet.
    pub(super) fn relay(&mut self) -> u16 {
        let free = TcpListener::bind((self.address(0), 0)).expect("a free port");
        let port = free.local_addr().expect("an address").port();
        drop((TcpListener::bind((self.address(1), port)).expect("free there, too"), free));
        self.arguments = vec![format!("--relay-port={port}")];
        port
    }

    /// Sends forged datagrams to both agents, as fast as one thread can, until the returned value is dropped.
    pub(super) fn flood(&self) -> Flood {
        let targets = [0, 1].map(|agent| (self.address(agent), self.ports[agent]));
        let own = self.address(0);
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let sender = std::thread::spawn(move || {
            let socket = UdpSocket::bind((own, 0)).expect("a free port");
            let mut forged = [0x5a; 120];
            forged[..8].copy_from_slice(b"BPSP\x01\x04\0\0");
            while !ends.load(Ordering::Relaxed) {
                for target in targets {
                    // A full buffer is what a flood leads to.
                    drop(socket.send_to(&forged, target));
                }
            }
        });
        Flood { is_over, sender: Some(sender) }
    }

    /// Resident memory of an agent. Unit: pages.
    pub(super) fn pages(&self, agent: usize) -> u64 {
        let pid = self.process(agent).pid;
        let memory = fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
        memory.split(' ').nth(1).expect("the resident size").parse().expect("a number")
    }

    /// Waits until the application of a tenure has ended; returns when that was seen.
    pub(super) async fn ended(&self, start: Start) -> Duration {
        self.until("the end of the application", async || ProcessId::of(start.pid).is_none().then_some(()))
            .await;
        now()
    }

    /// All stages have this API server, so only one that is alone may do so.
    pub(super) fn signal_api_server(&mut self, signal: Signal) {
        assert_eq!(self.company, Company::Nobody);
        let control_plane = CONTROL_PLANE.get().expect("it was started");
        control_plane.signal_api_server(signal).expect("it runs");
        self.is_api_server_stopped = signal == Signal::STOP;
    }

    /// No application ever acted beside another one, and no two agents acted with the same epoch; one agent did so again only in a
    /// loop, in which it starts the application again itself.
    pub(super) fn end(self) {
        assert_eq!(self.lines("two"), []);
        let mut acted: Vec<(u64, usize)> =
            self.starts().into_iter().map(|start| (start.epoch, start.agent)).collect();
        assert!(!acted.is_empty());
        if self.restart_pause_max > 1 {
            acted.dedup();
        }
        let epochs: Vec<u64> = acted.iter().map(|(epoch, _)| *epoch).collect();
        assert!(epochs.is_sorted(), "{acted:?}");
        assert_eq!(epochs.iter().collect::<BTreeSet<_>>().len(), epochs.len(), "{acted:?}");
    }

    pub(super) async fn until<T>(&self, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
        let looks = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, looks).await;
        found.unwrap_or_else(|_| {
            panic!("never: {what}; logs are in {}\n{}", self.directory.display(), self.last_words())
        })
    }

    /// The end of what the agents logged, for whoever sees only what a test printed.
    fn last_words(&self) -> String {
        let lines_of = |agent| {
            let log = fs::read_to_string(self.directory.join(pod(agent)).join("log")).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let last = lines.len().saturating_sub(SHOWN_LINES);
            format!("{} said last:\n{}\n", pod(agent), lines[last..].join("\n"))
        };
        [0, 1].map(lines_of).concat()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.is_api_server_stopped {
            self.signal_api_server(Signal::CONT);
        }
        for mut child in self.agents.iter_mut().filter_map(Option::take) {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

pub(super) struct Flood {
    is_over: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.sender.take().map(JoinHandle::join));
    }
}

pub(super) fn pod(agent: usize) -> String {
    format!("web-{agent}")
}

/// Only shown in the slice, which takes no address of the loopback interface.
pub(super) fn ip(agent: usize) -> String {
    format!("10.99.0.{}", 2 + agent)
}
