//! Which workloads of a text get the agent.

use bps_core::manifests::{AgentSource, Injection};
use clap::Parser as _;

use super::changed;
use crate::arguments::{Arguments, Format, Verb};
use crate::workload::WorkloadChoice;

/// A Service, and three workloads that could run an agent.
fn shop() -> String {
    let template = "template:\n      metadata:\n        labels:\n          app: a\n      spec:\n        containers:\n        - name: a\n          command:\n          - /a\n";
    let workload = |kind: &str, name: &str| {
        format!("apiVersion: apps/v1\n  kind: {kind}\n  metadata:\n    name: {name}\n  spec:\n    {template}")
    };
    let listed = format!("apiVersion: v1\nkind: List\nitems:\n- {}", workload("Deployment", "web"));
    let set = workload("StatefulSet", "db").replace("\n  ", "\n");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: b\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: db\n";
    [service, set.as_str(), listed.as_str(), pod].join("---\n")
}

fn injected(words: &[&str]) -> Result<String, String> {
    let words = [&["kubectl-bps", "inject", "--group=shop"], words].concat();
    let Verb::Inject(wanted) = Arguments::try_parse_from(words).map_err(|error| error.to_string())?.verb
    else {
        panic!("it injects");
    };
    let source = AgentSource::Copy { image: "bps-agent:1".into() };
    let injection = Injection {
        group: "shop".into(),
        source,
        container: None,
        image_command: None,
        arguments: Vec::new(),
    };
    changed(&shop(), Some(&injection), &wanted.workloads, Format::Yaml).map_err(|error| error.chain())
}

#[test]
fn several_workloads_do_not_become_peers_unless_somebody_says_so() {
    let expected = "there are several workloads, and all Pods of a group are peers: say which get the agent, by one or more \
        of --workload=statefulset/db --workload=deployment/web --workload=pod/web";
    assert_eq!(injected(&[]), Err(expected.to_owned()));
}

#[test]
fn only_what_was_chosen_gets_the_agent() {
    let before = shop();
    let documents = |text: &str| text.split("---\n").map(str::to_owned).collect::<Vec<_>>();
    let changed = |words: &[&str]| -> Vec<bool> {
        let after = injected(words).unwrap();
        documents(&before).iter().zip(documents(&after)).map(|(before, after)| *before != after).collect()
    };
    assert_eq!(changed(&["--workload=sts/db"]), [false, true, false, false]);
    assert_eq!(changed(&["--workload=Deployment/web"]), [false, false, true, false]);
    assert_eq!(changed(&["--workload=deploy/web", "--workload=STATEFULSET/db"]), [false, true, true, false]);
    // What cannot run it stands in nobody's way.
    assert!(injected(&["--workload=po/web"]).is_err_and(|error| error.starts_with("Pod web: ")));
}

#[test]
fn a_choice_that_is_not_there_is_refused_with_what_is() {
    for other in ["sts/web", "job/web", "statefulsets.apps.kruise.io/db"] {
        let expected =
            format!("the manifests have no {other}; they have statefulset/db, deployment/web, pod/web");
        let choice = format!("--workload={other}");
        assert_eq!(injected(&["--workload=sts/db", &choice]), Err(expected));
    }
    for text in ["web", "sts/", "/web"] {
        let error = text.parse::<WorkloadChoice>().expect_err("it is no workload");
        assert!(
            error.starts_with("write KIND/NAME such as sts/web, or RESOURCE.GROUP/NAME such as"),
            "{error}"
        );
    }
}

#[test]
fn an_agent_is_taken_out_of_all_or_of_what_was_chosen() {
    let both = injected(&["--workload=sts/db", "--workload=deploy/web"]).unwrap();
    let without = |chosen: &[WorkloadChoice]| changed(&both, None, chosen, Format::Yaml).unwrap();
    assert_eq!(without(&[]), shop());
    assert_eq!(without(&["sts/db".parse().unwrap()]), injected(&["--workload=deploy/web"]).unwrap());
}

