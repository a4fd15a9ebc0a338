//! The agent goes into a template and out of it without a trace.

use bps_api::keys;
use serde_json::{Value, json};

use crate::manifests::{AgentSource, InjectError, Injection, inject, uninject};

pub(super) fn injection() -> Injection {
    let arguments = vec!["--on-active=/hook".to_owned()];
    let source = AgentSource::Copy { image: "bps-agent:1".into() };
    Injection { group: "web".into(), source, container: None, image_command: None, arguments }
}

pub(super) fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{
            "name": "web",
            "image": "web:1",
            "command": ["/web", "serve"],
            "args": ["--port=80"],
            "ports": [
                {"containerPort": 80},
                {"containerPort": 443, "protocol": "TCP"},
                {"containerPort": 443, "protocol": "UDP"},
            ],
            "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 80}},
        }]},
    })
}

#[test]
fn the_agent_starts_the_application_with_its_own_arguments() {
    let injected = inject(&template(), &injection()).unwrap();
    let container = &injected["spec"]["containers"][0];
    let command: Vec<&str> =
        container["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let expected = [
        "/bps-ha/bps-agent",
        "run",
        "--group=web",
        "--key-file=/bps-ha-keys/keys",
        "--api-dir=/bps-ha-api",
        "--peer-bind=0.0.0.0:20001",
        "--health-bind=0.0.0.0:20002",
        "--state-dir=/bps-ha",
        "--state-file=/bps-ha/state.json",
        "--relay-port=80",
        "--relay-port=443",
        "--live-http=80/",
        "--live-period=10",
        "--live-timeout=1",
        "--live-failures=3",
        "--live-grace=0",
        "--on-active=/hook",
        "--",
        "/web",
        "serve",
    ];
    assert_eq!(command, expected);
    assert_eq!(container["args"], json!(["--port=80"]));
    let port = keys::AGENT_HEALTH_PORT;
    let readiness = json!({"httpGet": {"path": "/readyz", "port": port}, "periodSeconds": 1});
    assert_eq!(container["readinessProbe"], readiness);
    let names: Vec<_> =
        container["env"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(names, ["POD_NAME", "POD_UID", "POD_NAMESPACE", "POD_IP", "HA_AGENT"]);
    assert_eq!(injected["spec"]["initContainers"][0]["image"], "bps-agent:1");
    assert_eq!(injected["spec"]["volumes"][1]["secret"]["secretName"], "web-ha-keys");
    assert_eq!(injected["metadata"]["labels"], json!({"app": "web", (keys::LABEL_GROUP): "web"}));
}

#[test]
fn the_ports_of_an_application_that_runs_in_both_roles_are_not_relayed() {
    let arguments = vec!["--on-active=/hook".to_owned(), "--run-in-standby".to_owned()];
    let injected = inject(&template(), &Injection { arguments, ..injection() }).unwrap();
    assert!(!injected.to_string().contains("--relay-port"), "{injected}");
}

#[test]
fn twice_is_once_and_out_again_is_nothing() {
    let once = inject(&template(), &injection()).unwrap();
    assert_eq!(inject(&once, &injection()).unwrap(), once);
    assert_eq!(uninject(&once), Ok(template()));
    assert_eq!(uninject(&template()), Ok(template()));
}

#[test]
fn a_label_of_a_group_that_was_there_before_is_there_after() {
    let mut template = template();
    template["metadata"]["labels"][keys::LABEL_GROUP] = json!("elsewhere");
    let once = inject(&template, &injection()).unwrap();
    assert_eq!(once["metadata"]["labels"][keys::LABEL_GROUP], injection().group);
    assert_eq!(inject(&once, &injection()).unwrap(), once);
    assert_eq!(uninject(&once).unwrap(), template);
}

/// Annotations of a service mesh that a template has, with an agent in it and without.
fn meshed(inbound: &str) -> [Value; 2] {
    let mut template = template();
    template["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeInboundPorts"] = json!(inbound);
    let once = inject(&template, &injection()).unwrap();
    assert_eq!(inject(&once, &injection()).unwrap(), once);
    assert_eq!(uninject(&once).unwrap(), template);
    [template, once]
}

#[test]
fn no_service_mesh_relays_what_agents_say() {
    let annotations = &inject(&template(), &injection()).unwrap()["metadata"]["annotations"];
    let of = |key: &str| annotations[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(of("traffic.sidecar.istio.io/excludeInboundPorts"), "20001,20002,20003");
    assert_eq!(of("traffic.sidecar.istio.io/excludeOutboundPorts"), "20001,20003");
    assert_eq!(of("config.linkerd.io/skip-inbound-ports"), "20001,20002,20003");
    assert_eq!(of("config.linkerd.io/skip-outbound-ports"), "20001,20003");

    let key = "traffic.sidecar.istio.io/excludeInboundPorts";
    let [_, once] = meshed("9090, 20002");
    assert_eq!(once["metadata"]["annotations"][key], "9090, 20002,20001,20003");
    let [mut template, mut once] = meshed("9090");
    once["metadata"]["annotations"][key] = json!("20001,9090,20002,20003,9091");
    template["metadata"]["annotations"][key] = json!("9090,9091");
    assert_eq!(uninject(&once), Ok(template));
}

#[test]
fn what_was_edited_behind_the_agent_stays() {
    let mut once = inject(&template(), &injection()).unwrap();
    let words = once["spec"]["containers"][0]["command"].as_array_mut().unwrap();
    words.push(json!("--new"));
    let mut edited = template();
    edited["spec"]["containers"][0]["command"].as_array_mut().unwrap().push(json!("--new"));
    assert_eq!(uninject(&once).as_ref(), Ok(&edited));
    assert_eq!(inject(&once, &injection()), inject(&edited, &injection()));
    // Or the whole command was replaced.
    once["spec"]["containers"][0]["command"] = json!(["/other", "--", "x"]);
    edited["spec"]["containers"][0]["command"] = json!(["/other", "--", "x"]);
    assert_eq!(uninject(&once), Ok(edited));
}

/// The template with no command, as most charts have it.
fn bare() -> Value {
    let mut template = template();
    template["spec"]["containers"][0].as_object_mut().unwrap().remove("command");
    template
}

#[test]
fn the_command_of_an_image_stands_behind_the_agent_and_goes_with_it() {
    let words = ["docker-entrypoint.sh", "postgres"];
    let of_image = Some(words.map(str::to_owned).to_vec());
    let injection = Injection { image_command: of_image, ..injection() };
    let once = inject(&bare(), &injection).unwrap();
    let command = once["spec"]["containers"][0]["command"].as_array().unwrap();
    assert_eq!(command[command.len() - 3..], ["--", words[0], words[1]]);
    assert_eq!(inject(&once, &injection).as_ref(), Ok(&once));
    assert_eq!(uninject(&once), Ok(bare()));

    // An edit behind the agent makes it a command of the container.
    let mut edited = once;
    edited["spec"]["containers"][0]["command"].as_array_mut().unwrap().push(json!("-c"));
    let mut expected = bare();
    expected["spec"]["containers"][0]["command"] = json!(["docker-entrypoint.sh", "postgres", "-c"]);
    assert_eq!(uninject(&edited), Ok(expected));
}

#[test]
fn a_container_has_one_command() {
    let of_image = Some(vec!["postgres".to_owned()]);
    let twice = inject(&template(), &Injection { image_command: of_image, ..injection() });
    assert_eq!(twice, Err(InjectError::CommandTwice { container: "web".into() }));
}

#[test]
fn a_missing_command_is_asked_for_with_the_line_that_finds_it() {
    let refused = |template: &Value| error_of(template).expect("the program is not known").to_string();
    assert_eq!(
        refused(&bare()),
        "container \"web\" has no command, and the agent has to start the program of its image: give \
         --command='[\"PROGRAM\",\"ARGUMENT\"]', or write it as command of the container, also in a BackupPodSet; it \
         is the ENTRYPOINT alone, because the container's args take the place of the CMD: \
         crane config web:1 | jq -c .config.Entrypoint"
    );
    let mut without_args = bare();
    without_args["spec"]["containers"][0].as_object_mut().unwrap().remove("args");
    assert!(refused(&without_args).ends_with(
        "it is the ENTRYPOINT followed by the CMD: crane config web:1 | jq -c '[.config.Entrypoint, .config.Cmd] | add'"
    ));
}

#[test]
fn another_group_replaces_the_first_one() {
    let once = inject(&template(), &injection()).unwrap();
    let other = Injection { group: "other".into(), ..injection() };
    assert_eq!(inject(&once, &other), inject(&template(), &other));
}

#[test]
fn what_has_the_wrong_form_is_refused_before_it_is_overwritten() {
    let refused = |path: &str, value: Value| {
        let mut template = template();
        let parent = template.pointer_mut(path.rsplit_once('/').unwrap().0).unwrap();
        parent[path.rsplit_once('/').unwrap().1] = value;
        inject(&template, &injection()).expect_err(path).to_string()
    };
    let map = json!({"FOO": "bar"});
    for (path, field) in [
        ("/spec/containers/0/env", "spec.containers.0.env"),
        ("/spec/containers/0/volumeMounts", "spec.containers.0.volumeMounts"),
        ("/spec/volumes", "spec.volumes"),
        ("/spec/initContainers", "spec.initContainers"),
    ] {
        let expected = format!("{field} is no list, which an API server would refuse: write `- name: NAME`");
        assert!(refused(path, map.clone()).starts_with(&expected), "{path}");
    }
    for (path, field) in [
        ("/metadata/labels", "metadata.labels"),
        ("/metadata/annotations", "metadata.annotations"),
        ("/spec/affinity", "spec.affinity"),
    ] {
        let expected = format!("{field} is no map, which an API server would refuse: write `key: value`");
        assert_eq!(refused(path, json!([{"app": "web"}])), expected);
    }
}

#[test]
fn what_stands_in_the_way_is_named_with_what_to_write_instead() {
    let refused = |change: &dyn Fn(&mut Value), container: Option<&str>| {
        let mut template = template();
        change(&mut template["spec"]);
        let container = container.map(str::to_owned);
        inject(&template, &Injection { container, ..injection() }).expect_err("it cannot run an agent")
    };
    let second = |spec: &mut Value| {
        spec["containers"].as_array_mut().unwrap().push(json!({"name": "side", "image": "side:1"}));
    };
    let known = vec!["web".to_owned(), "side".to_owned()];
    assert_eq!(refused(&second, None), InjectError::Ambiguous { known });
    let image = Some("side:1".to_owned());
    let no_command = InjectError::NoCommand { container: "side".into(), image, has_args: false };
    assert_eq!(refused(&second, Some("side")), no_command);
    let missing = InjectError::NoContainer { wanted: "db".into(), known: vec!["web".into()] };
    assert_eq!(refused(&|_| {}, Some("db")), missing);
    let fields = [
        ("shareProcessNamespace", json!(true), InjectError::SharedProcesses),
        ("hostPID", json!(true), InjectError::HostProcesses),
        ("hostNetwork", json!(true), InjectError::HostNetwork),
    ];
    for (field, value, error) in fields {
        assert_eq!(refused(&|spec| spec[field] = value.clone(), None), error);
    }
}

/// The template with this in the place of a field of its container.
pub(super) fn with(field: &str, value: Value) -> Value {
    let mut template = template();
    template["spec"]["containers"][0][field] = value;
    template
}

fn error_of(template: &Value) -> Option<InjectError> {
    inject(template, &injection()).err()
}

#[test]
fn a_hook_of_the_kubelet_that_would_meet_no_application_or_that_of_another_pod_is_refused() {
    let container = || "web".to_owned();
    let exec = json!({"exec": {"command": ["/flush"]}});
    let get = json!({"httpGet": {"path": "/drain", "port": 80}});
    let (after_start, before_end) =
        (InjectError::PostStart { container: container() }, InjectError::PreStop { container: container() });
    for hook in [exec, get] {
        assert_eq!(error_of(&with("lifecycle", json!({"postStart": hook}))), Some(after_start.clone()));
        assert_eq!(error_of(&with("lifecycle", json!({"preStop": hook}))), Some(before_end.clone()));
    }
    let both = json!({"preStop": {"sleep": {"seconds": 3}, "exec": {"command": ["/flush"]}}});
    assert_eq!(error_of(&with("lifecycle", both)), Some(before_end));
}

#[test]
fn a_sleep_before_the_end_stays_with_the_agent_and_without_it() {
    let sleeps =
        with("lifecycle", json!({"preStop": {"sleep": {"seconds": 3}, "exec": null}, "postStart": null}));
    let injected = inject(&sleeps, &injection()).unwrap();
    let lifecycle = |template: &Value| template["spec"]["containers"][0]["lifecycle"].clone();
    assert_eq!(lifecycle(&injected), lifecycle(&sleeps));
    assert_eq!(uninject(&injected), Ok(sleeps));
}

#[test]
fn a_command_that_only_sleeps_is_a_sleep_of_the_kubelet_as_long_as_the_agent_is_there() {
    let hook = |command: Value| with("lifecycle", json!({"preStop": {"exec": {"command": command}}}));
    let sleeps = [
        json!(["sleep", "5"]),
        json!(["/bin/sleep", "5"]),
        json!(["sh", "-c", "sleep 5"]),
        json!(["/bin/sh", "-c", " /bin/sleep  5 "]),
    ];
    for command in sleeps {
        let before = hook(command);
        let mut once = inject(&before, &injection()).unwrap();
        let container = &once["spec"]["containers"][0];
        assert_eq!(container["lifecycle"], json!({"preStop": {"sleep": {"seconds": 5}}}));
        let told = json!({"name": keys::ENV_HA_END_WITHIN_SECONDS, "value": "25"});
        assert!(container["env"].as_array().unwrap().contains(&told), "{container}");
        assert_eq!(inject(&once, &injection()).as_ref(), Ok(&once));
        assert_eq!(uninject(&once), Ok(before));

        once["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] = json!(6);
        let edited = with("lifecycle", json!({"preStop": {"sleep": {"seconds": 6}}}));
        assert_eq!(uninject(&once), Ok(edited));
    }
    let others = [
        json!(["sleep", "0"]),
        json!(["sleep", "0.5"]),
        json!(["sleep", "5s"]),
        json!(["sleep", "+5"]),
        json!(["sleep", "5", "6"]),
        json!(["sleep"]),
        json!(["sleep", 5]),
        json!(["sh", "-c", "sleep 5; /flush"]),
        json!(["sh", "-c", "sleep 5 && sync"]),
        json!(["bash", "-c", "sleep 5"]),
        json!(["sh", "-ec", "sleep 5"]),
    ];
    for command in others {
        let refused = Some(InjectError::PreStop { container: "web".into() });
        assert_eq!(error_of(&hook(command.clone())), refused, "{command}");
    }
}

#[test]
fn a_command_that_sleeps_longer_than_its_pod_may_end_sleeps_as_long_as_that() {
    let slept = |grace: Value, seconds: &str| {
        let hook = json!({"preStop": {"exec": {"command": ["sleep", seconds]}}});
        let mut before = with("lifecycle", hook);
        before["spec"]["terminationGracePeriodSeconds"] = grace;
        let once = inject(&before, &injection()).unwrap();
        assert_eq!(uninject(&once), Ok(before));
        once["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64()
    };
    assert_eq!(slept(json!(10), "60"), Some(10));
    assert_eq!(slept(Value::Null, "60"), Some(30));
    assert_eq!(slept(json!(90), "60"), Some(60));
}

#[test]
fn hooks_of_another_container_are_its_own_affair() {
    let mut template = template();
    let hooks = json!({"postStart": {"exec": {"command": ["/a"]}}, "preStop": {"exec": {"command": ["/b"]}}});
    let side = json!({"name": "side", "image": "side:1", "lifecycle": hooks});
    template["spec"]["containers"].as_array_mut().unwrap().push(side.clone());
    let injection = Injection { container: Some("web".into()), ..injection() };
    assert_eq!(inject(&template, &injection).unwrap()["spec"]["containers"][1], side);
}

#[test]
fn an_agent_that_would_not_come_back_in_its_pod_is_refused() {
    let of_pod = |policy: Value| {
        let mut template = template();
        template["spec"]["restartPolicy"] = policy;
        error_of(&template)
    };
    for policy in ["Never", "OnFailure"] {
        assert_eq!(of_pod(json!(policy)), Some(InjectError::RestartPolicy { policy: policy.into() }));
        let error = InjectError::ContainerRestartPolicy { container: "web".into(), policy: policy.into() };
        assert_eq!(error_of(&with("restartPolicy", json!(policy))), Some(error));
    }
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let error = InjectError::RestartRules { container: "web".into() };
    assert_eq!(error_of(&with("restartPolicyRules", rules)), Some(error));
    for usual in [json!("Always"), json!(null)] {
        let of_container = error_of(&with("restartPolicy", usual.clone()));
        assert_eq!((of_pod(usual), of_container), (None, None));
    }
    assert_eq!(error_of(&with("restartPolicyRules", json!([]))), None);
    let mut beside = template();
    let side = json!({"name": "side", "image": "side:1", "restartPolicy": "Never"});
    beside["spec"]["containers"].as_array_mut().unwrap().push(side);
    let injection = Injection { container: Some("web".into()), ..injection() };
    assert_eq!(inject(&beside, &injection).err(), None, "another container is its own affair");
}

#[test]
fn labels_that_the_operator_writes_are_refused_in_templates_and_selectors() {
    let of_several = format!("{}0", keys::LABEL_STANDBY_OF);
    let labels = [keys::LABEL_PAIR_STATE, keys::LABEL_PAIR_PEER, keys::LABEL_HA_STATE, keys::LABEL_PEER];
    for label in labels.into_iter().chain([of_several.as_str()]) {
        let mut labelled = template();
        labelled["metadata"]["labels"][label] = json!("active");
        assert_eq!(error_of(&labelled), Some(InjectError::WrittenLabel { label: label.to_owned() }));
        let selectors = [
            json!({"app": "web", (label): "active"}),
            json!({"matchLabels": {"app": "web", (label): "active"}}),
            json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": label, "operator": "DoesNotExist"}]}),
        ];
        for selector in selectors {
            let refused = Injection::check_selector(&selector);
            assert_eq!(refused, Err(InjectError::WrittenSelector { label: label.to_owned() }), "{selector}");
        }
    }
    let expression = json!({"key": "tier", "operator": "In", "values": ["peer", "HAState"]});
    let own = json!({"matchLabels": {"app": "peer", "type": "web"}, "matchExpressions": [expression]});
    assert_eq!(Injection::check_selector(&own), Ok(()));
}

#[test]
fn a_container_that_runs_beside_the_agent_leaves_it_its_ports() {
    let ports = |number: u16| json!([{"containerPort": 80}, {"containerPort": number, "protocol": "UDP"}]);
    for port in [20_001, 20_002, 20_003] {
        let taken = |container: &str| Some(InjectError::AgentPort { container: container.into(), port });
        assert_eq!(error_of(&with("ports", ports(port))), taken("web"));
        let mut template = template();
        let before = json!({"name": "before", "image": "tools:1", "ports": ports(port)});
        template["spec"]["initContainers"] = json!([before]);
        assert_eq!(error_of(&template), None, "it has ended when the agent starts");
        template["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
        assert_eq!(error_of(&template), taken("before"));
    }
    assert_eq!([20_000, 20_004].map(|port| error_of(&with("ports", ports(port)))), [None, None]);
}

/// What the agent is told of these probes.
fn checks(liveness: Value, startup: Value, arguments: &[&str]) -> Vec<String> {
    let mut template = with("livenessProbe", liveness);
    let container = &mut template["spec"]["containers"][0];
    container["startupProbe"] = startup;
    container["ports"][0]["name"] = json!("http");
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let injected = inject(&template, &Injection { arguments, ..injection() }).unwrap();
    let command = injected["spec"]["containers"][0]["command"].as_array().unwrap().clone();
    let words = command.iter().filter_map(Value::as_str).filter(|word| word.starts_with("--live-"));
    words.map(str::to_owned).collect()
}

#[test]
fn the_agent_checks_what_the_liveness_probe_checked() {
    let times = ["period=10", "timeout=1", "failures=3", "grace=0"];
    let told = |target: &str, times: [&str; 4]| {
        let times = times.into_iter().map(|time| format!("--live-{time}"));
        std::iter::once(format!("--live-{target}")).chain(times).collect::<Vec<_>>()
    };
    let table = [
        (
            json!({"httpGet": {"path": "/healthz?deep=1", "port": "http"}}),
            told("http=80/healthz?deep=1", times),
        ),
        (json!({"httpGet": {"port": 8080, "scheme": "HTTP"}}), told("http=8080/", times)),
        (json!({"tcpSocket": {"port": 6379}}), told("tcp=6379", times)),
        (
            json!({"exec": {"command": ["sh", "-c", "redis-cli ping"]}}),
            told(r#"exec=["sh","-c","redis-cli ping"]"#, times),
        ),
        (
            json!({"tcpSocket": {"port": 80}, "initialDelaySeconds": 5, "periodSeconds": 2, "timeoutSeconds": 4, "failureThreshold": 1}),
            told("tcp=80", ["period=2", "timeout=4", "failures=1", "grace=5"]),
        ),
        // What only the kubelet can do.
        (json!({"httpGet": {"port": 443, "scheme": "HTTPS"}}), vec![]),
        (json!({"httpGet": {"port": "metrics"}}), vec![]),
        (json!({"httpGet": {"port": 80, "httpHeaders": [{"name": "x", "value": "y"}]}}), vec![]),
        (json!({"tcpSocket": {"port": 80, "host": "127.0.0.1"}}), vec![]),
        (json!({"grpc": {"port": 80}}), vec![]),
        (Value::Null, vec![]),
    ];
    for (probe, expected) in table {
        assert_eq!(checks(probe.clone(), Value::Null, &[]), expected, "{probe}");
    }
}

#[test]
fn an_application_has_the_time_to_start_that_its_probes_give_it_and_own_arguments_count() {
    let liveness = json!({"tcpSocket": {"port": 80}, "initialDelaySeconds": 5});
    let startup = json!({"tcpSocket": {"port": 80}, "periodSeconds": 2, "failureThreshold": 30});
    assert_eq!(checks(liveness.clone(), startup.clone(), &[]).last().unwrap(), "--live-grace=60");
    assert_eq!(checks(liveness, startup, &["--live-tcp=81"]), ["--live-tcp=81"]);
}

#[test]
fn an_application_that_would_read_from_a_terminal_is_refused() {
    let terminal = error_of(&with("tty", json!(true))).expect("it is refused").to_string();
    assert!(
        terminal.contains("\"web\" has tty: true") && terminal.contains("set tty to false"),
        "{terminal}"
    );
    assert_eq!(error_of(&with("tty", json!(false))), None);
}

#[test]
fn an_agent_whose_container_cannot_be_told_stays_until_somebody_says_what_it_was() {
    let injected = inject(&template(), &injection()).unwrap();
    let mut renamed = injected.clone();
    renamed["spec"]["containers"][0]["name"] = json!("shop");
    let refused = error_of(&renamed).expect("its command would be lost").to_string();
    for word in ["\"web\"", "\"shop\"", keys::ANNOTATION_INJECTED, "rename"] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
    for text in [json!("{"), json!(7), json!("{}"), json!(r#"{"container": "web", "command": []}"#)] {
        let mut unreadable = injected.clone();
        unreadable["metadata"]["annotations"][keys::ANNOTATION_INJECTED] = text;
        let refused = error_of(&unreadable).expect("its command would be lost").to_string();
        assert!(refused.contains("cannot be read"), "{refused}");
    }
}
