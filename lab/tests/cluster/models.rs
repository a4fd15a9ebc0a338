//! Models of redundancy: what the example of each one promises, and that it happens when a Pod that serves is killed.
//!
//! The outage of each is noted beside what the thesis of the State Controller measured. No verdict depends on it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bps_api::keys;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kube::api::DeleteParams;
use lab::app::Outage;
use lab::app::sample::Sample;
use lab::bench::pairs::crowd::realtime_ns;
use lab::bench::pairs::trial::PROXY_WITHIN;
use lab::image::busybox::busybox_image;

use crate::load::Load;
use crate::manifests::{bring_nginx, path_of};
use crate::notes::note;
use crate::pairs::{first_paired, served_again};
use crate::shared_standbys::{are_followed, pairs_where};
use crate::stage::{Counts, Stage, complete, one, uids};
use crate::wait::{self, role};

/// How often a standby is looked at that has not all of the state yet.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// The example of a model.
struct Model {
    /// Name of the set and of its Service.
    name: &'static str,
    file: &'static str,
    counts: Counts,
    /// The text of its status.
    redundancy: &'static str,
    /// Service outages of the thesis of the State Controller for the model. Kubernetes 1.8.2 and a stateless application in chapter 3,
    /// 1.12.1 and one with state in chapter 4.
    thesis: &'static str,
}

const NONE: Model = Model {
    name: "no-redundancy",
    file: "models/none.yaml",
    counts: [1, 0, 1],
    redundancy: "no redundancy, 1 cold spare",
    thesis: "table 3-2: Pod terminated 1.588 s; OpenSAF, table 3-6: component 0.795 s",
};

const N_WAY_ACTIVE: Model = Model {
    name: "n-way-active",
    file: "models/n-way-active.yaml",
    counts: [3, 0, 0],
    redundancy: "N-way active x 3",
    thesis: "table 3-3: container 0.579 s, Pod process 0.730 s, node 38.582 s",
};

const N_PLUS_M: Model = Model {
    name: "n-plus-m",
    file: "models/n-plus-m.yaml",
    counts: [2, 1, 1],
    redundancy: "N+M 2+1, 1 cold spare",
    thesis: "nothing of N+M; 2N, table 4-2: container 1.400 s",
};

const N_PLUS_M_WITH_STATE: Model = Model {
    name: "n-plus-m-with-state",
    file: "models/n-plus-m-with-state.yaml",
    counts: [2, 1, 1],
    redundancy: "N+M 2+1 with standbys, 1 cold spare",
    thesis: "nothing of N+M; 2N with state, table 4-2: container 1.400 s",
};

const TWO_N: Model = Model {
    name: "two-n",
    file: "models/two-n.yaml",
    counts: [2, 3, 0],
    redundancy: "2N x 2, 1 spare",
    thesis: "tables 4-2 and 4-3: container 1.400 and 1.205 s, Pod process 0.637 and 0.656 s; OpenSAF, table 4-5: component 0.229 s",
};

impl Model {
    /// Applies the example, and waits until its set is complete and says which model it is; returns its Pods.
    async fn applied(&self, stage: &Stage) -> Vec<Pod> {
        stage.starts(self.counts.iter().sum());
        stage.kubectl(&["apply", "-f", path_of(self.file).to_str().unwrap()]);
        let pods = stage.settled(self.name, self.counts).await;
        self.amounts_to(stage, self.redundancy).await;
        pods
    }

    /// Waits until the set says that its counts amount to this.
    async fn amounts_to(&self, stage: &Stage, redundancy: &str) {
        stage
            .reports(self.name, |set| {
                let said = set.status.clone().unwrap_or_default().redundancy;
                if said == redundancy { Ok(()) } else { Err(format!("it says {said:?}")) }
            })
            .await;
    }

    /// Clients of its Service.
    async fn load(&self, stage: &Stage) -> Load {
        let service = stage.api::<Service>().get(self.name).await.unwrap();
        let address = service.spec.and_then(|spec| spec.cluster_ip).expect("it has an address");
        let target = SocketAddr::new(address.parse().unwrap(), 80);
        Load::start_at(stage, "n1", target).await
    }

    /// What the outage is noted with.
    fn note(&self, fault: &str) -> String {
        format!("{}, {fault} (thesis: {})", self.redundancy, self.thesis)
    }

