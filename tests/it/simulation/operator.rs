//! The real operator behind the simulated API server: its clock is the simulated one, its tickets go to simulated gates.
//!
//! Leader election, the Secret with the keys, watches, caches, queue and events are those of the program.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use backuppodset::apply::TicketSender;
use backuppodset::controller::{Settings, StormThreshold, Surroundings, start};
use bps_api::keys;
use bps_core::rbac;
use bps_runtime::clock::Clock;
use bps_runtime::metrics::Metrics;
use bps_runtime::shutdown::{Shutdown, Signals};
use bps_runtime::tasks::Tasks;
use bps_wakeup::client;
use bps_wakeup::protocol::{Answer, Identity, Refusal, SignedTicket};
use bps_wakeup::signing::PublicKey;
use bps_wakeup::uid::Uid;
use futures::FutureExt as _;
use serde_json::Value;

use crate::simulation::{
    admission::Rule,
    kinds::PODS,
    physical::GateFault,
    run::{Operator, Start},
    world::{Object, World},
};

/// Namespace of the operator.
pub const NAMESPACE: &str = keys::OPERATOR_NAMESPACE;

/// How long a replica that ended stays away.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// How long a ticket's sender waits for an answer, as over TCP.
const TICKET_DEADLINE: Duration = Duration::from_secs(1);

/// The settings of one replica.
pub fn settings(namespace: &str, pod: &str) -> Settings {
    Settings {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        watched_namespaces: Vec::new(),
        wakeup_image: "registry.local/bps-wakeup:dev".to_owned(),
        agent_image: Some("registry.local/bps-agent:dev".to_owned()),
        storm_threshold: StormThreshold::default(),
        health_bind: None,
        metrics_bind: None,
    }
}

/// The operator as a task that ends when one of its own tasks does.
pub fn task(begin: Start, settings: Settings, metrics: Metrics) -> Operator {
    Operator::Task(Box::pin(run(begin, settings, metrics)))
}

/// One of several operators in one incarnation.
pub struct OperatorReplica {
    pub begin: Start,
    pub settings: Settings,
}

/// Several replicas in one incarnation: they crash together, and each that ends alone is started again at once.
pub fn replicas(all: Vec<OperatorReplica>) -> Operator {
    let for_ever = all.into_iter().map(|OperatorReplica { begin, settings }| async move {
        loop {
            run(begin.clone(), settings.clone(), Metrics::new("simulated")).await;
            tokio::time::sleep(RESTART_DELAY).await;
        }
    });
    Operator::Task(Box::pin(futures::future::join_all(for_ever.collect::<Vec<_>>()).map(drop)))
}

async fn run(begin: Start, settings: Settings, metrics: Metrics) {
    let hub = begin.hub.clone();
    let clock = Clock::new(move || hub.with(|state| state.world.now));
    let surroundings =
        Surroundings { client: begin.client.clone(), clock, send_ticket: ticket_sender(begin) };
    let shutdown = Shutdown::new();
    let mut tasks = Tasks::new();
    // A process that cannot start or loses a task exits, and somebody starts another.
    if start(&mut tasks, &shutdown, (surroundings, settings, metrics)).await.is_ok() {
        drop(tasks.run(&shutdown, Signals::none()).await);
    }
}

/// The rules of the shipped Role and `ClusterRole`, for the simulated authoriser.
pub fn rules() -> Vec<Rule> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let rule = |rule: &rbac::Rule| Rule {
        group: rule.group.to_owned(),
        resources: texts(rule.resources),
        verbs: texts(rule.verbs),
        namespace: if rule.scope == rbac::Scope::Operator { NAMESPACE.to_owned() } else { String::new() },
        names: texts(rule.names),
    };
    rbac::RULES.iter().map(rule).collect()
}

/// Tickets to the simulated gates, each a numbered write.
fn ticket_sender(start: Start) -> TicketSender {
    Arc::new(move |address, ticket| send(start.clone(), address, ticket).boxed())
}

async fn send(start: Start, address: SocketAddr, ticket: SignedTicket) -> Result<Answer, client::Error> {
    let host = address.ip().to_string();
    let (gate, now) = start.hub.with(|state| (gate(&state.world, &host), state.world.now));
    let sent = async {
        if let Some(Gate { fault: Some(GateFault::Silent), .. }) = &gate {
            std::future::pending::<()>().await;
        }
        start.hub.wake(start.incarnation, &host).await
    };
    // What a real gate says of the ticket comes first: a wrong one opens nothing.
    if let Some(gate) = &gate {
        match gate.judge(&ticket, now.as_second()) {
            Ok(()) if gate.fault == Some(GateFault::Refuses) => return Ok(Answer::Refused(Refusal::Expired)),
            Ok(()) => {}
            Err(refusal) => return Ok(Answer::Refused(refusal)),
        }
    }
    match tokio::time::timeout(TICKET_DEADLINE, sent).await {
        Ok(Ok(())) => Ok(Answer::Accepted),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            Err(client::Error::ConnectionRefused { address })
        }
        Ok(Err(source)) => Err(client::Error::Talk { address, source }),
        Err(_elapsed) => Err(client::Error::TimedOut { address, deadline: TICKET_DEADLINE }),
    }
}

/// A gate as its Pod was made.
struct Gate {
    pod: Uid,
    set: Uid,
    keys: Vec<PublicKey>,
    fault: Option<GateFault>,
}

fn gate(world: &World, address: &str) -> Option<Gate> {
    let mut pods = world.objects(&PODS, "");
    let (_, pod): (_, &Object) = pods.find(|(_, pod)| pod["status"]["podIP"] == address)?;
    let uid = pod["metadata"]["uid"].as_str()?;
    let environment = environment(pod);
    let key = |entry| PublicKey::parse(entry).expect("the operator writes keys that gates can read");
    let keys = environment.get(keys::ENV_WAKE_KEYS)?.split(',').map(key).collect();
    Some(Gate {
        pod: Uid::parse(uid).ok()?,
        set: Uid::parse(environment.get(keys::ENV_SET_UID)?).ok()?,
        keys,
        fault: world.physical.broken_gates.get(uid).copied(),
    })
}

impl Gate {
    fn judge(&self, ticket: &SignedTicket, now: i64) -> Result<(), Refusal> {
        let gate = Identity { pod: self.pod, set: self.set, keys: &self.keys };
        ticket.verify(&gate, u64::try_from(now).expect("after 1970"))
    }
}

/// The gate's variables with a value of their own.
fn environment(pod: &Value) -> BTreeMap<String, String> {
    let containers = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    let gate = containers.into_iter().find(|container| container["name"] == keys::CONTAINER_GATE);
    let variables = gate.and_then(|gate| gate["env"].as_array()).into_iter().flatten();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    variables.filter_map(|one| Some((text(&one["name"])?, text(&one["value"])?))).collect()
}
