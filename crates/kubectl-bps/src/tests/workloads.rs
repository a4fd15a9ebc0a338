//! Which workloads of a text get the agent.

use bps_core::manifests::{AgentSource, Injection};
use clap::Parser as _;

use crate::arguments::{Arguments, Format, Verb};
use crate::inject::changed;
use crate::workload::Workload;

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
    let expected = "the manifests have no StatefulSet web; they have statefulset/db, deployment/web, pod/web";
    assert_eq!(injected(&["--workload=sts/db", "--workload=sts/web"]), Err(expected.to_owned()));
    for text in ["web", "sts/", "job/web"] {
        let error = text.parse::<Workload>().expect_err("it is no workload");
        assert!(error.starts_with("write KIND/NAME, such as sts/web; KIND is StatefulSet,"), "{error}");
    }
}

#[test]
fn an_agent_is_taken_out_of_all_or_of_what_was_chosen() {
    let both = injected(&["--workload=sts/db", "--workload=deploy/web"]).unwrap();
    let without = |chosen: &[Workload]| changed(&both, None, chosen, Format::Yaml).unwrap();
    assert_eq!(without(&[]), shop());
    assert_eq!(without(&["sts/db".parse().unwrap()]), injected(&["--workload=deploy/web"]).unwrap());
}
