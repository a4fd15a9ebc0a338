//! Prints what a cluster consists of and how it is, in lines that a person reads.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};

use crate::cluster::{Cluster, Error};
use crate::cuts::{Cut, Flow, Peer};
use crate::machine::process::ProcessId;
use crate::ready;
use crate::state::State;

/// How long the API server may take to answer before it counts as silent. Unit: seconds.
const ANSWER_SECONDS_MAX: u64 = 3;

/// How a cluster is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// What it consists of.
    pub state: State,
    /// Whether each node is ready, as the API server says; `None` if it does not answer.
    pub ready: Option<BTreeMap<String, bool>>,
}

impl Cluster {
    /// Asks the machine and the API server how the cluster is.
    ///
    /// # Errors
    /// `FindNone` or `KeepState`; a silent API server is no error.
    pub async fn status(&self) -> Result<Status, Error> {
        let state = self.state()?;
        let ask = async {
            let client = self.client().await.ok()?;
            let nodes = Api::<Node>::all(client).list(&ListParams::default()).await.ok()?;
            Some(
                nodes
                    .items
                    .iter()
                    .filter_map(|node| Some((node.metadata.name.clone()?, ready::is_ready(node))))
                    .collect(),
            )
        };
        let answer = tokio::time::timeout(Duration::from_secs(ANSWER_SECONDS_MAX), ask).await;
        Ok(Status { state, ready: answer.ok().flatten() })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State {
            run: _,
            progress,
            purpose: _,
            created,
            server,
            nodes,
            daemons,
            sysctls: _,
            directories: _,
            cuts,
        } = &self.state;
        let answer = if self.ready.is_some() { "answers" } else { "does not answer" };
        writeln!(formatter, "{progress:?} since {created:.0}, API server {server} {answer}")?;
        for node in nodes {
            let power = if node.is_on { "on" } else { "off" };
            let readiness = match self.ready.as_ref().and_then(|ready| ready.get(&node.name)) {
                Some(true) => "ready",
                Some(false) => "not ready",
                None => "unknown",
            };
            write!(formatter, "{:<4} {power:<4} {readiness:<10}", node.name)?;
            for cut in cuts.iter().filter(|cut| cut.node == node.name) {
                write!(formatter, " cut from {}", describe(cut))?;
            }
            writeln!(formatter)?;
        }
        for (owner, daemon) in daemons {
            let process = match daemon.process.filter(|process| process.is_running()) {
                Some(ProcessId { pid, start_time: _ }) => format!("process {pid}"),
                None => "not running".to_owned(),
            };
            writeln!(formatter, "{owner:<32} {process:<16} {}", daemon.log.display())?;
        }
        Ok(())
    }
}

fn describe(cut: &Cut) -> String {
    match &cut.from {
        Peer::Api => "the API server".to_owned(),
        Peer::Node(name) => name.clone(),
        Peer::All => "everything".to_owned(),
        Peer::Pod(Flow { from, to }) => format!("{} for {}", from.pod, to.pod),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_api_server_is_told_apart_from_an_unready_node() {
        let state = crate::state::tests::sample();
        let silent = Status { state: state.clone(), ready: None }.to_string();
        assert_eq!(
            silent,
            "Running since 1970-01-01T00:00:00Z, API server https://198.18.0.1:6443 does not answer\n\
             n1   on   unknown    cut from n2\n"
        );
        let unready = Status { state, ready: Some(BTreeMap::from([("n1".into(), false)])) }.to_string();
        assert!(unready.contains("n1   on   not ready"), "{unready}");
    }
}