    /// Waits until the Pods are as wanted and exactly these are primaries.
    async fn serve(&self, stage: &Stage, primaries: &BTreeSet<String>) -> Vec<Pod> {
        stage
            .pods_where(self.name, |pods| {
                complete(pods, self.counts)?;
                let seen = uids(pods, "primary");
                if seen == *primaries { Ok(()) } else { Err(format!("primaries are {seen:?}")) }
            })
            .await
    }
}

/// A container that crashes is started again in its Pod; only a Pod that is gone has its place taken.
pub(crate) async fn a_cold_backup_takes_the_place_of_a_primary_without_redundancy(stage: Stage) {
    let before = NONE.applied(&stage).await;
    let load = NONE.load(&stage).await;
    let primary = one(&before, "primary").name_any();
    stage.api::<Pod>().delete(&primary, &DeleteParams::default().grace_period(0)).await.unwrap();
    NONE.serve(&stage, &uids(&before, "cold")).await;
    served_again(&NONE.note("Pod deleted by force"), load).await;
    stage.settled(NONE.name, NONE.counts).await;
}

pub(crate) async fn the_others_serve_on_when_one_of_n_way_active_is_killed(stage: Stage) {
    let before = N_WAY_ACTIVE.applied(&stage).await;
    let load = N_WAY_ACTIVE.load(&stage).await;
    let (killed, others) = before.split_first().expect("three primaries");
    let (uid, restarts_before) = (killed.uid(), restarts(killed));
    stage.bench.cluster.kill_process(&stage.target(killed)).unwrap();
    let struck_ns = realtime_ns();
    let after = stage
        .pods_where(N_WAY_ACTIVE.name, |pods| {
            complete(pods, N_WAY_ACTIVE.counts)?;
            let again = pods.iter().find(|pod| pod.uid() == uid).ok_or("the killed Pod is gone")?;
            if restarts(again) > restarts_before { Ok(()) } else { Err(wait::describe(again)) }
        })
        .await;
    assert_eq!(uids(&after, "primary"), uids(&before, "primary"), "no Pod is given up");

    // No event says that every node has learned the last change.
    tokio::time::sleep(PROXY_WITHIN).await;
    let requests = load.samples().await;
    let outage = Outage::from_samples(&requests);
    note(format!("{}: {outage}", N_WAY_ACTIVE.note("process killed")));
    let answers = || requests.iter().filter(|sample| sample.is_ok() && sample.start_ns > struck_ns);
    // It was away in its longest silence: the process may answer for a moment after the signal.
    let own = answers().filter(|sample| sample.pod == killed.name_any()).map(|sample| sample.start_ns);
    let own: Vec<_> = std::iter::once(struck_ns).chain(own).collect();
    let silences = own.windows(2).map(|pair| (pair[0], pair[1]));
    let (gone_ns, back_ns) = silences.max_by_key(|(from, to)| to - from).expect("it answers again");
    let meanwhile = answers().filter(|sample| (gone_ns + 1..back_ns).contains(&sample.start_ns));
    assert!(meanwhile.count() > 0, "the others did not serve on: {outage}");
    let answering: BTreeSet<&str> = answers().map(|sample| sample.pod.as_str()).collect();
    let silent: Vec<String> =
        others.iter().map(ResourceExt::name_any).filter(|name| !answering.contains(name.as_str())).collect();
    assert_eq!(silent, Vec::<String>::new(), "they do not answer at all");
    assert!(outage.is_answered, "{outage}");
    stage.settled(N_WAY_ACTIVE.name, N_WAY_ACTIVE.counts).await;
}

/// How often the containers of a Pod were started again.
fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}

pub(crate) async fn a_hot_backup_takes_the_place_of_a_killed_primary_of_n_plus_m(stage: Stage) {
    let before = N_PLUS_M.applied(&stage).await;
    let load = N_PLUS_M.load(&stage).await;
    let killed = one(&before, "primary");
    stage.bench.cluster.kill_process(&stage.target(killed)).unwrap();
    let survivors = uids(&before, "primary").into_iter().filter(|uid| Some(uid) != killed.uid().as_ref());
    let after = N_PLUS_M.serve(&stage, &survivors.chain(uids(&before, "hot")).collect()).await;
    // It runs again, and is there for the next one.
    assert_eq!(uids(&after, "hot"), killed.uid().into_iter().collect());
    served_again(&N_PLUS_M.note("process killed"), load).await;
    stage.settled(N_PLUS_M.name, N_PLUS_M.counts).await;
}

