//! From 2 Pods to 32 and back: a Deployment with agents beside the same one without, in turn.

use std::time::Duration;

use backuppodset::api::keys;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::time::{Instant, sleep};

use super::Course;
use super::report::{Report, Row, Unit, percent_more};
use super::site::Site;
use super::trial::QUIET;
use super::workload::{Blueprint, Kind};
use crate::bench::{Error, NAMESPACE};
use crate::hollow::is_ready;

/// First words of the rows.
const WHAT: &str = "scaling:";
/// Pods before and after.
const FEW: usize = 2;
/// Pods between.
const MANY: usize = 32;
/// One of how many rounds is made.
const ONE_OF: u16 = 6;
/// How much more time agents should take, out and in.
const TARGET: &str = "+2 %";

/// Times of one workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    /// Until all were ready.
    out: Duration,
    /// Until all had a state, of those with agents.
    labelled: Duration,
    /// Until the others were gone.
    r#in: Duration,
}

/// The rows, in the order of the table.
struct Rows {
    /// Out and in, without agents.
    plain: [Row; 2],
    /// Out and in, with agents.
    paired: [Row; 2],
    /// Out and in, how much more.
    more: [Row; 2],
    labelled: Row,
}

/// Measures, if it is wanted: seven rows.
///
/// # Errors
/// `Request` or `Find` if a workload does not come up or stays.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    if !course.options.wants(WHAT) {
        return Ok(());
    }
    let blueprint = |kind, name| -> Result<Blueprint, Error> {
        Ok(Blueprint { kind, name, replicas: FEW, sink: None, lookout: Some(course.lookout()?) })
    };
    let client = &course.bench.client;
    let plain = Site::build(client, NAMESPACE, blueprint(Kind::Deployment, "many")?).await?;
    let paired = Site::build(client, NAMESPACE, blueprint(Kind::PairsOfDeployment, "many-pairs")?).await?;
    let mut rows = Rows::new();
    course
        .repeat((WHAT, course.options.one_of(ONE_OF)), &mut report.failures, async |number| {
            // Whatever one of them leaves behind for the other, it is not always the same one.
            let (one, other) = if number.is_multiple_of(2) {
                let other = breathe(&paired).await?;
                (breathe(&plain).await?, other)
            } else {
                (breathe(&plain).await?, breathe(&paired).await?)
            };
            rows.add((one, other));
            Ok(())
        })
        .await;
    report.rows.extend(rows.into_rows());
    plain.remove().await?;
    paired.remove().await
}

/// Out and in once.
async fn breathe(site: &Site) -> Result<Times, Error> {
    site.settled().await?;
    sleep(QUIET).await;
    let began = Instant::now();
    site.scale(MANY).await?;
    let are_ready = |pods: &[Pod]| pods.iter().filter(|pod| is_ready(pod)).count() == MANY;
    site.pods_are("32 ready Pods", are_ready).await?;
    let out = began.elapsed();
    if site.kind().has_agents() {
        let have_state = |pods: &[Pod]| {
            pods.iter().filter(|pod| pod.labels().contains_key(keys::LABEL_HA_STATE)).count() == MANY
        };
        site.pods_are("32 Pods with a state", have_state).await?;
    }
    let labelled = began.elapsed();
    sleep(QUIET).await;
    let began = Instant::now();
    site.scale(FEW).await?;
    site.pods_are("2 Pods", |pods| pods.len() == FEW).await?;
    Ok(Times { out, labelled, r#in: began.elapsed() })
}

impl Rows {
    fn new() -> Self {
        let row = |what: &str, unit| Row { what: format!("{WHAT} {what}"), unit, ..Row::default() };
        let plain = ["2 -> 32 ready, plain Deployment", "32 -> 2, plain Deployment"];
        let plain = plain.map(|what| row(what, Unit::Seconds));
        let mut paired = ["2 -> 32 ready, with agents", "32 -> 2, with agents"];
        let mut paired = std::mem::take(&mut paired).map(|what| row(what, Unit::Seconds));
        for (row, beside) in paired.iter_mut().zip(&plain) {
            row.beside.clone_from(&beside.what);
        }
        let more = ["2 -> 32, agents take more", "32 -> 2, agents take more"];
        let more = more.map(|what| Row { target: TARGET, ..row(what, Unit::Percent) });
        Self { plain, paired, more, labelled: row("2 -> 32, every Pod has a state", Unit::Seconds) }
    }

    fn add(&mut self, (one, other): (Times, Times)) {
        let times = [(one.out, other.out), (one.r#in, other.r#in)];
        for (index, (plain, paired)) in times.into_iter().enumerate() {
            self.plain[index].took(plain);
            self.paired[index].took(paired);
            self.more[index].samples.push(percent_more(paired, plain));
        }
        self.labelled.took(other.labelled);
    }

    fn into_rows(self) -> Vec<Row> {
        let Self { plain, paired, more, labelled } = self;
        [plain, paired, more].into_iter().flatten().chain([labelled]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_adds_a_sample_to_each_row() {
        let times = |out, r#in| Times {
            out: Duration::from_secs(out),
            labelled: Duration::from_secs(out + 1),
            r#in: Duration::from_secs(r#in),
        };
        let mut rows = Rows::new();
        rows.add((times(10, 4), times(11, 3)));
        let samples: Vec<Vec<f64>> = rows.into_rows().into_iter().map(|row| row.samples).collect();
        let rounded: Vec<f64> = samples.concat().into_iter().map(f64::round).collect();
        assert_eq!(rounded, [10.0, 4.0, 11.0, 3.0, 10.0, -25.0, 12.0]);
    }
}
