//! What becomes of a pair whose Lease is deleted while not every copy of its state is level.

use bps_api::{HAGroupStatus, LostPair};
use bps_protocol::Epoch;

use super::*;
use bps_observe::group::TERMS_MISSED;

/// Number of the directory of the Pod 2, which alone has every acknowledged write.
const LEVEL: &str = "0000000000000000000000000000000b";

/// The pair `web-0`, in which the second Pod acts and the first one lacks acknowledged writes.
fn replicating() -> Lease {
    let mut lease = lease();
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(keys::ANNOTATION_HA_IN_SYNC.into(), LEVEL.into());
    annotations.insert(keys::ANNOTATION_HA_IN_SYNC_PODS.into(), format_uid(2));
    lease
}

/// An operator that looks at the group with this status.
struct Operator {
    context: Context,
    log: Arc<Mutex<Vec<Seen>>>,
    _writer: EventWriter,
}

impl Operator {
    fn start(status: HAGroupStatus, leases: &[Lease]) -> Self {
        let (client, server) = pair();
        let (log, _serving) = server.serve(answered);
        let group = HAGroup { status: Some(status), ..group() };
        let stores = Stores::with(group, leases.iter().cloned()).with_pods([1, 2].map(pod));
        let (context, writer) = context(&client, stores);
        Self { context, log, _writer: writer }
    }

    /// Looks once; returns what was written to this path.
    async fn look(&self, path: &str) -> Vec<Value> {
        self.log.lock().unwrap().clear();
        assert!(matches!(look(&self.context, &job()).await, Look::Settled(_)));
        let log = self.log.lock().unwrap();
        log.iter().filter(|seen| seen.path.ends_with(path)).map(|seen| seen.body.clone()).collect()
    }

    /// What the status says of lost pairs.
    async fn lost(&self) -> Vec<LostPair> {
        let written = self.look("/status").await;
        serde_json::from_value(written[0]["status"]["lost"].clone()).expect("lost pairs")
    }

    /// What the Lease that comes says of the copies of the state, and whose it is.
    async fn next_lease(&self) -> (Value, Value, Vec<String>) {
        self.context.memories.lock().unwrap().get_mut(&key()).expect("it has looked").seen.leases.outwait();
        let made = self.look("/leases").await;
        let annotations = &made[0]["metadata"]["annotations"];
        let members = annotations[keys::ANNOTATION_HA_MEMBERS].as_str().expect("members");
        let members: Vec<Value> = serde_json::from_str(members).expect("members");
        let pods = members.iter().map(|member| member["pod"].as_str().expect("a name").to_owned());
        let [level, of] = [keys::ANNOTATION_HA_IN_SYNC, keys::ANNOTATION_HA_IN_SYNC_PODS]
            .map(|key| annotations[key].clone());
        (level, of, pods.collect())
    }
}

fn lost(level: &str, of: u128) -> Vec<LostPair> {
    let (name, pods) = ("web-0".into(), ["web-1", "web-2"].map(str::to_owned).into());
    vec![LostPair { name, pods, in_sync: Some(level.into()), in_sync_pods: format_uid(of), is_over: false }]
}

fn next(level: &str, of: u128) -> (Value, Value, Vec<String>) {
    (json!(level), json!(format_uid(of)), ["web-1", "web-2"].map(str::to_owned).into())
}

