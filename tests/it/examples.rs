//! Every file in `examples/` is a manifest that the API accepts, every file in `tests/refused/` one that it
//! refuses, with the message that the file's first line quotes.
//!
//! Nothing here needs an API server; `lab/tests/api/crd.rs` asks one about the same files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bps_agent::settings::PairArguments;
use bps_api::crd::crd;
use bps_api::{BackupPodSet, HAGroup, keys};
use bps_core::manifests::{AgentSource, Injection, check_agent, inject, set_injection};
use bps_testkit::example::{Example, example};
use bps_testkit::files::{files, refusal, sets};
use clap::Parser;
use serde_json::{Value, json};

/// Schema of the kind as the CRD carries it.
fn schema() -> Value {
    let mut crd = serde_json::to_value(crd()).expect("a CRD is JSON");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

/// Paths of fields in `value` that `schema` does not know: what `kubectl` calls unknown fields.
fn unknown_fields(value: &Value, schema: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, field)| {
                let path = format!("{path}.{name}");
                let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
                known.map_or_else(|| vec![path.clone()], |known| unknown_fields(field, known, &path))
            })
            .collect(),
        Value::Array(items) => {
            items.iter().flat_map(|item| unknown_fields(item, &schema["items"], path)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// Messages of all CEL rules in a schema.
fn rule_messages(schema: &Value) -> BTreeSet<String> {
    match schema {
        Value::Object(fields) => {
            let own = fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
            let own = own.map(|rule| rule["message"].as_str().expect("every rule has a message").to_owned());
            own.chain(fields.values().flat_map(rule_messages)).collect()
        }
        Value::Array(items) => items.iter().flat_map(rule_messages).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => BTreeSet::new(),
    }
}

/// The example of a set with active and standby Pods.
fn file_of_pairs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/active-standby/set.yaml")
}

/// Examples of sets.
fn examples() -> Vec<PathBuf> {
    [files("examples"), files("examples/models"), vec![file_of_pairs()]].concat()
}

#[test]
fn every_example_parses_and_has_only_known_fields() {
    let schema = schema();
    for file in examples() {
        for set in sets(&file) {
            let unknown = unknown_fields(&set["spec"], &schema["properties"]["spec"], "spec");
            assert_eq!(unknown, Vec::<String>::new(), "{}", file.display());
            serde_json::from_value::<BackupPodSet>(set)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }
}

#[test]
fn the_examples_of_paired_sets_can_run_the_agent() {
    let model = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/models").join(name);
    let shared = vec!["--replicate=/state".to_owned(), "--standby-for=2".to_owned()];
    let examples = [
        (file_of_pairs(), Vec::new()),
        (model("two-n.yaml"), Vec::new()),
        (model("n-plus-m-with-state.yaml"), shared),
    ];
    for (file, arguments) in examples {
        let set: BackupPodSet = serde_json::from_value(sets(&file).remove(0)).expect("a BackupPodSet");
        let injection = set_injection(&set, Some("agent")).expect("it is paired");
        assert_eq!(check_agent(&set, &injection), Ok(()), "{}", file.display());
        assert_eq!(injection.arguments, arguments);
        let template = json!({"metadata": {}, "spec": set.spec.template.spec});
        assert_starts(&inject(&template, &injection).expect("it can be injected"));
    }
}

#[test]
fn each_model_but_n_way_has_an_example_that_promises_it() {
    let model = |file: &PathBuf| sets(file)[0]["spec"]["redundancyModel"].to_string();
    let promised: BTreeSet<String> = files("examples/models").iter().map(model).collect();
    let words = schema()["properties"]["spec"]["properties"]["redundancyModel"]["enum"].take();
    let words = words.as_array().expect("an enum").iter().filter(|word| *word != "NWay");
    assert_eq!(promised, words.map(Value::to_string).collect());
}

#[test]
fn the_papers_example_means_what_the_paper_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/paper-fig3.yaml");
    let set: BackupPodSet = serde_json::from_value(sets(&file).remove(0)).expect("a BackupPodSet");
    let strategy = serde_json::to_value(&set.spec.strategy).expect("JSON");
    assert_eq!((set.spec.replicas, set.spec.hot_backups, set.spec.cold_backups), (2, 2, 2));
    assert_eq!(
        strategy.as_object().map(|keys| keys.values().filter(|choice| *choice == "random").count()),
        Some(7)
    );
    assert_eq!((set.spec.scheduler_name.as_deref(), set.spec.wakeup_timeout), (Some("default-scheduler"), 5));
}

#[test]
fn what_is_left_out_gets_the_documented_default() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/minimal.yaml");
    let set: BackupPodSet = serde_json::from_value(sets(&file).remove(0)).expect("a BackupPodSet");
    let mut found = serde_json::to_value(&set.spec).expect("JSON");
    found["template"].take();
    let expected = serde_json::json!({
        "replicas": 1, "hotBackups": 1, "coldBackups": 0, "strategy": {"init": "best"}, "wakeupTimeout": 5,
        "template": null, "minReadySeconds": 0, "progressDeadlineSeconds": 600, "failoverDelaySeconds": 0, "unreadyDeadlineSeconds": 300,
        "scaleInPolicy": "Delete", "paused": false, "revisionHistoryLimit": 10, "coldStart": {"imageGate": true}, "disruption": {"budget": "Keep"},
        "updateStrategy": {"type": "BackupFirst", "maxUnavailable": 1, "maxSurge": 1, "partition": 0},
    });
    assert_eq!(found, expected);
}