/// Waits until a standby has the page of each active.
async fn has_pages(stage: &Stage, standby: &str, actives: impl Iterator<Item = &str> + Clone) {
    let read = ["exec", standby, "--", "sh", "-c", "cat /state/seats/*/index.html 2>&1 || true"];
    let has_all = async {
        loop {
            let pages = stage.kubectl(&read);
            if actives.clone().all(|active| pages.contains(active)) {
                return;
            }
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    };
    tokio::time::timeout(wait::LIMIT, has_all).await.expect("the pages are replicated");
}

/// The page of each primary is its name, which only its state tells.
pub(crate) async fn the_standby_of_two_serves_the_state_of_the_active_that_was_killed(stage: Stage) {
    stage.bench.load_image(&busybox_image().unwrap());
    N_PLUS_M_WITH_STATE.applied(&stage).await;
    let pairs = pairs_where(&stage, are_followed).await;
    for pair in &pairs {
        let write = format!("printf %s {} > /state/active/index.html", pair.active);
        stage.kubectl(&["exec", &pair.active, "--", "sh", "-c", &write]);
    }
    let load = N_PLUS_M_WITH_STATE.load(&stage).await;
    let [killed, standby] = [&pairs[0].active, &pairs[0].standby];
    has_pages(&stage, standby, pairs.iter().map(|pair| &*pair.active)).await;
    let active = stage.api::<Pod>().get(killed).await.unwrap();
    stage.bench.cluster.kill_below_init(&stage.target(&active)).unwrap();
    let struck_ns = realtime_ns();
    pairs_where(&stage, |pairs| pairs.iter().any(|pair| pair.active == *standby)).await;

    // No event says that every node has learned the last change.
    tokio::time::sleep(PROXY_WITHIN).await;
    let requests = load.samples().await;
    let outage = Outage::from_samples(&requests);
    note(format!("{}: {outage}", N_PLUS_M_WITH_STATE.note("application killed")));
    let with_its_state = |sample: &&Sample| sample.is_ok() && sample.pod == *killed;
    let last_ns = requests.iter().filter(with_its_state).map(|sample| sample.start_ns).max();
    assert!(last_ns.is_some_and(|last| last > struck_ns), "its state is not served again: {outage}");
    stage.settled(N_PLUS_M_WITH_STATE.name, N_PLUS_M_WITH_STATE.counts).await;
    pairs_where(&stage, are_followed).await;
}

pub(crate) async fn the_standby_takes_the_place_of_a_killed_active_of_2n(stage: Stage) {
    bring_nginx(&stage);
    TWO_N.applied(&stage).await;
    let pair = first_paired(&stage).await;
    let load = TWO_N.load(&stage).await;
    let active = stage.api::<Pod>().get(&pair.active).await.unwrap();
    stage.bench.cluster.kill_below_init(&stage.target(&active)).unwrap();
    stage
        .pods_where(TWO_N.name, |pods| {
            let heir = pods.iter().find(|pod| pod.name_any() == pair.standby).ok_or("no standby")?;
            let part = heir.labels().get(keys::LABEL_HA_STATE).map(String::as_str);
            let acts = role(heir) == "primary" && part == Some("active");
            if acts { Ok(()) } else { Err(format!("it is {} and {part:?}", role(heir))) }
        })
        .await;
    served_again(&TWO_N.note("application killed"), load).await;
    stage.settled(TWO_N.name, TWO_N.counts).await;
}

pub(crate) async fn a_scale_below_what_is_promised_is_done_and_reported(stage: Stage) {
    N_WAY_ACTIVE.applied(&stage).await;
    stage.kubectl(&["scale", "bps", N_WAY_ACTIVE.name, "--replicas=1"]);
    let message = stage.condition(N_WAY_ACTIVE.name, ("Degraded", "RedundancyLost")).await;
    assert!(message.contains("spec.replicas is 1: write 2 or more"), "{message}");
    N_WAY_ACTIVE.amounts_to(&stage, "no redundancy").await;
    stage.pods(N_WAY_ACTIVE.name, [1, 0, 0]).await;

    stage.kubectl(&["scale", "bps", N_WAY_ACTIVE.name, "--replicas=2"]);
    stage.settled(N_WAY_ACTIVE.name, [2, 0, 0]).await;
    N_WAY_ACTIVE.amounts_to(&stage, "N-way active x 2").await;
}
