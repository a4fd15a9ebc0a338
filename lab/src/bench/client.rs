//! A client of a set's Service, in the network of a node: a request every 5 ms.

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Error;
use super::rounds::Bench;
use crate::app::client::DEFAULT_DEADLINE;
use crate::app::outage::Outage;
use crate::app::sample::{Sample, parse_csv};
use crate::machine;
use crate::stage::Stage;

/// Port of the Service.
const PORT: u16 = 80;
/// Longest visit. Unit: seconds. The client ends by itself then.
const VISIT_SECONDS_MAX: u32 = 180;
/// Time for a request of its own connection.
const DEADLINE: Duration = DEFAULT_DEADLINE;
/// Time for a request of a connection that is kept. 250 ms: the client has one request at a time, so an outage that nobody
/// answers is measured as a multiple of it.
const DEADLINE_KEPT: Duration = Duration::from_millis(250);
/// How long the client runs before anything is broken, and after everything is in place again.
const MARGIN: Duration = Duration::from_millis(700);

/// How long emptying a connection table may take. It ends within 0.1 s.
const FORGET_WITHIN: Duration = Duration::from_secs(10);
/// How often that is tried while connections end by themselves.
const FORGET_ATTEMPTS: u32 = 8;

/// How a client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// A new connection for each request.
    Fresh,
    /// One connection, made anew only when it fails.
    Kept,
    /// Both, to a counter.
    Counting,
}

/// A client that runs.
pub struct Visit {
    pid: Pid,
    output: JoinHandle<std::io::Result<Output>>,
}

/// Starts a client of the set's Service; returns when it has run for a moment.
///
/// # Errors
/// `Request` or `Find` without a Service with an address, `Machine` if the program does not start.
pub async fn start(bench: &Bench, stage: &Stage) -> Result<Visit, Error> {
    let services: Api<Service> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let service = services.get(&stage.set).await.map_err(Error::request("read", "the set's Service"))?;
    let address = service.spec.and_then(|spec| spec.cluster_ip?.parse::<IpAddr>().ok());
    let address = address.ok_or_else(|| Error::Find { what: "the Service's address".to_owned() })?;
    visit(bench, &bench.first_node()?, (Habit::Fresh, SocketAddr::new(address, PORT))).await
}

/// Starts a client of an address in the network of a node; returns when it has run for a moment.
///
/// # Errors
/// `FindCluster` or `Machine` if the program does not start.
pub async fn visit(bench: &Bench, node: &str, (habit, target): (Habit, SocketAddr)) -> Result<Visit, Error> {
    let program = bench.app.display().to_string();
    let command = bench.cluster.command_in(node, &program);
    let mut command = command.map_err(|error| Error::FindCluster(Box::new(error)))?;
    let (word, deadline) = match habit {
        Habit::Fresh => ("client", DEADLINE),
        Habit::Kept => ("kept-client", DEADLINE_KEPT),
        Habit::Counting => ("counter-client", DEADLINE),
    };
    command.args([word, "--target", &target.to_string()]);
    command.args(["--interval-ms", "5", "--duration-s", &VISIT_SECONDS_MAX.to_string()]);
    command.args(["--deadline-ms", &deadline.as_millis().to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child: Child = command.spawn().map_err(|source| Error::Machine {
        action: "start the client",
        source: Box::new(machine::Error::Start { command: program, source }),
    })?;
    let pid = Pid::from_child(&child);
    // Its lines are read all the time: it would stop at a full pipe.
    let output = tokio::task::spawn_blocking(move || child.wait_with_output());
    sleep(MARGIN).await;
    Ok(Visit { pid, output })
}

/// Empties a node's connection table of all that clients of an address have left there.
///
/// A connection that nobody ended stays in it with the Pod that kube-proxy had chosen: for minutes while the kernel
/// repeats the end of it, and as long again after that. A later client that comes to the same source port goes to that Pod,
/// too, and would measure an outage that is long over.
///
/// # Errors
/// `FindCluster`, or `Machine` if the table cannot be changed.
pub fn forget(bench: &Bench, node: &str, target: SocketAddr) -> Result<(), Error> {
    let mut attempts = 1;
    loop {
        let command = bench.cluster.command_in(node, "conntrack");
        let mut command = command.map_err(|error| Error::FindCluster(Box::new(error)))?;
        command.args(["--delete", "--proto", "tcp", "--orig-dst", &target.ip().to_string()]);
        command.args(["--orig-port-dst", &target.port().to_string()]);
        match machine::command::run_command(command, FORGET_WITHIN) {
            // It takes an empty table for a failure.
            Err(machine::Error::Refuse { stderr, .. })
                if stderr.contains(" 0 flow entries have been deleted") =>
            {
                return Ok(());
            }
            // A connection ended by itself while the table was read; the rest is still there.
            Err(machine::Error::Refuse { stderr, .. })
                if stderr.contains("such conntrack doesn't exist") && attempts < FORGET_ATTEMPTS =>
            {
                attempts += 1;
            }
            done => {
                return done.map(drop).map_err(|source| Error::Machine {
                    action: "forget earlier connections",
                    source: Box::new(source),
                });
            }
        }
    }
}

impl Visit {
    /// Ends the client after another moment and returns what it saw.
    ///
    /// # Errors
    /// `Find` if it did not report.
    pub async fn end(self) -> Result<(Outage, Vec<Sample>), Error> {
        let samples = parse_csv(&self.report().await?).ok().filter(|samples| !samples.is_empty());
        let samples = samples.ok_or_else(unreported)?;
        Ok((Outage::from_samples(&samples), samples))
    }

    /// Ends the client after another moment and returns what it has printed.
    ///
    /// # Errors
    /// `Find` if nothing was heard of it.
    pub async fn report(self) -> Result<String, Error> {
        sleep(MARGIN).await;
        // One that has ended already has its report in the pipe.
        let _ = kill_process(self.pid, Signal::TERM);
        let output = self.output.await.expect("waiting does not panic").map_err(|_| unreported())?;
        String::from_utf8(output.stdout).map_err(|_| unreported())
    }
}

/// A client has not said what it saw.
pub fn unreported() -> Error {
    Error::Find { what: "the client's report".to_owned() }
}
