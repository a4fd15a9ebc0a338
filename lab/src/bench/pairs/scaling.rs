//! From 2 Pods to 32 and back: Deployments with agents, which are copied, in a volume that is their image, or in the
//! application's image, beside the same one without, in turn.

use std::sync::Arc;
use std::time::Duration;

use bps_api::keys;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::time::{Instant, sleep};

use super::Course;
use super::report::{Report, Row, Unit, percent_more};
use super::site::Site;
use super::target::Target;
use super::trial::QUIET;
use super::workload::Kind;
use crate::bench::{Error, NAMESPACE};
use crate::hollow::is_ready;

/// First words of the rows.
const WHAT: &str = "scaling:";
/// Pods before and after.
const FEW: usize = 2;
/// Pods between.
const MANY: usize = 32;
/// One of how many rounds is made: one takes a minute and a half, in which four workloads come and go.
const ONE_OF: u16 = 4;
/// How much more time agents should take, out and in, if no container has to start for them.
const TARGET: Target = Target::Median(2.0);
/// How much more the thesis' controller took, out and in.
const ELSEWHERE: [&str; 2] = ["thesis +7.5-10.5 %", "thesis +27-31 %"];

/// A workload with agents.
struct Variant {
    kind: Kind,
    name: &'static str,
    /// What its agents are called in rows.
    agents: &'static str,
    target: Target,
}

const VARIANTS: [Variant; 3] = [
    Variant {
        kind: Kind::PairsOfDeployment,
        name: "many-pairs",
        agents: "copied agents",
        target: Target::Unsaid,
    },
    Variant { kind: Kind::PairsMounted, name: "many-mounted", agents: "mounted agents", target: TARGET },
    Variant {
        kind: Kind::PairsBuiltIn,
        name: "many-built-in",
        agents: "agents in the image",
        target: TARGET,
    },
];

/// Times of one workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Times {
    /// Until all were ready.
    out: Duration,
    /// Until all had a state, of those with agents.
    labelled: Duration,
    /// Until the others were gone.
    r#in: Duration,
}

/// The rows of a workload with agents.
struct Paired {
    /// Out and in.
    took: [Row; 2],
    /// Out and in, how much more than without agents.
    more: [Row; 2],
    labelled: Row,
}

/// All rows.
struct Rows {
    /// Out and in, without agents.
    plain: [Row; 2],
    /// In the order of [`VARIANTS`].
    paired: [Paired; 3],
}

/// Measures, if it is wanted: two rows without agents, and five for each way in which they come.
///
/// # Errors
/// `Request` or `Find` if a workload does not come up or stays.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    if !course.options.wants(WHAT) {
        return Ok(());
    }
    let build = async |kind, name| -> Result<Site, Error> {
        Site::build(&course.bench.client, NAMESPACE, course.blueprint(kind, name, FEW)).await
    };
    let [copied, mounted, built_in] = VARIANTS;
    let sites = [
        build(Kind::Deployment, "many").await?,
        build(copied.kind, copied.name).await?,
        build(mounted.kind, mounted.name).await?,
        build(built_in.kind, built_in.name).await?,
    ];
    let mut rows = Rows::new();
    course
        .repeat((WHAT, course.options.one_of(ONE_OF)), &mut report.failures, async |number| {
            let mut times = [Times::default(); 4];
            for turn in 0..sites.len() {
                // Whatever one of them leaves behind for the next, it is not always the same one.
                let index = (turn + usize::from(number)) % sites.len();
                times[index] = breathe(&sites[index]).await?;
            }
            rows.add(times);
            Ok(())
        })
        .await;
    course.keep(report, rows.into_rows());
    for site in sites {
        site.remove().await?;
    }
    Ok(())
}