#[tokio::test(start_paused = true)]
async fn the_lease_that_comes_says_what_the_deleted_one_said_last_also_after_a_restart() {
    // The last version was never looked at: it came together with the deletion.
    let mut before = replicating();
    before.metadata.annotations.get_or_insert_default().remove(keys::ANNOTATION_HA_IN_SYNC);
    let mut operator = Operator::start(HAGroupStatus::default(), &[before]);
    operator.look("/status").await;
    operator.context.stores[0].end(&replicating());
    assert_eq!(operator.lost().await, lost(LEVEL, 2));
    assert_eq!(operator.next_lease().await, next(LEVEL, 2));

    let status = HAGroupStatus { lost: lost(LEVEL, 2), ..HAGroupStatus::default() };
    let restarted = Operator::start(status, &[]);
    assert_eq!(restarted.look("/leases").await, [] as [Value; 0], "whoever acted may still act");
    assert_eq!(restarted.next_lease().await, next(LEVEL, 2));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_seen_to_be_deleted_is_made_again_once_as_it_was() {
    let mut before = replicating();
    let owner = json!([{"apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup", "name": "web", "uid": "group-uid"}]);
    before.metadata.owner_references = serde_json::from_value(owner).expect("an owner");
    let mut operator = Operator::start(HAGroupStatus::default(), std::slice::from_ref(&before));
    operator.look("/status").await;
    operator.context.stores[0].end(&before);
    let [made] = &operator.look("/leases").await[..] else { panic!("one Lease") };
    assert_eq!(made["spec"], json!(before.spec));
    let mut annotations = json!(before.metadata.annotations);
    annotations[keys::ANNOTATION_HA_LEASE] = json!(before.metadata.uid);
    assert_eq!(made["metadata"]["annotations"], annotations);
    assert_eq!(made["metadata"]["labels"][keys::LABEL_GROUP], json!("web"));
    // The watch never shows it: it may be gone again, and nobody knows what it said.
    assert_eq!(operator.look("/leases").await, [] as [Value; 0]);
}

#[tokio::test(start_paused = true)]
async fn nobody_may_act_by_the_lease_that_comes_if_the_end_of_the_last_one_was_not_seen() {
    let [name, active, standby, sync] = ["web-0", "web-1", "web-2", "InSync"].map(str::to_owned);
    let told = PairStatus { name, active, standby, sync, ..PairStatus::default() };
    let operator = Operator::start(HAGroupStatus { pairs: vec![told], ..HAGroupStatus::default() }, &[]);
    assert_eq!(operator.lost().await, lost("", 0));
    assert_eq!(operator.next_lease().await, next("", 0));
}

/// A person may have lifted the fence of either since the status was written.
#[tokio::test(start_paused = true)]
async fn nobody_is_paired_with_a_member_of_a_fenced_pair_whose_lease_was_deleted_while_nobody_looked() {
    let [name, standby, state] = ["web-0", "web-1", "Fenced"].map(str::to_owned);
    let pods = ["web-1", "web-2"].map(str::to_owned).into();
    let told = PairStatus { name, standby, pods, state, ..PairStatus::default() };
    let status = HAGroupStatus { pairs: vec![told], ..HAGroupStatus::default() };
    let mut operator = Operator::start(status, &[]);
    let shown = operator.context.stores[0].group(&key()).expect("a group");
    let stores = Stores::with(shown.object().expect("one that can be read").clone(), []);
    operator.context.stores = vec![stores.with_pods([1, 2, 3].map(pod))];
    assert_eq!(operator.look("/leases").await, [] as [Value; 0], "web-2 may act");
}

/// A Pod as a pair left it whose group was deleted.
fn left(number: u128, (state, peer, epoch): (&str, &str, Option<Epoch>)) -> SlimPod {
    let mut pod = pod(number);
    let labels = [
        (keys::LABEL_PAIR_STATE, state),
        (keys::LABEL_PAIR_PEER, peer),
        (keys::LABEL_HA_STATE, state),
        (keys::LABEL_PEER, peer),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    pod.metadata.labels.get_or_insert_default().extend(labels);
    let epoch = epoch.map(|epoch| (keys::ANNOTATION_HA_EPOCH.to_owned(), u64::from(epoch).to_string()));
    pod.metadata.annotations.get_or_insert_default().extend(epoch);
    pod
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_made_anew_waits_for_those_who_may_act_and_pairs_them_as_before_above_their_epochs() {
    let (client, server) = pair();
    let (log, _serving) = server.serve(answered);
    let epoch = Some(Epoch { term: 6, sequence: 2 });
    let pods = [
        left(1, ("standby", "web-4", None)),
        left(2, ("active", "web-3", None)),
        left(3, ("standby", "web-2", None)),
        left(4, ("active", "web-1", epoch)),
    ];
    let (context, writer) = context(&client, Stores::with(group(), []).with_pods(pods));
    let operator = Operator { context, log, _writer: writer };
    assert_eq!(operator.look("/leases").await, [] as [Value; 0], "whoever acted may still act");
    operator.context.memories.lock().unwrap().get_mut(&key()).expect("it has looked").seen.leases.outwait();
    let founded = operator.look("/leases").await;
    let told = founded.iter().map(|lease| {
        let members =
            lease["metadata"]["annotations"][keys::ANNOTATION_HA_MEMBERS].as_str().expect("members");
        let members: Vec<Value> = serde_json::from_str(members).expect("members");
        let names: Vec<_> =
            members.iter().map(|member| member["pod"].as_str().expect("a name").to_owned()).collect();
        (lease["metadata"]["name"].clone(), lease["spec"]["leaseTransitions"].clone(), names)
    });
    let pair = |name: &str, pods: [&str; 2]| {
        (json!(name), json!(6 + 2 * TERMS_MISSED), pods.map(str::to_owned).to_vec())
    };
    assert_eq!(
        told.collect::<Vec<_>>(),
        [pair("web-0", ["web-2", "web-3"]), pair("web-1", ["web-4", "web-1"])]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_left_of_the_former_group_speaks_for_its_own_pods_only() {
    let (client, server) = pair();
    let (log, _serving) = server.serve(answered);
    let pods = [
        left(1, ("standby", "web-2", None)),
        left(2, ("active", "web-1", None)),
        left(3, ("standby", "web-4", None)),
        left(4, ("active", "web-3", None)),
    ];
    let (context, writer) = context(&client, Stores::with(group(), [lease()]).with_pods(pods));
    let operator = Operator { context, log, _writer: writer };
    assert_eq!(
        operator.look("/leases").await,
        [] as [Value; 0],
        "whoever acted in the other pair may still act"
    );
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_knows_nothing_believes_the_status_that_a_term_is_over() {
    let [name, active, standby] = ["web-0", "web-2", "web-1"].map(str::to_owned);
    let epoch = u64::from(Epoch { term: 9, sequence: 0 }).to_string();
    let told = PairStatus { name, active, standby, epoch, ..PairStatus::default() };
    let status = HAGroupStatus { pairs: vec![told], highest_term: 9, ..HAGroupStatus::default() };
    let operator = Operator::start(status, &[lease()]);
    assert!(matches!(look(&operator.context, &job()).await, Look::Refused(_)), "people hear of it");
    let log = operator.log.lock().unwrap();
    let deleted = log.iter().filter(|seen| seen.method == "DELETE").map(|seen| seen.path.as_str());
    assert_eq!(deleted.collect::<Vec<_>>(), ["/apis/coordination.k8s.io/v1/namespaces/shop/leases/web-0"]);
    let made = log.iter().filter(|seen| seen.method == "POST" && seen.path.ends_with("/leases"));
    assert_eq!(made.count(), 0);
    let reported = log.iter().find(|seen| seen.path.ends_with("/status")).expect("a status");
    let pods = &reported.body["status"]["lost"][0]["pods"];
    assert_eq!(*pods, json!(["web-1", "web-2"]));
}
