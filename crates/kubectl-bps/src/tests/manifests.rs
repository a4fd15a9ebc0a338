//! The agent goes into manifests and out of them. `UPDATE=1` rewrites the file with the agent.

use bps_core::manifests::{AgentSource, Injection};
use clap::Parser as _;

use super::changed;
use crate::Error;
use crate::arguments::{Arguments, Format, Verb};
use crate::inject::{self, Changed, run};

const BEFORE: &str = include_str!("../../../../tests/golden/inject-before.yaml");
const AFTER: &str = include_str!("../../../../tests/golden/inject-after.yaml");

fn injection() -> Injection {
    from(AgentSource::Copy { image: "registry/bps-agent:9".to_owned() })
}

fn from(source: AgentSource) -> Injection {
    Injection { group: "web".into(), source, container: None, image_command: None, arguments: Vec::new() }
}

fn injected(text: &str) -> Result<String, Error> {
    changed(text, Some(&injection()), &[], Format::Yaml)
}

fn refused(text: &str) -> String {
    injected(text).expect_err("it is refused").chain()
}

#[test]
fn workloads_get_the_agent_and_everything_else_keeps_its_form() {
    let after = injected(BEFORE).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/inject-after.yaml");
        std::fs::write(path, &after).expect("write the file");
        return;
    }
    assert_eq!(after, AFTER);
}

#[test]
fn putting_it_in_twice_is_the_same_as_once() {
    assert_eq!(injected(AFTER).unwrap(), AFTER);
}

#[test]
fn taking_it_out_leaves_what_was_there_before() {
    assert_eq!(changed(AFTER, None, &[], Format::Yaml).unwrap(), BEFORE);
    assert_eq!(changed(BEFORE, None, &[], Format::Yaml).unwrap(), BEFORE);
}

#[test]
fn another_way_for_the_agent_takes_the_place_of_the_first_and_goes_without_a_trace() {
    let others = [
        AgentSource::ImageVolume { image: "registry/bps-agent:9".to_owned() },
        AgentSource::Image { path: "/opt/bps-agent".to_owned() },
    ];
    for other in others {
        let other = from(other);
        let after = changed(AFTER, Some(&other), &[], Format::Yaml).unwrap();
        assert_eq!(after, changed(BEFORE, Some(&other), &[], Format::Yaml).unwrap());
        assert!(!after.contains("initContainers"), "{after}");
        assert_eq!(injected(&after).unwrap(), AFTER);
        assert_eq!(changed(&after, None, &[], Format::Yaml).unwrap(), BEFORE);
    }
}

#[test]
fn json_is_read_and_written_and_several_documents_become_a_list() {
    let json = changed(BEFORE, Some(&injection()), &[], Format::Json).unwrap();
    let list: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((list["kind"].as_str(), list["items"].as_array().map(Vec::len)), (Some("List"), Some(2)));
    assert_eq!(changed(&json, Some(&injection()), &[], Format::Json).unwrap(), json);
    let yaml = injected(&json).unwrap();
    assert!(yaml.starts_with("apiVersion: v1\nkind: List\n"), "{yaml}");
}

#[test]
fn a_bare_pod_is_its_own_template() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: one\nspec:\n  containers:\n  - name: a\n    command: [/a]\n";
    let after = injected(pod).unwrap();
    assert!(after.contains("kind: Pod\nmetadata:\n  name: one\n"), "{after}");
    assert!(after.contains("backup.example.com/group: web"), "{after}");
}

#[test]
fn numbers_and_booleans_are_understood_as_kubectl_does() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {a: 'on', b: '0644'}}, \
        spec: {x: 0644, y: on, z: 1.5, containers: []}}";
    let text = changed(pod, None, &[], Format::Json).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({"x": 420, "y": true, "z": 1.5, "containers": []});
    assert_eq!(value["spec"], expected);
    assert_eq!(value["metadata"]["annotations"], serde_json::json!({"a": "on", "b": "0644"}));
}

#[test]
fn what_cannot_run_an_agent_is_refused_with_what_to_write_instead() {
    let nothing = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n---\n";
    assert_eq!(
        refused(nothing),
        "no object that can run an agent: give a StatefulSet, Deployment, DaemonSet, ReplicaSet, Pod or another kind \
         with spec.template.spec.containers; found Secret"
    );
    assert!(refused("").ends_with("found nothing"));
    let set = "apiVersion: backup.example.com/v1alpha1\nkind: BackupPodSet\nmetadata: {name: a}\n";
    assert!(refused(set).starts_with("BackupPodSet a takes no agent"), "{}", refused(set));
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: b}]}\n";
    assert_eq!(
        refused(pod),
        "Pod a: container \"b\" has no command, and the agent has to start the program of its image: give \
         --command='[\"PROGRAM\",\"ARGUMENT\"]', or write it as command of the container, also in a BackupPodSet; it \
         is the ENTRYPOINT followed by the CMD: crane config IMAGE | jq -c '[.config.Entrypoint, .config.Cmd] | add'"
    );
    let hooked = |hook: &str| {
        let container =
            format!("{{name: b, command: [/b], lifecycle: {{{hook}: {{exec: {{command: [/c]}}}}}}}}");
        refused(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{container}]}}\n"
        ))
    };
    assert_eq!(
        hooked("postStart"),
        "Pod a: container \"b\" has lifecycle.postStart, which has to end before the agent starts the application: \
         remove it, and give the agent a hook: --agent-argument='--on-active=COMMAND', in a BackupPodSet \
         activeStandby.hooks.onActive"
    );
    assert!(hooked("preStop").contains("--agent-argument='--on-fence=COMMAND'"), "{}", hooked("preStop"));
    let port = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n\
        spec: {containers: [{name: b, command: [/b], ports: [{containerPort: 20003}]}]}\n";
    assert_eq!(
        refused(port),
        "Pod a: container \"b\" has containerPort 20003, but the agent listens at 20001, 20002, 20003: let it listen at \
         another port"
    );
    let bare = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n";
    assert_eq!(refused(bare), "Deployment a has no spec.template: write one");
    assert!(refused("a: [").starts_with("understand the manifests"), "{}", refused("a: ["));
    assert!(refused("{a: 1, a: 2}").starts_with("understand the manifests"));
}