#[test]
fn every_rule_has_a_manifest_that_it_refuses() {
    let refused: Vec<_> = files("tests/refused").iter().map(|file| refusal(file)).collect();
    let quoted =
        |message: &String| refused.iter().any(|(kind, text)| kind == "rule" && message.contains(text));
    let untried: Vec<_> = rule_messages(&schema()).into_iter().filter(|message| !quoted(message)).collect();
    assert_eq!(untried, Vec::<String>::new());
}

#[test]
fn every_misspelled_field_is_unknown_to_the_schema() {
    let schema = schema();
    for file in files("tests/refused") {
        let refused = sets(&file).pop().expect("the last one is refused");
        let unknown = unknown_fields(&refused["spec"], &schema["properties"]["spec"], "spec");
        let (kind, message) = refusal(&file);
        let named = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect::<Vec<_>>();
        let expected = if kind == "strict" { vec![message] } else { Vec::new() };
        assert_eq!(named, expected, "{}", file.display());
    }
}

/// The command line of an agent in a Pod, without the command of the application.
#[derive(Parser)]
struct AgentProgram {
    #[command(flatten)]
    pair: PairArguments,
}

#[test]
fn every_example_of_a_pair_has_only_known_fields_and_takes_the_arguments_that_it_prints() {
    let generated = include_str!("../../crds/hagroups.yaml");
    let group_crd: Value = serde_saphyr::from_str(generated).expect("YAML");
    let schema = &group_crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    for file in files("examples/active-standby").into_iter().filter(|file| *file != file_of_pairs()) {
        let text = std::fs::read_to_string(&file).expect("a readable file");
        let Example { documents, arguments } = example(&text);
        let of_kind = |kind| documents.iter().filter(move |document| document["kind"] == kind);
        let groups: Vec<_> = of_kind("HAGroup").collect();
        let [group] = groups[..] else { panic!("{} has not one HAGroup", file.display()) };
        assert_eq!(unknown_fields(&group["spec"], schema, "spec"), Vec::<String>::new());
        serde_json::from_value::<HAGroup>(group.clone()).expect("an HAGroup");

        let name = group["metadata"]["name"].as_str().expect("a name");
        assert!(text.contains(&format!("--group={name} ")), "the comment names the group");
        let injection = Injection {
            group: name.into(),
            source: AgentSource::Copy { image: "agent".into() },
            container: None,
            image_command: None,
            arguments: arguments.clone(),
        };
        let workloads: Vec<_> = of_kind("StatefulSet").chain(of_kind("Deployment")).collect();
        assert!(!workloads.is_empty() && !arguments.is_empty());
        for workload in workloads {
            let template = &workload["spec"]["template"];
            assert_eq!(injection.warnings(template), [], "an example has everything");
            let template = inject(template, &injection).expect("it can be injected");
            assert_eq!(template["metadata"]["labels"][keys::LABEL_GROUP], name);
            assert_starts(&template);
        }
    }
}

/// The agent of a template starts with the arguments that it is given.
fn assert_starts(template: &Value) {
    let command = template["spec"]["containers"][0]["command"].as_array().expect("a command");
    let words = command.iter().filter_map(Value::as_str).take_while(|word| *word != "--").skip(1);
    let pod = ["--pod-uid=0a1b2c3d-0000-4000-8000-0123456789ab", "--pod=pod-0", "--pod-ip=192.0.2.1"];
    let program = AgentProgram::try_parse_from(words.chain(pod)).expect("the agent knows each argument");
    assert!(program.pair.settings().expect("they go together").is_some());
}
