//! The second act: two Pods as active and standby, and a failure of the active that a client watches.

use std::time::Duration;

use kube::Client;
use rustix::process::Signal;
use tokio::time::sleep;

use super::{Error, indented, table};
use crate::app::Outage;
use crate::bench::client::{Habit, unreported};
use crate::bench::pairs::site::{NAME, Serving, Site};
use crate::bench::pairs::state::{self, Counted};
use crate::bench::rounds::Bench;
use crate::cluster::Cluster;
use crate::image::Profile;
use crate::install::images;

/// Pause before the failure: kube-proxy programs the first change after a second of quiet at once.
const QUIET: Duration = Duration::from_millis(1_500);

/// Starts the pair, kills its active's application, and prints what a client saw.
///
/// # Errors
/// `Pair`, `ProvideImages`, `ReadTable`.
pub(super) async fn tell(client: &Client, cluster: &Cluster, namespace: &str) -> Result<(), Error> {
    let failed = |source| Error::Pair(Box::new(source));
    let app = images::await_binaries(Profile::Quick).await.map_err(Error::ProvideImages)?.app;
    let bench = Bench { client: client.clone(), cluster: cluster.clone(), app };
    println!(
        "6. Two Pods of a StatefulSet become active and standby of a counter that is on the disks of both\n"
    );
    let (site, before) = Site::pair(client, namespace).await.map_err(failed)?;
    show(client, namespace).await?;
    println!("7. The application of the active is killed, while clients add to the counter every 5 ms\n");
    sleep(QUIET).await;
    let counted = kill(&bench, &site, &before).await.map_err(failed)?;
    let after = site.settled().await.map_err(failed)?;
    show(client, namespace).await?;
    let outage = Outage::from_samples(&counted.increments);
    let out = outage.out.unwrap_or_default().as_secs_f64() * 1e3;
    println!(
        "   {} acted, {} acts now. New connections were without an answer for {out:.0} ms: {} of {} failed.\n   \
         {} increments were acknowledged, {} of them are lost.\n",
        before.pod, after.pod, outage.failed, outage.requests, counted.acknowledged, counted.lost,
    );
    Ok(())
}

async fn kill(bench: &Bench, site: &Site, active: &Serving) -> Result<Counted, crate::bench::Error> {
    let aim = bench.cluster.aim_below_init(&site.aim(&active.pod))?;
    let visit = site.visit_with(bench, active, Habit::Counting).await?;
    aim.fire(Signal::KILL)?;
    site.recovered(active).await?;
    state::read(&visit.report().await?).ok_or_else(unreported)
}

async fn show(client: &Client, namespace: &str) -> Result<(), Error> {
    let read = |what| move |source| Error::ReadTable { what, source: Box::new(source) };
    let pods = table::pair_pods(client, namespace, NAME).await.map_err(read("the pods"))?;
    let groups = table::groups(client, namespace, NAME).await.map_err(read("the group"))?;
    println!("{}\n{}", indented(&pods.to_string()), indented(&groups.to_string()));
    Ok(())
}
