//! One standby for two actives, with real agents, a real API server and replicated state: it takes over where an active
//! is lost, and the other pair goes on without it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bps_api::keys;
use bps_wire::lease::Record;
use bps_wire::uid::format_uid;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::programs::programs;
use super::stage::{NAMESPACE, Stage};

/// Both actives, and the Pod that stands by for them.
const PODS: [&str; 3] = ["active-0", "active-1", "standby"];
const STANDBY: usize = 2;
/// The state that the active of each pair writes.
const STATES: [&str; 2] = ["state of the first pair", "state of the second pair"];
/// How long an active is watched that goes on: longer than each hold, so that a claim of the standby would have come by
/// then.
const GOES_ON_FOR: Duration = Duration::from_secs(12);

/// Writes its state once, waits until it is on the disk of the standby, too, and tells who acts with what.
const APPLICATION: &str = r#"
state="$STATE/active/state"
[ -e "$state" ] || echo "$OWN_STATE" > "$state"
trap 'exit 0' TERM
"$PROGRAM" sync > "$ANSWER"
cat "$state" > "$ACTS.new" && mv "$ACTS.new" "$ACTS"
while :; do
    "$PROGRAM" sync > "$ANSWER.new" && mv "$ANSWER.new" "$ANSWER"
    sleep 0.1 & wait $!
done
"#;

/// Three agents of one group with two Leases.
struct Trio {
    stage: Stage,
    agents: [Option<Child>; 3],
    ports: [u16; 3],
}

impl Trio {
    async fn set(name: &'static str) -> Self {
        let stage = Stage::set(name).await;
        stage.delete_lease().await;
        let agents = [const { None }; 3];
        let mut trio = Self { stage, agents, ports: [0; 3] };
        trio.ports = [0, 1, 2].map(|agent| {
            let free = TcpListener::bind((trio.address(agent), 0)).expect("a free port");
            free.local_addr().expect("an address").port()
        });
        trio
    }

    /// Those of no two agents meet, whatever ports they have.
    fn address(&self, agent: usize) -> Ipv4Addr {
        let [a, b, c, first] = self.stage.address(0).octets();
        Ipv4Addr::new(a, b, c, first + 20 + u8::try_from(agent).expect("one of three"))
    }

    fn uid(&self, agent: usize) -> String {
        format_uid(self.stage.uids[0] + 4 + agent as u128)
    }

    fn folder(&self, agent: usize) -> PathBuf {
        self.stage.directory.join(PODS[agent])
    }

