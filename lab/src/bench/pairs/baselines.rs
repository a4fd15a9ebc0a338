//! Faults of what pairs are compared with: a Deployment of two that both serve, and two Pods between which a label moves.

use super::faults::Fault;
use super::report::Report;
use super::site::Site;
use super::trial::Trial;
use super::workload::Kind;
use super::{Course, switcher};
use crate::bench::{Error, NAMESPACE};

/// What can be compared: Pods without agents have no order to hand over, and no Lease.
const FAULTS: [Fault; 3] = [Fault::ApplicationKilled, Fault::SandboxKilled, Fault::PodDeleted];
/// First words of the rows.
pub(super) const DEPLOYMENT: &str = "Deployment of 2";
/// First words of the rows.
pub(super) const LABEL_SWITCH: &str = "label switch";

/// Measures what is wanted.
///
/// # Errors
/// `Request` or `Find` if a site does not come up or stays.
pub async fn run(course: &Course<'_>, report: &mut Report) -> Result<(), Error> {
    compare(course, (Kind::Deployment, DEPLOYMENT, "plain"), report).await?;
    let _switcher = switcher::start(&course.bench.client, NAMESPACE, "switch");
    compare(course, (Kind::LabelSwitch, LABEL_SWITCH, "switch"), report).await
}

async fn compare(
    course: &Course<'_>,
    (kind, title, name): (Kind, &'static str, &'static str),
    report: &mut Report,
) -> Result<(), Error> {
    if !FAULTS.iter().any(|fault| course.options.wants(&format!("{title}: {}", fault.title()))) {
        return Ok(());
    }
    let site = Site::build(&course.bench.client, NAMESPACE, course.blueprint(kind, name, 2)).await?;
    let trial = Trial { site: &site, title };
    for fault in FAULTS {
        trial.measure(course, (fault, course.options.rounds), report).await;
    }
    site.remove().await
}
