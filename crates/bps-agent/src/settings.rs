//! What an agent is told when it starts: arguments for the pair it belongs to, and who it is from the environment.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bps_api::{HandoverOrder, keys};
use bps_protocol::AgentId;
use bps_runtime::client::ApiFiles;
use bps_runtime::telemetry::LogSettings;
use clap::Args;

use super::check::CheckArguments;
use super::hook::{HookArguments, Hooks};
use super::identity::{Identity, parse_own_uid};
use super::replicate::ReplicateSettings;
use super::replicate::gate::PromoteWhen;
use super::replicate::left_out::{LeftOut, LeftOutPattern};
use super::search::Membership;
use super::tenant::PAUSE_MAX;

/// What an agent of a pair cannot do without.
const NEEDED: [&str; 5] = ["key_file", "peer_bind", "pod_uid", "pod", "pod_ip"];

/// Longest value of a label (Kubernetes). Unit: bytes.
const LABEL_VALUE_MAX_BYTES: usize = 63;

/// The pair that an agent belongs to. Without a Lease or a group there is none, and the application simply runs.
#[derive(Args, Clone, Debug)]
pub struct PairArguments {
    /// Run the command only while this agent is the active of the pair with this Lease. Default: run it at once.
    #[arg(long, group = "membership", requires_all = NEEDED)]
    lease: Option<String>,
    /// Instead of --lease: run the command only while this agent is the active of whichever pair of this group has a
    /// Lease that names the own Pod. The Lease then also names the slice.
    #[arg(long, group = "membership", requires_all = NEEDED, value_parser = parse_group)]
    group: Option<String>,
    /// Namespace of the Lease and the slice.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    namespace: String,
    /// File with the keys of the pair, one in each line: the key that signs, then another one that is accepted.
    /// A key is at least 64 hexadecimal digits, as `openssl rand -hex 32` prints. With a file metrics-token in the same
    /// folder, /metrics is served beside the probes to who sends its content as bearer token.
    #[arg(long, requires = "membership")]
    key_file: Option<PathBuf>,
    /// Folder with the files token and ca.crt, by which the API server of the own Pod is asked. Default: those of the
    /// ServiceAccount that Kubernetes mounts, or the kubeconfig in `KUBECONFIG`, in JSON.
    #[arg(long, requires = "membership")]
    api_dir: Option<PathBuf>,
    /// Address to talk to the other agent, for example 0.0.0.0:20001: UDP and TCP. 0.0.0.0 and `[::]` both stand for all
    /// addresses of the own Pod, of IPv4 or IPv6 as --pod-ip is.
    #[arg(long, requires = "membership")]
    peer_bind: Option<SocketAddr>,
    /// EndpointSlice that shows the address of the active. Default: none.
    #[arg(long, requires = "lease", conflicts_with = "group")]
    slice: Option<String>,
    /// Folder of an emptyDir volume: tells the first start in a Pod from a restart. Without it each start counts as a
    /// restart, which waits 2 s before it may take over.
    #[arg(long, requires = "membership")]
    state_dir: Option<PathBuf>,
    /// File that shows role and epoch, for probes. Default: none.
    #[arg(long, requires = "membership")]
    state_file: Option<PathBuf>,
    /// Address, as in --peer-bind, and TCP port for probes: /livez while the agent works, /readyz while it could take
    /// over, or is a spare that no pair of its group needs. Default: none.
    #[arg(long, requires = "membership")]
    health_bind: Option<SocketAddr>,
    /// TCP port of the application, at the address of --peer-bind; repeat it for more. While this agent does not act it
    /// listens there itself, and relays each connection to the same port of the Pod that acts.
    #[arg(long, requires = "membership", conflicts_with = "run_in_standby", value_parser = clap::value_parser!(u16).range(1..))]
    relay_port: Vec<u16>,
    /// State directory of the application: what is in it is replicated to the standby, which gets the role only with
    /// all that the application asked for on the socket in `HA_SYNC_SOCKET`. It should be on a volume. TCP, two ports
    /// above that of --peer-bind. Default: nothing is replicated.
    #[arg(long, requires = "membership", conflicts_with = "run_in_standby")]
    replicate: Option<PathBuf>,
    /// Which standby may act when state is replicated.
    #[arg(long, requires = "replicate", value_enum, default_value_t)]
    promote_when: PromoteWhen,
    /// Path below the directory of --replicate, with one * in its last name at most, of files that belong to one run of the
    /// application, such as run/*.lock; repeat it for more. They are not replicated, and removed before each start. So are in any
    /// case the files *.pid of the directory itself that are empty or begin with a number.
    #[arg(long, requires = "replicate", value_name = "PATTERN")]
    leave_out: Vec<LeftOutPattern>,
    /// In how many pairs of its group this Pod may be the standby at a time, 1 to 8. Each has a copy of its own: the
    /// folders seats/0, seats/1, .. in the directory of --replicate. Before each start the agent points the link
    /// `active` there to the one that the application is to use, in every Pod. With 1 the directory itself is the copy,
    /// and there is no link. Not with --lease, --run-in-standby, --on-standby or --relay-port.
    #[arg(long, requires = "replicate", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    standby_for: u8,
    /// How long this Pod may take to end once its signal has come: its grace period without what a preStop sleep takes. Unit:
    /// seconds. An application that somebody wants to end, be it with the Pod or not, has that less twice the hold and 1 s for the
    /// handover, 3 s if ports are relayed, and the rest of its hold at least. An active that is asked to end while its standby lives and lacks state acts on
    /// for a third of that at most.
    #[arg(long, env = keys::ENV_HA_END_WITHIN_SECONDS, default_value_t = keys::END_WITHIN_SECONDS)]
    end_within: u64,
    /// Longest time from one start of the application to the next while it ends by itself within 60 s, 3 times in a row and more;
    /// from 1 s on the time doubles each time. Unit: seconds.
    #[arg(long, default_value_t = PAUSE_MAX.as_secs(), value_parser = clap::value_parser!(u64).range(1..=300))]
    restart_pause_max: u64,
    /// Tell the last 3 lines that the application wrote in the Lease of the pair, the status and an event, once it ends so 3 times in a row.
    /// Who may read those may not read the log.
    #[arg(long)]
    tell_last_lines: bool,
    /// Which comes first in a handover that somebody wants: the end of the old application, or the new one that serves;
    /// then both act for a while. Default: what the Lease says, which is break-before-make unless the group says otherwise.
    #[arg(long, requires = "membership", value_enum, conflicts_with_all = ["replicate", "run_in_standby"])]
    handover: Option<HandoverOrder>,
    /// Uid of the own Pod: set it from the field metadata.uid.
    #[arg(long, env = "POD_UID", value_parser = parse_own_uid)]
    pod_uid: Option<AgentId>,
    /// Name of the own Pod: set it from the field metadata.name.
    #[arg(long, env = "POD_NAME")]
    pod: Option<String>,
    /// Address of the own Pod: set it from the field status.podIP.
    #[arg(long, env = "POD_IP")]
    pod_ip: Option<IpAddr>,
    /// Socket of the process that enforces the end of a hold; for the agent itself.
    #[arg(long, hide = true, requires = "membership")]
    enforcer: Option<String>,
    #[command(flatten)]
    hooks: HookArguments,
    #[command(flatten)]
    check: CheckArguments,
    #[command(flatten)]
    logs: LogSettings,
}