    fn lease_name(&self, pair: usize) -> String {
        format!("{}-{pair}", self.stage.name)
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.stage.client.clone(), NAMESPACE)
    }

    fn member(&self, agent: usize) -> Value {
        let address = format!("{}:{}", self.address(agent), self.ports[agent]);
        json!({"uid": self.uid(agent), "pod": PODS[agent], "address": address})
    }

    /// The Lease of an active and the standby, which nobody holds.
    async fn create_lease(&self, pair: usize) {
        let members = json!([self.member(pair), self.member(STANDBY)]);
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {
                "name": self.lease_name(pair),
                "labels": {(keys::LABEL_GROUP): self.stage.name},
                "annotations": {
                    (keys::ANNOTATION_HA_SEQUENCE): "0",
                    (keys::ANNOTATION_HA_MEMBERS): members.to_string(),
                    (keys::ANNOTATION_HA_HOLD): "Api",
                    (keys::ANNOTATION_HA_WRITES): "0",
                },
            },
            "spec": {"leaseTransitions": 0},
        }))
        .expect("a Lease");
        self.leases().create(&PostParams::default(), &lease).await.expect("a Lease");
    }

    async fn lease(&self, pair: usize) -> Record {
        Record::read(&self.leases().get(&self.lease_name(pair)).await.expect("the Lease"))
            .expect("one of a pair")
    }

    fn start(&mut self, agent: usize) {
        let folder = self.folder(agent);
        let state = folder.join("state");
        fs::create_dir_all(&state).expect("a directory");
        let log = File::options().create(true).append(true).open(folder.join("log")).expect("a log");
        let child = Command::new(&programs().agent)
            .args(["run", "--group", self.stage.name, "--namespace", NAMESPACE, "--standby-for=2"])
            .arg(format!("--peer-bind={}:{}", self.address(agent), self.ports[agent]))
            .arg(format!("--key-file={}", self.stage.directory.join("keys").display()))
            .arg(format!("--state-dir={}", folder.display()))
            .arg(format!("--state-file={}", folder.join("state.json").display()))
            .arg(format!("--replicate={}", state.display()))
            .args(["--", "sh", "-c", APPLICATION])
            .env("KUBECONFIG", self.stage.directory.join("kubeconfig"))
            .env("POD_UID", self.uid(agent))
            .env("POD_NAME", PODS[agent])
            .env("POD_IP", format!("10.99.1.{}", 2 + agent))
            .env(keys::ENV_HA_END_WITHIN_SECONDS, "8")
            .env("STATE", &state)
            .env("OWN_STATE", STATES.get(agent).copied().unwrap_or("state of no pair"))
            .env("ACTS", folder.join("acts"))
            .env("ANSWER", folder.join("answer"))
            .env("PROGRAM", &programs().agent)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the agent starts");
        self.agents[agent] = Some(child);
    }

    /// With what state the application of an agent acts; `None`: it has not started.
    fn acts_with(&self, agent: usize) -> Option<String> {
        Some(fs::read_to_string(self.folder(agent).join("acts")).ok()?.trim().to_owned())
    }

    async fn is_in_sync(&self, pair: usize) -> bool {
        let answer = fs::read_to_string(self.folder(pair).join("answer")).unwrap_or_default();
        answer.starts_with("ok") && self.lease(pair).await.level.count() == Some(2)
    }

    /// The holder of a Lease, as an index.
    async fn holder(&self, pair: usize) -> Option<usize> {
        let holder = format_uid(self.lease(pair).await.lease.holder?.0);
        (0..PODS.len()).find(|agent| self.uid(*agent) == holder)
    }

    /// The enforcer dies as with the node, and all below it.
    fn lose(&mut self, agent: usize) {
        let mut child = self.agents[agent].take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("it was started here");
    }
}

impl Drop for Trio {
    fn drop(&mut self) {
        for mut child in self.agents.iter_mut().filter_map(Option::take) {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_of_two_actives_takes_one_over_with_its_state_and_the_other_one_goes_on() {
    let mut trio = Trio::set("seats").await;
    for pair in [0, 1] {
        trio.create_lease(pair).await;
        trio.start(pair);
        trio.stage.until("an active", async || (trio.holder(pair).await == Some(pair)).then_some(())).await;
    }
    trio.start(STANDBY);
    for pair in [0, 1] {
        trio.stage.until("a copy", async || trio.is_in_sync(pair).await.then_some(())).await;
        assert_eq!(trio.acts_with(pair).as_deref(), Some(STATES[pair]));
    }
    assert_eq!(trio.acts_with(STANDBY), None);

    trio.lose(0);
    trio.stage.until("a takeover", async || trio.acts_with(STANDBY)).await;
    assert_eq!(trio.acts_with(STANDBY).as_deref(), Some(STATES[0]));
    assert_eq!(trio.holder(0).await, Some(STANDBY));

    // The seat of the other pair is fenced: its active goes on, and the standby claims nothing there.
    let before = trio.lease(1).await.lease;
    tokio::time::sleep(GOES_ON_FOR).await;
    let after = trio.lease(1).await.lease;
    assert_eq!((after.holder, after.epoch), (before.holder, before.epoch));
    fs::remove_file(trio.folder(1).join("answer")).expect("a former answer");
    trio.stage.until("a further barrier", async || trio.is_in_sync(1).await.then_some(())).await;
    assert_eq!((trio.holder(0).await, trio.holder(1).await), (Some(STANDBY), Some(1)));
    assert_eq!(trio.acts_with(STANDBY).as_deref(), Some(STATES[0]));
}
