//! What becomes of the probes of an application that gets an agent.

use serde_json::{Value, json};

use super::inject::{injection, template, with};
use crate::manifests::{InjectWarning, Injection, inject, uninject};

#[test]
fn probes_that_were_edited_beside_the_agent_stay() {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": 80}});
    let before = with("livenessProbe", probe("/old"));
    for (name, is_lost) in [("livenessProbe", true), ("readinessProbe", false), ("startupProbe", false)] {
        let mut edited = inject(&before, &injection()).unwrap();
        edited["spec"]["containers"][0][name] = probe("/new");
        let mut expected = before.clone();
        expected["spec"]["containers"][0][name] = probe("/new");
        assert_eq!(uninject(&edited).as_ref(), Ok(&expected), "{name}");
        let now = &expected["spec"]["containers"][0]["livenessProbe"]["httpGet"]["path"];
        assert_eq!(*now == "/new", is_lost);
    }
}

#[test]
fn the_kubelet_restarts_a_stuck_agent_after_a_minute_and_not_the_application() {
    let agent = json!({
        "httpGet": {"path": "/livez", "port": 20_002},
        "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6,
    });
    let mut bare = template();
    bare["spec"]["containers"][0].as_object_mut().unwrap().remove("livenessProbe");
    for before in [template(), bare] {
        let mut once = inject(&before, &injection()).unwrap();
        assert_eq!(once["spec"]["containers"][0]["livenessProbe"], agent);
        assert_eq!(once["spec"]["containers"][0].get("startupProbe"), None);
        // Other times make it no probe of the application.
        once["spec"]["containers"][0]["livenessProbe"]["periodSeconds"] = json!(3);
        assert_eq!(uninject(&once), Ok(before));
    }
}

#[test]
fn the_agent_takes_the_probes_of_a_template_that_an_earlier_release_injected() {
    let mut earlier = inject(&template(), &injection()).unwrap();
    earlier["spec"]["containers"][0].as_object_mut().unwrap().remove("livenessProbe");
    assert_eq!(uninject(&earlier), Ok(template()));
    assert_eq!(inject(&earlier, &injection()), inject(&template(), &injection()));
}

#[test]
fn a_liveness_probe_that_nobody_does_any_more_is_told() {
    let of = |probe: Value| with("livenessProbe", probe);
    let given = |argument: &str| Injection { arguments: vec![argument.to_owned()], ..injection() };
    let grpc = of(json!({"grpc": {"port": 80}}));
    let table = [
        (template(), injection(), false),
        (of(json!({"tcpSocket": {"port": 80}})), injection(), false),
        (grpc.clone(), injection(), true),
        (inject(&grpc, &injection()).unwrap(), injection(), true),
        (grpc.clone(), given("--live-tcp=80"), false),
        (grpc, given("--hook-timeout=1s"), true),
    ];
    for (template, injection, expected) in table {
        let warnings = injection.warnings(&template);
        let is_told = warnings.contains(&InjectWarning::LivenessGivenUp);
        assert_eq!(is_told, expected, "{template} {injection:?}");
    }
}
