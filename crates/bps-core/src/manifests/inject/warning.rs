//! Warns where an agent in a template does less than a user may expect, and says what to write instead.
//!
//! Refuses nothing; see `check` for what cannot work at all.

use std::fmt;

use bps_api::keys;
use bps_api::quantity::thousandths;
use serde_json::Value;

use super::environment::seconds_to_end;
use super::liveness::is_given_up;
use super::{Injection, relays};

/// Argument of an agent for a port that it relays.
const RELAY_PORT: &str = "--relay-port";
/// Argument of an agent for the folder that it replicates.
const REPLICATE: &str = "--replicate";

/// CPU limit below which the agent may be throttled together with the application. Unit: thousandths of a core.
///
/// A rule of thumb, not measured: the kernel grants a container its share each 100 ms, and an application that uses up
/// a small one leaves the agent waiting for nearly all of that time, again and again.
const CPU_LIMIT_MIN: u64 = 200;

/// A point in which the agent does less than a user may expect, in a template that can run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectWarning {
    /// The container's liveness probe is one that only the kubelet could do.
    LivenessGivenUp,
    /// The container has ports that no agent relays.
    PortsNotRelayed {
        /// Protocol and number of each.
        ports: Vec<String>,
    },
    /// The agent knows no port to relay.
    NothingRelayed,
    /// The Pod's grace period is shorter than a planned handover.
    GraceTooShort {
        /// Time that the Pod has once the `preStop` sleep is over. Unit: seconds.
        seconds: u64,
    },
    /// The kernel throttles the agent with the application.
    CpuLimitLow {
        /// The limit, as the template writes it.
        limit: String,
    },
    /// The replicated folder is on the container's own file system.
    StateNotMounted {
        /// The folder.
        directory: String,
    },
    /// A rollout may delete both Pods of a pair at once.
    SeveralAtOnce {
        /// What permits that, as the workload writes it.
        by: String,
    },
}

impl fmt::Display for InjectWarning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LivenessGivenUp => formatter.write_str(
                "the agent cannot do this livenessProbe (gRPC, HTTPS, another host, or headers), so an application \
                 that hangs is not detected: give --agent-argument=--live-exec='[\"COMMAND\"]' or another --live- \
                 argument of the agent",
            ),
            Self::PortsNotRelayed { ports } => write!(
                formatter,
                "the agent relays TCP only, and the container has the ports {}; after a handover clients get no answer \
                 there from the old Pod until their nodes follow, and an application without a TCP port is shown to \
                 clients before it listens: let clients send again, or serve TCP as well",
                ports.join(", ")
            ),
            Self::NothingRelayed => formatter.write_str(
                "the container names no ports, so the agent relays none, and clients that reach a standby are refused: \
                 write the ports of the application, or give --agent-argument=--relay-port=PORT for each",
            ),
            Self::GraceTooShort { seconds } => write!(
                formatter,
                "the Pod has {seconds} s to end after its preStop sleep, and a planned handover may need {} s \
                 besides what the application takes: write a longer terminationGracePeriodSeconds",
                keys::LEAVING_SECONDS
            ),
            Self::CpuLimitLow { limit } => write!(
                formatter,
                "the CPU limit of {limit} throttles the heartbeats of the agent with the application, so that a \
                 standby takes over from an active that is only busy: write a limit of 200m or more, or none"
            ),
            Self::StateNotMounted { directory } => write!(
                formatter,
                "no volumeMount covers {directory}, so what is replicated to it is lost when the container restarts: \
                 mount a volume at {directory} or above it"
            ),
            Self::SeveralAtOnce { by } => write!(
                formatter,
                "{by} lets a rollout delete both Pods of a pair at once, so that nobody serves before the next ones are \
                 there: write a RollingUpdate with maxUnavailable: 1"
            ),
        }
    }
}

/// Returns the warnings about a container that can run the agent.
///
/// `grace` is the Pod's own grace period in seconds, if it has one.
pub(super) fn warnings(container: &Value, injection: &Injection, grace: Option<u64>) -> Vec<InjectWarning> {
    let arguments = &injection.arguments;
    let liveness = is_given_up(container, arguments).then_some(InjectWarning::LivenessGivenUp);
    let checks = [
        liveness,
        unrelayed_ports(container, arguments),
        short_grace(container, grace),
        low_cpu_limit(container),
        unmounted_state(container, arguments),
    ];
    checks.into_iter().flatten().collect()
}

/// Ports that should be relayed and are not.
fn unrelayed_ports(container: &Value, arguments: &[String]) -> Option<InjectWarning> {
    if !relays(arguments) {
        return None;
    }

    let ports = container["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words = |port: &Value| {
        let protocol = port["protocol"].as_str().filter(|protocol| *protocol != "TCP")?;
        Some(format!("{protocol} {}", port["containerPort"].as_u64()?))
    };
    let others: Vec<String> = ports.iter().filter_map(words).collect();

    if !others.is_empty() {
        Some(InjectWarning::PortsNotRelayed { ports: others })
    } else if ports.is_empty() && values(arguments, RELAY_PORT).next().is_none() {
        Some(InjectWarning::NothingRelayed)
    } else {
        None
    }
}

fn short_grace(container: &Value, grace: Option<u64>) -> Option<InjectWarning> {
    let seconds = seconds_to_end(container, grace);
    (seconds < keys::LEAVING_SECONDS).then_some(InjectWarning::GraceTooShort { seconds })
}

fn low_cpu_limit(container: &Value) -> Option<InjectWarning> {
    let limit = match &container["resources"]["limits"]["cpu"] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    thousandths(&limit).is_some_and(|cpu| cpu < CPU_LIMIT_MIN).then_some(InjectWarning::CpuLimitLow { limit })
}

fn unmounted_state(container: &Value, arguments: &[String]) -> Option<InjectWarning> {
    let directory = values(arguments, REPLICATE).last()?;
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let mut paths = mounts.filter_map(|mount| mount["mountPath"].as_str());
    // By whole names: a mount at /data covers no /database.
    let is_covered = paths.any(|path| std::path::Path::new(directory).starts_with(path));
    (!is_covered).then(|| InjectWarning::StateNotMounted { directory: directory.to_owned() })
}

/// The values of an argument that is given as `--name=value` or as two words.
fn values<'a>(arguments: &'a [String], name: &'a str) -> impl Iterator<Item = &'a str> {
    arguments.iter().enumerate().filter_map(move |(index, argument)| {
        let value = argument.strip_prefix(name)?;
        if value.is_empty() { arguments.get(index + 1).map(String::as_str) } else { value.strip_prefix('=') }
    })
}
