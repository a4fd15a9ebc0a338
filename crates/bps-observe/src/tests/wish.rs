//! The spec to the wish, and what is said about a spec that slipped past the checks of the API server.

use bps_api::BackupPodSet;
use bps_api::service::IpFamily;
use bps_api::subset_rules::{
    INTEGER_NEEDED, NO_EXECUTE_NEEDED, NODE_NAME_NEEDED, TOLERATED_KEY_NEEDED,
    TOLERATED_VALUE_WITHOUT_EFFECT, VALUES_NEEDED, VALUES_WITHOUT_EFFECT,
};
use bps_core::manifests::{ShownAddresses, endpoint_slice, revision, service, slice_ports};
use bps_core::model::{
    Desired, ObjectState, PodShare, RedundancyPromise, ScaleIn, Strategies, Strategy, Subset, SubsetName,
    Topology, Uid, UpdateKind, UpdatePolicy,
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::{SET_UID, at, merge, set, template};
use crate::readable::Readable;
use crate::wish;
use crate::{Cache, SetKey, Watched, Written, observe};

/// The wish of a set with a template and these further fields, and what is wrong with it.
fn read(fields: &Value) -> (Desired, Option<String>) {
    let mut spec = json!({"template": template()});
    merge(&mut spec, fields);
    let set = set(spec);
    let (desired, error) = wish::read(&set, revision(&set.spec));
    (desired, error.map(|error| error.to_string()))
}

#[test]
fn a_spec_without_settings_has_the_documented_defaults() {
    let expected = Desired {
        name: "web".into(),
        uid: Uid(SET_UID.into()),
        replicas: 1,
        hot_backups: 0,
        cold_backups: 0,
        standby_for: 1,
        promise: None,
        strategies: Strategies::default(),
        wakeup_timeout: SignedDuration::from_secs(5),
        min_ready: SignedDuration::ZERO,
        progress_deadline: SignedDuration::from_secs(600),
        failover_delay: SignedDuration::ZERO,
        unready_deadline: SignedDuration::from_secs(300),
        topology: Topology::default(),
        scale_in: ScaleIn::Delete,
        update: UpdatePolicy {
            kind: UpdateKind::BackupFirst,
            max_unavailable: PodShare::Pods(1),
            max_surge: PodShare::Pods(1),
            partition: 0,
        },
        paused: false,
        can_create: true,
        revision: revision(&set(json!({"template": template()})).spec),
        collisions: 0,
        is_new_generation: true,
    };
    assert_eq!(read(&json!({})), (expected, None));
}

#[test]
fn every_setting_reaches_the_wish() {
    let (read, error) = read(&json!({
        "replicas": 2, "hotBackups": 3, "coldBackups": 1000, "wakeupTimeout": 3600, "minReadySeconds": 7,
        "failoverDelaySeconds": 8, "unreadyDeadlineSeconds": 86_400, "scaleInPolicy": "Demote", "paused": true,
        "updateStrategy": {"type": "OnDelete", "maxUnavailable": 4, "maxSurge": "30%", "partition": 5},
        "redundancyModel": "NPlusM",
    }));
    assert_eq!(error, None);
    assert_eq!((read.replicas, read.hot_backups, read.cold_backups), (2, 3, 1000));
    assert_eq!(read.promise, Some(RedundancyPromise::NPlusM));
    let seconds = [read.wakeup_timeout, read.min_ready, read.failover_delay, read.unready_deadline];
    assert_eq!(seconds.map(|duration| duration.as_secs()), [3600, 7, 8, 86_400]);
    assert_eq!((read.scale_in, read.paused), (ScaleIn::Demote, true));
    let update = UpdatePolicy {
        kind: UpdateKind::OnDelete,
        max_unavailable: PodShare::Pods(4),
        max_surge: PodShare::Percent(30),
        partition: 5,
    };
    assert_eq!(read.update, update);
}

#[test]
fn each_model_but_n_way_is_a_promise() {
    let promise = |model: &str| {
        let (read, error) = read(&json!({"redundancyModel": model}));
        (read.promise, error)
    };
    assert_eq!(promise("None"), (Some(RedundancyPromise::NoRedundancy), None));
    assert_eq!(promise("NWayActive"), (Some(RedundancyPromise::NWayActive), None));
    assert_eq!(promise("TwoN"), (Some(RedundancyPromise::TwoN), None));
    assert_eq!(promise("NWay"), (None, Some(format!("spec.{}", bps_api::N_WAY_REFUSED))));
}

#[test]
fn every_tier_is_shared_out_over_the_subsets() {
    let (read, error) = read(&json!({
        "replicas": 6, "hotBackups": 3, "coldBackups": 4, "updateStrategy": {"partitions": {"b": 2}},
        "topology": {"rebalance": "Never", "scheduleStrategy": {"type": "Adaptive"}, "subsets": [
            {"name": "a", "replicas": "50%", "hotBackups": 0},
            {"name": "b", "minReplicas": 1, "maxReplicas": 4},
            {"name": "spot", "replicas": 0, "coldBackups": "100%"},
        ]},
    }));
    assert_eq!(error, None);
    let subset = |name: &str, [replicas, hot_backups, cold_backups]: [usize; 3]| Subset {
        name: SubsetName(name.to_owned()),
        replicas,
        hot_backups,
        cold_backups,
        partition: if name == "b" { 2 } else { 0 },
    };
    // Of the hot backups that may be anywhere more are where there are fewer primaries.
    let subsets = vec![subset("a", [3, 0, 0]), subset("b", [3, 1, 0]), subset("spot", [0, 2, 4])];
    assert_eq!(
        read.topology,
        Topology { subsets, rebalances: false, patience: Some(SignedDuration::from_secs(30)) }
    );
}

#[test]
fn shares_of_subsets_that_are_more_than_all_pods_are_an_error() {
    let half = json!({"topology": {"subsets": [
        {"name": "a", "hotBackups": "70%"}, {"name": "b", "hotBackups": "40%"},
    ]}});
    let words = "spec.topology.subsets: percentages of hotBackups add up to 110%: write shares that are 100% together at most";
    assert_eq!(read(&half).1.as_deref(), Some(words));
}

#[test]
fn a_partition_of_what_is_no_subset_is_an_error() {
    let partitions = |subsets: Value| {
        read(&json!({"updateStrategy": {"partitions": {"a": 1, "c": 0}}, "topology": {"subsets": subsets}})).1
    };
    let words = "spec.updateStrategy.partitions names \"c\", which is no subset: write names of spec.topology.subsets only, or \
                 leave \"c\" out";
    assert_eq!(partitions(json!([{"name": "a"}])).as_deref(), Some(words));
    assert_eq!(partitions(json!([{"name": "a"}, {"name": "c"}])), None);
    let without = read(&json!({"updateStrategy": {"partitions": {"c": 1}}})).1;
    assert_eq!(without.as_deref(), Some(words));
}

#[test]
fn a_subset_whose_pods_the_api_server_would_refuse_is_an_error() {
    let refusal = |subset: Value| {
        let subsets = json!([{"name": "free"}, merged(json!({"name": "east"}), &subset)]);
        read(&json!({"topology": {"subsets": subsets}})).1
    };
    let term = |kind: &str, key: &str, operator: &str, values: Value| {
        refusal(json!({"nodeSelectorTerm": {kind: [{"key": key, "operator": operator, "values": values}]}}))
    };
    let label = |operator: &str, values: Value| term("matchExpressions", "zone", operator, values);
    let field = |key: &str, operator: &str, values: Value| term("matchFields", key, operator, values);
    let tolerates = |toleration: Value| refusal(json!({"tolerations": [toleration]}));
    let told = |refusal: &str| Some(format!("spec.topology.subsets: subset \"east\": {refusal}"));

    for operator in ["In", "NotIn"] {
        assert_eq!(label(operator, json!([])), told(VALUES_NEEDED));
        assert_eq!(label(operator, json!(["a", "b"])), None);
        assert_eq!(field("metadata.name", operator, json!(["n1"])), None);
        assert_eq!(field("metadata.name", operator, json!(["n1", "n2"])), told(NODE_NAME_NEEDED));
    }
    for operator in ["Exists", "DoesNotExist"] {
        assert_eq!(label(operator, json!(["a"])), told(VALUES_WITHOUT_EFFECT));
        assert_eq!(label(operator, json!([])), None);
        assert_eq!(field("metadata.name", operator, json!([])), told(NODE_NAME_NEEDED));
    }
    for operator in ["Gt", "Lt"] {
        for values in [json!([]), json!(["1", "2"]), json!(["many"]), json!(["1.5"]), json!([""])] {
            assert_eq!(label(operator, values), told(INTEGER_NEEDED));
        }
        assert_eq!(label(operator, json!(["-4"])), None);
    }
    assert_eq!(field("zone", "In", json!(["a"])), told(NODE_NAME_NEEDED));

    let value = json!({"key": "spot", "operator": "Exists", "value": "yes"});
    assert_eq!(tolerates(value), told(TOLERATED_VALUE_WITHOUT_EFFECT));
    let time = json!({"key": "spot", "effect": "NoSchedule", "tolerationSeconds": 60});
    assert_eq!(tolerates(time), told(NO_EXECUTE_NEEDED));
    assert_eq!(tolerates(json!({"key": "spot", "tolerationSeconds": 60})), told(NO_EXECUTE_NEEDED));
    assert_eq!(tolerates(json!({"value": "yes"})), told(TOLERATED_KEY_NEEDED));
    assert_eq!(tolerates(json!({"operator": "Exists"})), None);
    let right = json!({"key": "spot", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 60});
    assert_eq!(tolerates(right), None);
}

/// The value with these further fields.
fn merged(mut value: Value, fields: &Value) -> Value {
    merge(&mut value, fields);
    value
}

#[test]
fn a_deadline_of_zero_is_never() {
    let (desired, error) = read(&json!({"unreadyDeadlineSeconds": 0}));
    assert_eq!((desired.unready_deadline, error), (SignedDuration::MAX, None));
}

#[test]
fn a_transition_without_a_strategy_of_its_own_follows_init() {
    let strategies = |strategy: Value| read(&json!({"strategy": strategy})).0.strategies;
    let all = |one: Strategy| Strategies { hot_to_primary: one, cold_to_primary: one, cold_to_hot: one };
    assert_eq!(strategies(json!({})), all(Strategy::Best));
    assert_eq!(strategies(json!({"init": "random"})), all(Strategy::Random));
    let own = json!({
        "init": "random", "hotbackupToReplicas": "oldest", "coldbackupToReplicas": "newest",
        "coldbackupToHotbackup": "spread",
    });
    assert_eq!(
        strategies(own),
        Strategies {
            hot_to_primary: Strategy::Oldest,
            cold_to_primary: Strategy::Newest,
            cold_to_hot: Strategy::Spread,
        }
    );
}

#[test]
fn a_number_out_of_range_is_named_with_its_range_and_read_as_the_nearest() {
    let cases = [
        (json!({"replicas": -1}), "spec.replicas is -1: write a number from 0 to 1000"),
        (json!({"hotBackups": 1001}), "spec.hotBackups is 1001: write a number from 0 to 1000"),
        (json!({"coldBackups": i32::MIN}), "spec.coldBackups is -2147483648: write a number from 0 to 1000"),
        (json!({"wakeupTimeout": 0}), "spec.wakeupTimeout is 0: write a number from 1 to 3600"),
        (json!({"minReadySeconds": -5}), "spec.minReadySeconds is -5: write a number from 0 to 86400"),
        (
            json!({"failoverDelaySeconds": 86_401}),
            "spec.failoverDelaySeconds is 86401: write a number from 0 to 86400",
        ),
        (
            json!({"unreadyDeadlineSeconds": -1}),
            "spec.unreadyDeadlineSeconds is -1: write a number from 0 to 86400",
        ),
        (
            json!({"updateStrategy": {"maxUnavailable": 0}}),
            "spec.updateStrategy.maxUnavailable is 0: write a number from 1 to 1000",
        ),
        (
            json!({"updateStrategy": {"maxSurge": "some"}}),
            "spec.updateStrategy.maxSurge is \"some\": write a number, or a share such as 25%",
        ),
        (
            json!({"updateStrategy": {"maxSurge": "200%"}}),
            "spec.updateStrategy.maxSurge is 200: write a number from 1 to 100",
        ),
        (
            json!({"updateStrategy": {"partition": -1}}),
            "spec.updateStrategy.partition is -1: write a number from 0 to 1000",
        ),
        (
            json!({
                "topology": {"subsets": [{"name": "a"}]}, "updateStrategy": {"partitions": {"a": 1001}},
            }),
            "spec.updateStrategy.partitions is 1001: write a number from 0 to 1000",
        ),
    ];
    for (fields, message) in cases {
        assert_eq!(read(&fields).1.as_deref(), Some(message));
    }
    let (desired, error) = read(&json!({"replicas": 5000, "hotBackups": -3, "wakeupTimeout": -1}));
    assert_eq!((desired.replicas, desired.hot_backups, desired.wakeup_timeout.as_secs()), (1000, 0, 1));
    assert_eq!(error.as_deref(), Some("spec.replicas is 5000: write a number from 0 to 1000"));
}

#[test]
fn a_template_that_cannot_be_used_is_refused_in_words_for_its_author() {
    let none = "spec.template.spec.containers is empty: name at least one container";
    for containers in [json!([]), json!(null), json!("web")] {
        let error = read(&json!({"template": {"spec": {"containers": containers}}})).1;
        assert_eq!(error.as_deref(), Some(none), "{containers}");
    }
    for key in ["type", "HAState", "peer", "backup.example.com/set", "backup.example.com/anything"] {
        for place in ["labels", "annotations"] {
            let error = read(&json!({"template": {"metadata": {place: {(key): "x"}}}})).1;
            let expected =
                format!("spec.template.metadata sets \"{key}\", which the operator sets itself: remove it");
            let is_our_label_only = place == "annotations" && !key.starts_with("backup.example.com/");
            assert_eq!(error, (!is_our_label_only).then_some(expected), "{place}");
        }
    }
    let free = json!({"labels": {"app": "web", "types": "x", "backup.example.org/a": "b"}});
    assert_eq!(read(&json!({"template": {"metadata": free}})).1, None);
}

#[test]
fn the_status_tells_of_collisions_and_of_what_was_seen() {
    let mut set = set(json!({"template": template()}));
    let status = |generation: i64, collisions: i32| {
        let status = json!({"observedGeneration": generation, "collisionCount": collisions});
        serde_json::from_value(status).unwrap()
    };
    set.status = status(1, 3);
    let seen = wish::desired(&set, revision(&set.spec));
    assert_eq!((seen.collisions, seen.is_new_generation), (3, false));
    set.status = status(0, -1);
    let unseen = wish::desired(&set, revision(&set.spec));
    assert_eq!((unseen.collisions, unseen.is_new_generation), (0, true));
}

#[test]
fn a_look_tells_the_revision_of_the_newest_template_that_can_be_used() {
    let mut cache = Cache::default();
    let revision_of = |cache: &mut Cache, generation: i64, container: Value| {
        let mut set = set(json!({"template": {"spec": {"containers": [container]}}}));
        set.metadata.generation = Some(generation);
        set.metadata.resource_version = Some((10 + generation).to_string());
        let own = revision(&set.spec);
        set.seen(cache, at(generation));
        let told = observe(cache, &key(), at(generation)).expect("the set").snapshot.desired.revision;
        (told, own)
    };
    let (first, own) = revision_of(&mut cache, 1, json!({"name": "web", "image": "web:1"}));
    assert_eq!(first, own);
    let (second, own) = revision_of(&mut cache, 2, json!({"name": "web", "image": "web:2"}));
    assert_eq!(second, own);
    assert_ne!(second, first);
}

fn key() -> SetKey {
    SetKey { namespace: "shop".into(), name: "web".into() }
}

/// The set with this generation, pause and target port.
fn led_to(generation: i64, is_paused: bool, port: &Value) -> BackupPodSet {
    let container =
        json!({"name": "web", "image": "web:1", "ports": [{"name": "web", "containerPort": 8080}]});
    let service = json!({"name": "front", "ports": [{"port": 80, "targetPort": port}]});
    let template = json!({"spec": {"containers": [container]}});
    let mut set =
        set(json!({"template": template, "service": service, "paused": is_paused, "replicas": generation}));
    (set.metadata.generation, set.metadata.resource_version) =
        (Some(generation), Some(generation.to_string()));
    set
}

#[test]
fn a_wrong_edit_is_told_and_the_wish_before_it_is_acted_on() {
    let mut cache = Cache::default();
    led_to(1, false, &json!("web")).seen(&mut cache, at(0));
    led_to(2, true, &json!("http")).seen(&mut cache, at(0));
    let observation = observe(&cache, &key(), at(1)).unwrap();
    let message = "service.ports: targetPort \"http\" is not the name of a container port; \
        write a number or one of [\"web\"]";
    assert_eq!(observation.invalid.map(|error| error.to_string()).as_deref(), Some(message));
    let desired = &observation.snapshot.desired;
    assert_eq!((desired.replicas, desired.paused, desired.can_create), (1, true, true), "a pause is obeyed");
    assert_eq!(observation.ports.iter().map(|port| port.port).collect::<Vec<_>>(), [8080]);
    assert_eq!(observation.set.metadata.generation, Some(2), "its status is of the newest");

    led_to(3, false, &json!("web")).seen(&mut cache, at(2));
    let observation = observe(&cache, &key(), at(3)).unwrap();
    assert_eq!((observation.invalid, observation.snapshot.desired.replicas), (None, 3));
}

#[test]
fn without_a_wish_before_a_wrong_one_no_pod_is_made_and_ports_stay_as_they_are() {
    let mut cache = Cache::default();
    let mut set = led_to(4, false, &json!("http"));
    set.status = serde_json::from_value(json!({"updateRevision": "r7"})).unwrap();
    let right = led_to(1, false, &json!("web"));
    let wanted = right.spec.service.as_ref().unwrap();
    let ports = slice_ports(&right, wanted).unwrap();
    let slice: EndpointSlice = serde_json::from_value(endpoint_slice(
        &right,
        wanted,
        &ports,
        ShownAddresses { family: IpFamily::IPv4, endpoints: &[] },
    ))
    .unwrap();
    let service: Service = serde_json::from_value(service(&right, wanted)).unwrap();
    set.seen(&mut cache, at(0));
    slice.seen(&mut cache, at(0));
    service.seen(&mut cache, at(0));
    let observation = observe(&cache, &key(), at(1)).unwrap();
    let desired = &observation.snapshot.desired;
    assert_eq!(
        (desired.can_create, desired.revision.0.as_str()),
        (false, "r7"),
        "its Pods are of that template"
    );
    assert_eq!(observation.ports, ports);
    let exposure = observation.snapshot.exposure.unwrap();
    assert_eq!([exposure.service, exposure.slice_state()], [ObjectState::Current; 2]);
}

/// A set as a watch shows it, with these changes that a newer CRD may allow.
fn newer(set: &BackupPodSet, changes: &Value) -> Readable<BackupPodSet> {
    let mut body = serde_json::to_value(set).unwrap();
    merge(&mut body, changes);
    serde_json::from_value(body).unwrap()
}

#[test]
fn what_a_newer_version_wishes_is_told_and_the_wish_before_it_is_acted_on() {
    for spec in [json!({"scaleInPolicy": "Someday"}), json!("all of it")] {
        let mut cache = Cache::default();
        led_to(1, false, &json!("web")).seen(&mut cache, at(0));
        newer(&led_to(2, false, &json!("web")), &json!({"spec": spec})).seen(&mut cache, at(1));
        let observation = observe(&cache, &key(), at(2)).unwrap();
        let told = observation.invalid.map(|error| error.to_string()).unwrap_or_default();
        assert!(told.starts_with("spec") && told.contains("cannot be read by this version"), "{told}");
        let desired = &observation.snapshot.desired;
        assert_eq!((desired.replicas, desired.can_create), (1, true), "{spec}");
        assert_eq!(observation.set.metadata.generation, Some(2), "its status is of the newest");

        // An answer to the write of a status is of the same generation.
        let answer = newer(&led_to(2, false, &json!("web")), &json!({"spec": spec}));
        cache.wrote(Written::Set(Box::new(answer)), at(3));
        assert!(observe(&cache, &key(), at(4)).unwrap().invalid.is_some(), "{spec}");

        led_to(3, false, &json!("web")).seen(&mut cache, at(5));
        let observation = observe(&cache, &key(), at(6)).unwrap();
        assert_eq!((observation.invalid, observation.snapshot.desired.replicas), (None, 3), "{spec}");
    }
}

#[test]
fn a_service_that_cannot_be_read_wholly_stays_as_it_is() {
    let mut cache = Cache::default();
    let set = led_to(4, false, &json!("web"));
    let wanted = set.spec.service.as_ref().unwrap();
    let mut present = service(&set, wanted);
    merge(&mut present, &json!({"spec": {"type": "NodePort"}}));
    let present: Service = serde_json::from_value(present).unwrap();
    newer(&set, &json!({"spec": {"service": {"type": "Magic"}}})).seen(&mut cache, at(0));
    present.seen(&mut cache, at(0));
    let exposure = observe(&cache, &key(), at(1)).unwrap().snapshot.exposure.unwrap();
    assert_eq!(exposure.service, ObjectState::Current);
}

#[test]
fn a_set_that_cannot_be_read_is_forgotten_when_it_goes() {
    let mut cache = Cache::default();
    let set = led_to(1, false, &json!("web"));
    set.clone().seen(&mut cache, at(0));
    let unread = newer(&set, &json!({"metadata": {"generation": 2}, "spec": 7}));
    unread.clone().seen(&mut cache, at(1));
    unread.lost(&mut cache, at(2));
    assert!(observe(&cache, &key(), at(3)).is_none());
}

#[test]
fn the_wish_of_a_set_that_is_gone_is_no_wish_of_the_next_one_of_its_name() {
    let mut cache = Cache::default();
    led_to(1, false, &json!("web")).seen(&mut cache, at(0));
    let mut next = led_to(2, false, &json!("http"));
    next.metadata.uid = Some("another".into());
    next.seen(&mut cache, at(1));
    assert!(!observe(&cache, &key(), at(2)).unwrap().snapshot.desired.can_create);
}
