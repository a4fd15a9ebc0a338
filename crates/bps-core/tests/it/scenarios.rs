//! Every file in `tests/scenarios` is one situation with the whole plan that must come of it.

use std::fs;
use std::path::{Path, PathBuf};

use bps_api::service::IpFamily;
use bps_core::model::{Action, Endpoint, Hold, Plan, Role, Snapshot, Step};
use bps_core::plan::{check, plan};

/// Fewer files than this means that the folder was not found or lost files.
const LEAST_SCENARIOS: usize = 35;

#[test]
fn every_scenario_has_the_plan_that_its_file_says() {
    let files = scenario_files("tests/scenarios");
    assert!(files.len() >= LEAST_SCENARIOS, "only {} scenario files", files.len());
    let failures: Vec<String> = files.iter().filter_map(|file| failure(file)).collect();
    assert!(failures.is_empty(), "{} of {} failed\n\n{}", failures.len(), files.len(), failures.join("\n"));
}

#[test]
fn a_field_that_does_not_exist_is_refused_by_name() {
    let error =
        crate::situation::read("title: t\nwhy: w\nset: {hotbackups: 1}\n").expect_err("a wrong field");
    assert!(error.contains("hotbackups") && error.contains("hotBackups"), "{error}");
}

#[test]
fn a_word_that_does_not_exist_is_refused_with_the_pod_it_stands_at() {
    let scenario =
        crate::situation::read("title: t\nwhy: w\npods: {a: 'primary, redy 3s'}\n").expect("valid YAML");
    let error = scenario.snapshot().expect_err("a wrong word");
    assert_eq!(error, "pod a: `redy 3s` is not understood; see tests/scenarios/README.md");
}

#[test]
fn a_wrong_expectation_is_shown_as_a_difference() {
    let text = "title: t\nwhy: w\nset: {replicas: 1}\nsteps: ['create hot: ScaledOut']\n";
    let scenario = crate::situation::read(text).expect("valid");
    assert_eq!(
        difference(&scenario, &scenario.snapshot().expect("valid")),
        "  - expected  step create hot: ScaledOut\n  + planned   step create primary: PodMissing\n"
    );
}

/// The scenario files of a folder of the project, sorted.
pub(crate) fn scenario_files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let entries = fs::read_dir(folder).expect("the folder of scenarios exists");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn failure(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).expect("readable");
    let name = file.file_name().expect("a file").display();
    let scenario = match crate::situation::read(&text) {
        Ok(scenario) => scenario,
        Err(error) => return Some(format!("{name}: {error}")),
    };
    let snapshot = match scenario.snapshot() {
        Ok(snapshot) => snapshot,
        Err(error) => return Some(format!("{name}: {error}")),
    };
    let difference = difference(&scenario, &snapshot);
    let (title, why) = (&scenario.title, scenario.why.trim());
    (!difference.is_empty()).then(|| format!("{name}: {title}\n  why: {why}\n{difference}"))
}

/// Lines that only one of the two plans has; empty if they are the same. The order of steps has no meaning.
fn difference(scenario: &crate::situation::Scenario, snapshot: &Snapshot) -> String {
    let planned = plan(snapshot);
    let violations = check(snapshot, &planned);
    let mut expected: Vec<String> = scenario.steps.iter().map(|line| format!("step {line}")).collect();
    expected.extend(scenario.holds.iter().map(|line| format!("hold {line}")));
    let mut actual = lines(&planned);
    expected.retain(|line| {
        let same = actual.iter().position(|other| other == line);
        same.map(|index| actual.remove(index)).is_none()
    });
    let missing = expected.iter().map(|line| format!("  - expected  {line}\n"));
    let added = actual.iter().map(|line| format!("  + planned   {line}\n"));
    let broken = violations.iter().map(|violation| format!("  ! breaks    {violation}\n"));
    missing.chain(added).chain(broken).collect()
}

fn lines(plan: &Plan) -> Vec<String> {
    let steps = plan.steps.iter().map(|step| format!("step {}", step_line(step)));
    steps.chain(plan.holds.iter().map(|hold| format!("hold {}", hold_line(hold)))).collect()
}

fn step_line(step: &Step) -> String {
    let action = match &step.action {
        Action::Create { name: _, role, slot: _, subset: None } => format!("create {role}"),
        Action::Create { name: _, role, slot: _, subset: Some(subset) } => {
            format!("create {role} in {subset}")
        }
        Action::Convert { pod, from: _, to: Role::Primary } => format!("promote {}", pod.name),
        Action::Convert { pod, from: Role::Cold, to: Role::Hot } => format!("promote {} to hot", pod.name),
        Action::Convert { pod, from: Role::Primary, to: Role::Hot } => format!("demote {}", pod.name),
        Action::Convert { pod, from, to } => format!("convert {} from {from} to {to}", pod.name),
        Action::Wake { pod, address: _ } => format!("wake {}", pod.name),
        Action::Delete { pod, role: _, is_ready: _ } => format!("delete {}", pod.name),
        Action::Adopt { pod } => format!("adopt {}", pod.name),
        Action::Relabel { pod, role: _ } => format!("relabel {}", pod.name),
        Action::PublishService => "publish service".into(),
        Action::PublishBudget => "publish budget".into(),
        Action::PublishGroup => "publish group".into(),
        Action::ClearAddresses => "clear addresses".into(),
        Action::Retire { object } => format!("retire {}", object.name),
        Action::Expose { family, endpoints } => {
            let names: Vec<String> = endpoints.iter().map(endpoint_word).collect();
            let family = if *family == IpFamily::IPv4 { "" } else { "IPv6 " };
            format!(
                "expose {family}{}",
                if names.is_empty() { "nothing".to_owned() } else { names.join(" ") }
            )
        }
    };
    format!("{action}: {}", step.reason)
}

fn endpoint_word(endpoint: &Endpoint) -> String {
    let mark = if endpoint.is_terminating { " (terminating)" } else { "" };
    format!("{}{mark}", endpoint.pod)
}

fn hold_line(hold: &Hold) -> String {
    let pod = hold.pod.as_ref().map(|pod| {
        // The name of a Pod that does not exist yet is a hash; what matters is that there is one to come.
        if pod.0.starts_with("web-") { " new pod".into() } else { format!(" {pod}") }
    });
    let until =
        hold.until.map(|until| format!(" until {}s", until.duration_since(crate::given::now()).as_secs()));
    format!("{}{}{}", hold.reason, pod.unwrap_or_default(), until.unwrap_or_default())
}
