//! The claim about the example of a Redis pair, as a reader runs it, with a real Redis.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bps_api::{PairStatus, keys};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use lab::image::redis::{PROGRAMS, redis_image};
use lab::packages;

use crate::history::{Log, Turns};
use crate::manifests::apply_with_agent;
use crate::notes::note;
use crate::pairs::{first_paired, first_reported};
use crate::redis_clients::{REDIS_PORT, Witness, Writer, kept};
use crate::resp::{Answer, Connection, start_in};
use crate::stage::Stage;
use crate::wait;

/// Name of the group, its Service and its StatefulSet.
const NAME: &str = "redis";
/// How often something that no watch shows is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// Pause before each failure: kube-proxy programs the first change after a second of quiet at once.
const QUIET: Duration = Duration::from_millis(1_500);

/// What is broken, one after the other.
#[derive(Clone, Copy, Debug)]
enum Blow {
    ApplicationKilled,
    ActiveDeleted,
}

const BLOWS: [Blow; 10] = [
    Blow::ApplicationKilled,
    Blow::ApplicationKilled,
    Blow::ApplicationKilled,
    Blow::ApplicationKilled,
    Blow::ApplicationKilled,
    Blow::ActiveDeleted,
    Blow::ActiveDeleted,
    Blow::ActiveDeleted,
    Blow::ActiveDeleted,
    Blow::ActiveDeleted,
];

pub(crate) async fn a_redis_pair_keeps_every_acknowledged_write_and_only_one_takes_them(stage: Stage) {
    if let Err(error) = packages::ensure_programs(&PROGRAMS) {
        note(format!("skipped: the claim needs a Redis of the distribution: {error}"));
        return;
    }
    stage.bench.load_image(&redis_image().unwrap());
    apply_with_agent(&stage, "active-standby/redis.yaml", NAME);
    let mut pair = first_paired(&stage).await;
    let network = stage.bench.cluster.run_directory().node("n1").network_pin();
    let writer = Writer::start(network.clone(), service_address(&stage).await);
    let witness = Witness::start(network.clone());
    let addresses = tokio::spawn(show_addresses(stage.api(), witness.pods.clone()));
    acknowledged(&writer, Instant::now()).await;
    for blow in BLOWS {
        tokio::time::sleep(QUIET).await;
        let since = Instant::now();
        strike(&stage, &pair, blow).await;
        let after =
            first_reported(&stage, |seen| !seen.active.is_empty() && seen.active != pair.active).await;
        assert_eq!(after.active, pair.standby);
        pair = first_paired(&stage).await;
        acknowledged(&writer, Instant::now()).await;
        let [silent, unacknowledged] = writer.log.lock().unwrap().outages(since);
        note(format!(
            "{blow:?}: a primary answered after {} ms, a write was acknowledged after {} ms",
            silent.as_millis(),
            unacknowledged.as_millis()
        ));
    }
    addresses.abort();
    let log = tokio::task::spawn_blocking(|| writer.stop()).await.unwrap();
    let sight = tokio::task::spawn_blocking(|| witness.stop()).await.unwrap();
    note(format!(
        "{} acknowledged; the witness: {} taken, {} refused",
        log.acknowledged().count(),
        sight.taken,
        sight.refused
    ));
    let Turns { order, returned } = sight.primaries;
    assert_eq!(returned, BTreeSet::new(), "two took writes at the same time: {order:?}");
    assert!(order.len() > BLOWS.len() && sight.refused > 0);
    check_both(&stage, &pair, (network, &log)).await;
}

/// The active has every acknowledged write, and so has the standby, which takes none itself.
async fn check_both(stage: &Stage, pair: &PairStatus, (network, log): (PathBuf, &Log)) {
    for (name, is_standby) in [(&pair.active, false), (&pair.standby, true)] {
        let pod = stage.api::<Pod>().get(name).await.unwrap();
        let (address, numbers) = (address(&pod).unwrap(), log.acknowledged().collect::<Vec<_>>());
        let asked = start_in(network.clone(), move || {
            let mut connection = Connection::open((address, REDIS_PORT).into())?;
            Ok::<_, std::io::Error>((
                kept(&mut connection, numbers.into_iter())?,
                connection.ask("SET witness seen")?,
            ))
        });
        let (kept, written) = asked.join().unwrap().unwrap();
        assert_eq!(log.lost(&kept), [0; 0], "{name}");
        let refused = Answer::Refused("READONLY".to_owned());
        assert_eq!(written, if is_standby { refused } else { Answer::Text("OK".to_owned()) }, "{name}");
    }
}

async fn strike(stage: &Stage, pair: &PairStatus, blow: Blow) {
    let pods: Api<Pod> = stage.api();
    match blow {
        Blow::ApplicationKilled => {
            let active = pods.get(&pair.active).await.unwrap();
            stage.bench.cluster.kill_below_init(&stage.target(&active)).unwrap();
        }
        Blow::ActiveDeleted => drop(pods.delete(&pair.active, &DeleteParams::default()).await.unwrap()),
    }
}

/// Waits until a write is acknowledged after this moment: the standby has all of it, then.
async fn acknowledged(writer: &Writer, moment: Instant) {
    let looked = async {
        while !writer.log.lock().unwrap().is_acknowledged_after(moment) {
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    };
    tokio::time::timeout(wait::LIMIT, looked).await.expect("a write is acknowledged");
}

async fn service_address(stage: &Stage) -> IpAddr {
    wait::until(stage.api(), "", |services: &[Service]| {
        let service = services.iter().find(|service| service.name_any() == NAME);
        let address = service.and_then(|service| service.spec.as_ref()?.cluster_ip.as_deref()?.parse().ok());
        address.ok_or_else(|| "there is no Service".to_owned())
    })
    .await
}

/// Keeps the witness informed.
async fn show_addresses(pods: Api<Pod>, shown: std::sync::Arc<std::sync::Mutex<BTreeSet<IpAddr>>>) {
    let of_group = ListParams::default().labels(&format!("{}={NAME}", keys::LABEL_GROUP));
    loop {
        if let Ok(found) = pods.list(&of_group).await {
            *shown.lock().unwrap() = found.items.iter().filter_map(address).collect();
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}

fn address(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}