/// Out and in once.
async fn breathe(site: &Site) -> Result<Times, Error> {
    site.settled().await?;
    sleep(QUIET).await;
    let began = Instant::now();
    site.scale(MANY).await?;
    let are_ready = |pods: &[Arc<Pod>]| pods.iter().filter(|pod| is_ready(pod)).count() == MANY;
    site.pods_are("32 ready Pods", are_ready).await?;
    let out = began.elapsed();
    if site.kind().has_agents() {
        let have_state = |pods: &[Arc<Pod>]| {
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

/// Two rows, of the way out and of the way in.
fn out_and_in(what: [String; 2], like: &Row) -> [Row; 2] {
    what.map(|what| Row { what, ..like.clone() })
}

impl Paired {
    fn new(variant: &Variant, plain: &[Row; 2]) -> Self {
        let &Variant { kind: _, name: _, agents, target } = variant;
        let seconds = Row { unit: Unit::Seconds, ..Row::default() };
        let took = [format!("{WHAT} 2 -> 32 ready, {agents}"), format!("{WHAT} 32 -> 2, {agents}")];
        let mut took = out_and_in(took, &seconds);
        for (row, beside) in took.iter_mut().zip(plain) {
            row.beside.clone_from(&beside.what);
        }
        let more =
            [format!("{WHAT} 2 -> 32, {agents} take more"), format!("{WHAT} 32 -> 2, {agents} take more")];
        let mut more = out_and_in(more, &Row { unit: Unit::Percent, target, ..Row::default() });
        for (row, elsewhere) in more.iter_mut().zip(ELSEWHERE) {
            row.elsewhere = elsewhere;
        }
        let labelled = Row { what: format!("{WHAT} 2 -> 32, {agents}, every Pod has a state"), ..seconds };
        Self { took, more, labelled }
    }

    fn add(&mut self, plain: Times, paired: Times) {
        let times = [(plain.out, paired.out), (plain.r#in, paired.r#in)];
        for (index, (plain, paired)) in times.into_iter().enumerate() {
            self.took[index].took(paired);
            self.more[index].samples.push(percent_more(paired, plain));
        }
        self.labelled.took(paired.labelled);
    }

    fn into_rows(self) -> impl Iterator<Item = Row> {
        let Self { took, more, labelled } = self;
        [took, more].into_iter().flatten().chain([labelled])
    }
}

impl Rows {
    fn new() -> Self {
        let plain = ["2 -> 32 ready, plain Deployment", "32 -> 2, plain Deployment"];
        let seconds = Row { unit: Unit::Seconds, ..Row::default() };
        let plain = out_and_in(plain.map(|what| format!("{WHAT} {what}")), &seconds);
        let paired = VARIANTS.map(|variant| Paired::new(&variant, &plain));
        Self { plain, paired }
    }

    fn add(&mut self, [plain, paired @ ..]: [Times; 4]) {
        for (row, time) in self.plain.iter_mut().zip([plain.out, plain.r#in]) {
            row.took(time);
        }
        for (rows, times) in self.paired.iter_mut().zip(paired) {
            rows.add(plain, times);
        }
    }

    fn into_rows(self) -> Vec<Row> {
        let Self { plain, paired } = self;
        plain.into_iter().chain(paired.into_iter().flat_map(Paired::into_rows)).collect()
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
        rows.add([times(10, 4), times(16, 5), times(12, 4), times(11, 3)]);
        let samples: Vec<Vec<f64>> = rows.into_rows().into_iter().map(|row| row.samples).collect();
        let rounded: Vec<f64> = samples.concat().into_iter().map(f64::round).collect();
        let plain = [10.0, 4.0];
        let copied = [16.0, 5.0, 60.0, 25.0, 17.0];
        let mounted = [12.0, 4.0, 20.0, 0.0, 13.0];
        let built_in = [11.0, 3.0, 10.0, -25.0, 12.0];
        assert_eq!(rounded, [&plain[..], &copied, &mounted, &built_in].concat());
    }

    #[test]
    fn the_target_is_that_of_agents_that_start_no_container() {
        let rows = Rows::new().into_rows();
        let with_target = rows.iter().filter(|row| row.target != Target::Unsaid).map(|row| row.what.as_str());
        let expected = [
            "scaling: 2 -> 32, mounted agents take more",
            "scaling: 32 -> 2, mounted agents take more",
            "scaling: 2 -> 32, agents in the image take more",
            "scaling: 32 -> 2, agents in the image take more",
        ];
        assert_eq!(with_target.collect::<Vec<_>>(), expected);
    }
}
