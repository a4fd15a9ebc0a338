//! What an agent is told when it starts: arguments for the pair it belongs to, and who it is from the environment.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

use super::identity::{Identity, parse_own_uid};
use crate::ha::AgentId;
use crate::runtime::telemetry::LogSettings;

/// The pair that an agent belongs to. Without a Lease there is none, and the application simply runs.
#[derive(Args, Clone, Debug)]
pub struct PairArguments {
    /// Run the command only while this agent is the active of the pair with this Lease. Default: run it at once.
    #[arg(long, requires_all = ["key_file", "peer_bind", "pod_uid", "pod", "pod_ip"])]
    lease: Option<String>,
    /// Namespace of the Lease and the slice.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    namespace: String,
    /// File with the keys of the pair, one in each line: the key that signs, then another one that is accepted.
    /// A key is at least 64 hexadecimal digits, as `openssl rand -hex 32` prints.
    #[arg(long, requires = "lease")]
    key_file: Option<PathBuf>,
    /// Address and UDP port to talk to the other agent, for example 0.0.0.0:20001.
    #[arg(long, requires = "lease")]
    peer_bind: Option<SocketAddr>,
    /// EndpointSlice that shows the address of the active. Default: none.
    #[arg(long, requires = "lease")]
    slice: Option<String>,
    /// Folder of an emptyDir volume: tells the first start in a Pod from a restart. Without it each start counts as a
    /// restart, which waits 2 s before it may take over.
    #[arg(long, requires = "lease")]
    state_dir: Option<PathBuf>,
    /// File that shows role and epoch, for probes. Default: none.
    #[arg(long, requires = "lease")]
    state_file: Option<PathBuf>,
    /// Uid of the own Pod: set it from the field metadata.uid.
    #[arg(long, env = "POD_UID", value_parser = parse_own_uid)]
    pod_uid: Option<AgentId>,
    /// Name of the own Pod: set it from the field metadata.name.
    #[arg(long, env = "POD_NAME")]
    pod: Option<String>,
    /// Address of the own Pod: set it from the field status.podIP.
    #[arg(long, env = "POD_IP")]
    pod_ip: Option<IpAddr>,
    #[command(flatten)]
    logs: LogSettings,
}

/// What an agent of a pair needs to know.
#[derive(Clone, Debug)]
pub struct PairSettings {
    /// Name of the Lease.
    pub lease: String,
    /// Who it is.
    pub own: Identity,
    /// File with the keys.
    pub key_file: PathBuf,
    /// Where it listens.
    pub peer_bind: SocketAddr,
    /// EndpointSlice to publish in.
    pub slice: Option<String>,
    /// Where the mark of the first start is.
    pub state_dir: Option<PathBuf>,
    /// Where role and epoch are shown.
    pub state_file: Option<PathBuf>,
    /// How logs are written.
    pub logs: LogSettings,
}

impl PairArguments {
    /// The settings of a pair, if the agent belongs to one.
    pub fn settings(self) -> Option<PairSettings> {
        let Self { lease, namespace, key_file, peer_bind, slice, state_dir, state_file, .. } = self;
        let own = Identity { id: self.pod_uid?, pod: self.pod?, namespace, ip: self.pod_ip? };
        let (lease, key_file, peer_bind) = (lease?, key_file?, peer_bind?);
        Some(PairSettings { lease, own, key_file, peer_bind, slice, state_dir, state_file, logs: self.logs })
    }
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
        Ok(program.pair.settings())
    }

    #[test]
    fn without_a_lease_there_is_no_pair() {
        assert!(parse(&WHOLE[..1]).unwrap().is_none());
        assert_eq!(parse(&WHOLE).unwrap().map(|settings| settings.lease), Some("web".to_owned()));
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