#[test]
fn a_workload_that_selects_by_a_label_of_the_operator_is_refused_and_loses_its_agent_all_the_same() {
    let selecting =
        |text: &str| text.replace("    serviceName: web\n", "    selector: {matchLabels: {peer: web}}\n");
    assert_eq!(
        refused(&selecting(BEFORE)),
        "StatefulSet web: spec.selector names the label \"peer\", which the operator writes: select by another key, \
         for example app"
    );
    let after = changed(&selecting(AFTER), None, &[], Format::Yaml).unwrap();
    assert_eq!(after, changed(&selecting(BEFORE), None, &[], Format::Yaml).unwrap());
}

/// The manifests without an agent after a run of this command line.
fn ran(words: &[&str]) -> Result<String, String> {
    let file = concat!("--file=", env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/inject-before.yaml");
    let words = [&["kubectl-bps", "inject", "--group=web", file], words].concat();
    let Verb::Inject(wanted) = Arguments::try_parse_from(words).map_err(|error| error.to_string())?.verb
    else {
        panic!("it injects");
    };
    run(&wanted).map_err(|error| error.chain())
}

#[test]
fn the_command_of_an_image_reaches_the_container_that_has_none() {
    let refused = ran(&["--command=/web"]).expect_err("it has one");
    assert_eq!(
        refused,
        "StatefulSet web: container \"web\" has a command, and --command is for a container without one: leave out \
         --command, or remove the command of the container"
    );
    let before = BEFORE.replace("          command:\n          - /web\n", "");
    assert_ne!(before, BEFORE);
    let injection = Injection { image_command: Some(vec!["/web".to_owned()]), ..injection() };
    let after = changed(&before, Some(&injection), &[], Format::Yaml).unwrap();
    assert!(after.contains("          - --\n          - /web\n"), "{after}");
    assert_eq!(changed(&after, None, &[], Format::Yaml).unwrap(), before);
}

#[test]
fn each_warning_is_a_line_with_the_workload_that_it_is_about() {
    let warnings = |text: &str, injection: Option<&Injection>| {
        let Changed { warnings, .. } = inject::changed(text, injection, &[], Format::Yaml).unwrap();
        warnings
    };
    assert_eq!(warnings(BEFORE, Some(&injection())), [""; 0]);
    let port = "            containerPort: 80\n";
    let udp = BEFORE.replace(port, "            containerPort: 53\n            protocol: UDP\n");
    let replicas = "    replicas: 2\n";
    let at_once = "    updateStrategy: {rollingUpdate: {maxUnavailable: 2}}\n";
    let udp = udp.replacen(replicas, &[replicas, at_once].concat(), 1);
    let arguments = vec!["--replicate=/state".to_owned()];
    let lines = warnings(&udp, Some(&Injection { arguments, ..injection() }));
    let titles: Vec<_> = lines.iter().map(|line| line.split(", ").next().unwrap_or_default()).collect();
    let expected = [
        "warning: StatefulSet web: updateStrategy.rollingUpdate.maxUnavailable: 2 lets a rollout delete both Pods of a pair at once",
        "warning: StatefulSet web: the agent relays TCP only",
        "warning: StatefulSet web: no volumeMount covers /state",
    ];
    assert_eq!(titles, expected);
    assert_eq!(warnings(&udp, None), [""; 0], "without an agent there is nothing to warn of");
}

#[test]
fn agents_are_told_the_order_of_a_planned_handover_unless_both_applications_cannot_run() {
    let overlap = "--handover=make-before-break";
    assert!(ran(&[overlap]).unwrap().contains("- --handover=make-before-break"));
    assert!(!ran(&[]).unwrap().contains("--handover"));
    let refused = ran(&[overlap, "--agent-argument=--run-in-standby"]).expect_err("it runs in both roles");
    assert!(refused.ends_with("leave it out, or --run-in-standby"), "{refused}");
    let refused = ran(&[overlap, "--replicate=/state"]).expect_err("it keeps state");
    assert!(refused.contains("cannot be used with"), "{refused}");
}

#[test]
fn an_agent_is_not_taken_out_of_a_container_that_was_renamed() {
    let renamed = AFTER.replace("- name: web\n          image", "- name: shop\n          image");
    assert_ne!(renamed, AFTER);
    let error = changed(&renamed, None, &[], Format::Yaml).expect_err("its command would be lost").chain();
    assert!(error.starts_with("StatefulSet web: ") && error.contains("\"shop\""), "{error}");
}