/// Workloads of other API groups, two of them of the same kind and name but for the group.
fn foreign() -> String {
    let shop = shop();
    let template = &shop[shop.find("spec:\n  template").expect("a StatefulSet")..];
    let template = &template[..template.find("---").expect("more objects")];
    let workload = |version: &str, kind: &str| {
        format!("apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: db\n{template}")
    };
    let versions = [
        ("argoproj.io/v1alpha1", "Rollout"),
        ("apps.kruise.io/v1beta1", "StatefulSet"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
        ("backup.example.com/v1alpha1", "BackupPodSet"),
    ];
    versions.map(|(version, kind)| workload(version, kind)).join("---\n")
}

/// Which documents of a text get an agent.
fn which_change(text: &str, choices: &[&str]) -> Result<Vec<bool>, String> {
    let source = AgentSource::Copy { image: "bps-agent:1".into() };
    let injection =
        Injection { group: "shop".into(), source, container: None, image_command: None, arguments: vec![] };
    let chosen: Vec<WorkloadChoice> = choices.iter().map(|choice| choice.parse().unwrap()).collect();
    let after = changed(text, Some(&injection), &chosen, Format::Yaml).map_err(|error| error.chain())?;
    assert_eq!(changed(&after, None, &[], Format::Yaml).unwrap(), text);
    Ok(text.split("---\n").zip(after.split("---\n")).map(|(before, after)| before != after).collect())
}

#[test]
fn any_kind_with_a_pod_template_is_a_workload_by_its_resource_and_group() {
    let text = foreign();
    let table = [
        ("rollouts.argoproj.io/db", [true, false, false, false, false]),
        ("Rollout/db", [true, false, false, false, false]),
        ("statefulsets.apps.kruise.io/db", [false, true, false, false, false]),
        ("StatefulSet.apps.kruise.io/db", [false, true, false, false, false]),
        ("statefulset/db", [false, false, true, false, false]),
        ("sts.apps/db", [false, false, true, false, false]),
    ];
    for (choice, expected) in table {
        assert_eq!(which_change(&text, &[choice]), Ok(expected.to_vec()), "{choice}");
    }
    assert_eq!(
        which_change(&text, &[]),
        Err("there are several workloads, and all Pods of a group are peers: say which get the agent, by one or more \
             of --workload=rollouts.argoproj.io/db --workload=statefulsets.apps.kruise.io/db --workload=statefulset/db"
            .to_owned())
    );
    let job = text.split("---\n").nth(3).expect("a Job");
    let rollout = text.split("---\n").next().expect("a Rollout");
    assert_eq!(which_change(&[rollout, job].join("---\n"), &[]), Ok(vec![true, false]), "it is the only one");
}

#[test]
fn a_kind_in_which_a_pair_makes_no_sense_is_refused_with_the_reason() {
    let text = foreign();
    let ends = "its Pods run to their end, and a pair needs Pods that stay; choose another workload";
    let expected = format!("Job db takes no agent this way: {ends}");
    assert_eq!(which_change(&text, &["job/db"]), Err(expected));
    let operator = "write spec.activeStandby into it, and the operator puts the agent into its Pods";
    let expected = format!("BackupPodSet db takes no agent this way: {operator}");
    assert_eq!(which_change(&text, &["backuppodset/db"]), Err(expected));
    let job = text.split("---\n").nth(3).expect("a Job");
    let refused = which_change(job, &[]).expect_err("there is no other one");
    assert!(refused.ends_with(&format!("found Job ({ends})")), "{refused}");
}

#[test]
fn resources_are_named_as_kubectl_guesses_them() {
    let named = |kind: &str, resource: &str| {
        let text = foreign().replace("kind: Rollout", &format!("kind: {kind}"));
        which_change(&text, &[&format!("{resource}.argoproj.io/db")]).map(|changed| changed[0])
    };
    for (kind, resource) in [("CloneSet", "clonesets"), ("Redis", "redises"), ("Proxy", "proxies")] {
        assert_eq!(named(kind, resource), Ok(true));
    }
}