/// What an agent with several seats cannot do, and what to write instead. That --replicate and --run-in-standby do not
/// go together is said of every agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// A Lease by name is one for ever.
    #[error(
        "--standby-for cannot be used with --lease, which names one pair for ever: write --group instead"
    )]
    OneLease,
    /// The hook is told one pair and one other Pod.
    #[error(
        "--standby-for cannot be used with --on-standby, which is told of one active: read --state-file instead, or \
         leave --standby-for out"
    )]
    ToldOfStandby,
    /// Clients of which active would come there is not known.
    #[error(
        "--standby-for cannot be used with --relay-port, because a standby of several actives cannot play the part of \
         one: lead clients to the active by a Service, or leave --standby-for out"
    )]
    Relays,
    /// An empty copy would be sent to the standby that keeps the whole one while it acts for another active.
    #[error(
        "--standby-for cannot be used with --promote-when=always, by which an empty copy could replace the whole one of a \
         standby that acts for another active: leave one of them out"
    )]
    ActsWithout,
}

/// What an agent of a pair needs to know.
#[derive(Clone, Debug)]
pub struct PairSettings {
    /// Which Lease it belongs to.
    pub membership: Membership,
    /// Who it is.
    pub own: Identity,
    /// File with the keys.
    pub key_file: PathBuf,
    /// By which files the API server is asked, if not by those that Kubernetes mounts.
    pub api_files: Option<ApiFiles>,
    /// Where it listens.
    pub peer_bind: SocketAddr,
    /// EndpointSlice to publish in, if the Lease is given by name.
    pub slice: Option<String>,
    /// Where the mark of the first start is.
    pub state_dir: Option<PathBuf>,
    /// Where role and epoch are shown.
    pub state_file: Option<PathBuf>,
    /// Where probes are answered.
    pub health_bind: Option<SocketAddr>,
    /// Ports to relay from while it does not act.
    pub relay_ports: BTreeSet<u16>,
    /// What is replicated, if anything.
    pub replicate: Option<ReplicateSettings>,
    /// In how many pairs the Pod may be the standby at a time: at least 1, and with more what is replicated is said.
    pub standby_for: u8,
    /// How long the Pod may take to end.
    pub end_within: Duration,
    /// Whether the application may outlast a planned handover; `None`: as the Lease says.
    pub handover: Option<HandoverOrder>,
    /// What is run when the role changes.
    pub hooks: Hooks,
    /// Longest pause between two starts of an application that ends by itself again and again.
    pub restart_pause_max: Duration,
    /// Whether the last lines of such an application may be told.
    pub tell_last_lines: bool,
    /// Socket of the enforcer; none in the process that is to become it.
    pub enforcer: Option<String>,
    /// How logs are written.
    pub logs: LogSettings,
}

impl PairArguments {
    /// The settings of a pair, if the agent belongs to one.
    ///
    /// # Errors
    /// Something does not go with several seats.
    pub fn settings(self) -> Result<Option<PairSettings>, Contradiction> {
        let settings = self.of_pair();
        settings.as_ref().map_or(Ok(()), PairSettings::check_seats).map(|()| settings)
    }

    fn of_pair(self) -> Option<PairSettings> {
        let Self { lease, group, namespace, key_file, peer_bind, slice, state_dir, handover, .. } = self;
        let own = Identity { id: self.pod_uid?, pod: self.pod?, namespace, ip: self.pod_ip? };
        let listening = |address| in_family_of(own.ip, address);
        let membership = lease.map(Membership::Lease).or(group.map(Membership::Group))?;
        let (key_file, peer_bind) = (key_file?, listening(peer_bind?));
        let hooks = self.hooks.hooks(self.state_file.clone());
        let hooks = Hooks { check: self.check.check(own.ip), ..hooks };
        let (state_file, health_bind, logs) = (self.state_file, self.health_bind.map(listening), self.logs);
        let enforcer = self.enforcer;
        let api_files = self.api_dir.map(|folder| ApiFiles {
            token: folder.join(keys::AGENT_API_TOKEN_FILE),
            certificates: folder.join(keys::AGENT_API_CERTIFICATES_FILE),
        });
        let relay_ports = self.relay_port.into_iter().collect();
        let promote_when = self.promote_when;
        let restart_pause_max = Duration::from_secs(self.restart_pause_max);
        let left_out = LeftOut::naming(self.leave_out);
        let replicate =
            self.replicate.map(|directory| ReplicateSettings { directory, promote_when, left_out });
        Some(PairSettings {
            membership,
            own,
            key_file,
            api_files,
            peer_bind,
            slice,
            state_dir,
            state_file,
            health_bind,
            relay_ports,
            replicate,
            standby_for: self.standby_for,
            end_within: Duration::from_secs(self.end_within),
            handover,
            hooks,
            restart_pause_max,
            tell_last_lines: self.tell_last_lines,
            enforcer,
            logs,
        })
    }
}

impl PairSettings {
    fn check_seats(&self) -> Result<(), Contradiction> {
        if self.standby_for == 1 {
            return Ok(());
        }
        if matches!(self.membership, Membership::Lease(_)) {
            return Err(Contradiction::OneLease);
        }
        if self.hooks.on_standby.is_some() {
            return Err(Contradiction::ToldOfStandby);
        }
        if !self.relay_ports.is_empty() {
            return Err(Contradiction::Relays);
        }
        if self.replicate.as_ref().is_some_and(|replicate| replicate.promote_when == PromoteWhen::Always) {
            return Err(Contradiction::ActsWithout);
        }
        Ok(())
    }
}

/// Where to listen: 0.0.0.0 and `[::]` stand for all addresses of the family that the Pod's own is of.
///
/// Manifests are written before there is a Pod, and the kubelet and other agents come to its own address. A socket at 0.0.0.0
/// does not hear them if that is one of IPv6; one at `[::]` cannot send to a plain IPv4 address, and there is none where
/// IPv6 is off.
fn in_family_of(pod: IpAddr, address: SocketAddr) -> SocketAddr {
    let all = match pod {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    if address.ip().is_unspecified() { SocketAddr::new(all, address.port()) } else { address }
}

/// The value of a label; anything else would be another selector than the one that was meant.
fn parse_group(text: &str) -> Result<String, String> {
    let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let ends = [text.bytes().next(), text.bytes().last()];
    let is_value = text.len() <= LABEL_VALUE_MAX_BYTES
        && text.as_bytes().iter().all(is_inside)
        && ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()));
    is_value.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "expected the value of the label {}: at most {LABEL_VALUE_MAX_BYTES} letters, digits, -, _ and ., with a \
             letter or digit at both ends",
            keys::LABEL_GROUP
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        pair: PairArguments,
    }

    const WHOLE: [&str; 7] = [
        "agent",
        "--lease=web",
        "--key-file=/keys",
        "--peer-bind=0.0.0.0:20001",
        "--pod-uid=0a1b2c3d-0000-4000-8000-0123456789ab",
        "--pod=web-0",
        "--pod-ip=10.0.0.1",
    ];

    fn parse(arguments: &[&str]) -> Result<Option<PairSettings>, String> {
        let program = Program::try_parse_from(arguments).map_err(|error| error.to_string())?;
        program.pair.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_lease_there_is_no_pair() {
        assert!(parse(&WHOLE[..1]).unwrap().is_none());
        let membership = |first| {
            let arguments = [&[WHOLE[0], first], &WHOLE[2..]].concat();
            parse(&arguments).map(|settings| settings.map(|settings| settings.membership))
        };
        assert_eq!(membership("--lease=web"), Ok(Some(Membership::Lease("web".to_owned()))));
        assert_eq!(membership("--group=web"), Ok(Some(Membership::Group("web".to_owned()))));
        for wrong in ["--group=", "--group=web,other", "--group=web-"] {
            let error = membership(wrong).expect_err(wrong);
            assert!(error.contains("expected the value of the label backup.example.com/group"), "{error}");
        }
    }

    #[test]
    fn a_lease_and_a_group_or_a_group_and_a_slice_contradict_each_other() {
        for (first, second) in [("--group=web", "--lease=web"), ("--group=web", "--slice=web")] {
            let arguments = [&[WHOLE[0], first, second], &WHOLE[2..]].concat();
            let error = parse(&arguments).map(drop).expect_err(second);
            assert!(error.contains("cannot be used with"), "{error}");
        }
    }

    #[test]
    fn only_ports_that_the_application_leaves_to_a_standby_are_relayed() {
        let with = |more: &[&str]| {
            parse(&[&WHOLE, more].concat()).map(|settings| settings.expect("a pair").relay_ports)
        };
        assert_eq!(with(&[]), Ok(BTreeSet::new()));
        assert_eq!(with(&["--relay-port=80", "--relay-port=443"]), Ok(BTreeSet::from([80, 443])));
        let error = with(&["--relay-port=80", "--on-active=/promote", "--run-in-standby"]).expect_err("both");
        assert!(
            error.contains("'--relay-port <RELAY_PORT>' cannot be used with '--run-in-standby'"),
            "{error}"
        );
        assert!(with(&["--relay-port=0"]).is_err());
    }

    #[test]
    fn an_address_that_stands_for_all_is_of_the_family_of_the_pod() {
        let listening = |pod: &str, address: &str| {
            let (peer, pod) = (format!("--peer-bind={address}:20001"), format!("--pod-ip={pod}"));
            let health = format!("--health-bind={address}:20002");
            let arguments = [&WHOLE[..3], &[peer.as_str(), WHOLE[4], WHOLE[5], &pod, &health]].concat();
            let settings = parse(&arguments).unwrap().expect("a pair");
            (settings.peer_bind.to_string(), settings.health_bind.map(|address| address.to_string()))
        };
        let at = |address: &str| (format!("{address}:20001"), Some(format!("{address}:20002")));
        for all in ["0.0.0.0", "[::]"] {
            assert_eq!(listening("10.0.0.1", all), at("0.0.0.0"));
            assert_eq!(listening("fd00::1", all), at("[::]"));
        }
        assert_eq!(listening("fd00::1", "[fd00::1]"), at("[fd00::1]"));
        assert_eq!(listening("10.0.0.1", "127.0.0.1"), at("127.0.0.1"));
    }

    #[test]
    fn state_is_replicated_only_for_an_application_that_runs_in_one_role() {
        let with = |more: &[&str]| {
            parse(&[&WHOLE, more].concat()).map(|settings| settings.expect("a pair").replicate)
        };
        let leaving_out = |promote_when, patterns: &[&str]| {
            let patterns = patterns.iter().map(|text| text.parse().expect("a pattern")).collect();
            let left_out = LeftOut::naming(patterns);
            Ok(Some(ReplicateSettings { directory: "/state".into(), promote_when, left_out }))
        };
        let expected = |promote_when| leaving_out(promote_when, &[]);
        assert_eq!(with(&[]), Ok(None));
        assert_eq!(with(&["--replicate=/state"]), expected(PromoteWhen::InSync));
        assert_eq!(with(&["--replicate=/state", "--promote-when=always"]), expected(PromoteWhen::Always));
        assert!(with(&["--replicate=/state", "--on-active=/promote", "--run-in-standby"]).is_err());
        assert!(with(&["--promote-when=always"]).is_err());
        let patterns = ["--replicate=/state", "--leave-out=node.lock", "--leave-out=run/*.lock"];
        assert_eq!(with(&patterns), leaving_out(PromoteWhen::InSync, &["node.lock", "run/*.lock"]));
        assert!(with(&["--replicate=/state", "--leave-out=/run/*.lock"]).is_err());
    }

    #[test]
    fn a_pod_stands_by_for_several_actives_only_with_state_in_a_group_and_without_a_part_in_standby() {
        let with = |first: &str, more: &[&str]| {
            parse(&[&[WHOLE[0], first], &WHOLE[2..], more].concat())
                .map(|settings| settings.expect("a pair").standby_for)
        };
        let (group, lease, state, two) = ("--group=web", WHOLE[1], "--replicate=/state", "--standby-for=2");
        assert_eq!((with(group, &[]), with(lease, &[state])), (Ok(1), Ok(1)));
        assert_eq!(with(group, &[state, two]), Ok(2));
        assert_eq!(with(lease, &[state, "--standby-for=1"]), Ok(1), "as without it");
        for wrong in ["--standby-for=0", "--standby-for=9"] {
            assert!(with(group, &[state, wrong]).is_err(), "{wrong}");
        }
        let refused = |first, more: &[&str]| with(first, &[&[two], more].concat()).expect_err("refused");
        assert!(refused(group, &[]).contains("--replicate"));
        for (first, more, instead) in [
            (lease, &[state][..], "write --group instead"),
            (group, &[state, "--on-standby=/follow"][..], "read --state-file instead"),
            (group, &[state, "--relay-port=80"][..], "by a Service"),
            (group, &[state, "--promote-when=always"][..], "leave one of them out"),
        ] {
            assert!(refused(first, more).contains(instead), "{}", refused(first, more));
        }
        let runs = [state, "--on-active=/promote", "--run-in-standby"];
        assert!(refused(group, &runs).contains("cannot be used with"));
    }

    #[test]
    fn a_pod_has_as_long_to_end_as_kubernetes_gives_it_unless_it_is_told_otherwise() {
        let with = |more: &[&str]| {
            parse(&[&WHOLE, more].concat()).map(|settings| settings.expect("a pair").end_within.as_secs())
        };
        assert_eq!(with(&[]), Ok(30));
        assert_eq!(with(&["--end-within=3"]), Ok(3));
    }

    #[test]
    fn an_application_outlasts_a_handover_only_if_it_keeps_no_state_and_runs_in_one_role() {
        let with = |more: &[&str]| {
            parse(&[&WHOLE, more].concat()).map(|settings| settings.expect("a pair").handover)
        };
        assert_eq!(with(&[]), Ok(None));
        let overlap = "--handover=make-before-break";
        assert_eq!(with(&[overlap]), Ok(Some(HandoverOrder::MakeBeforeBreak)));
        assert_eq!(with(&["--handover=break-before-make"]), Ok(Some(HandoverOrder::BreakBeforeMake)));
        for other in [&["--replicate=/state"][..], &["--on-active=/promote", "--run-in-standby"]] {
            let error = with(&[&[overlap], other].concat()).expect_err("both");
            assert!(error.contains("'--handover <HANDOVER>' cannot be used with"), "{error}");
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (index, argument) in WHOLE.iter().enumerate().skip(1) {
            let name = argument.split('=').next().unwrap();
            let mut without = WHOLE.to_vec();
            without.remove(index);
            let is_needed = ["--lease", "--key-file", "--peer-bind"].contains(&name);
            let error = parse(&without).map(drop);
            assert!(!is_needed || error.expect_err(name).contains(name), "{name}");
        }
        let mut wrong = WHOLE.to_vec();
        wrong[4] = "--pod-uid=web-0";
        let error = parse(&wrong).map(drop).expect_err("it is no uid");
        assert!(error.contains("expected 32 hexadecimal digits"), "{error}");
        assert!(error.contains("set POD_UID from the field metadata.uid"), "{error}");
    }
}
