//! The Service and its slice as the server keeps them, compared with the wish.

use bps_api::service::{IpFamily, TrafficDistribution};
use bps_api::{BackupPodSet, ExposedService, keys};
use bps_core::manifests::{ShownAddresses, endpoint_slice, service, slice_ports};
use bps_core::model::{Endpoint, ExposedKind, ExposedSlice, NodeName, ObjectState, PodName, Uid};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::{SET_UID, at, merge, set};
use crate::exposure::{SliceWish, exposed_slice, service_state};
use crate::store::ObjectKey;
use crate::{Cache, Change, Observation, SetKey, TakenName, Watched as _, Written, observe};

fn exposed() -> BackupPodSet {
    let container =
        json!({"name": "web", "image": "web:1", "ports": [{"name": "web", "containerPort": 8080}]});
    let ports = json!([
        {"name": "http", "port": 80, "targetPort": "web", "appProtocol": "http"},
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "admin", "port": 81, "targetPort": 8181},
    ]);
    set(json!({
        "template": {"spec": {"containers": [container]}},
        "service": {"name": "front", "ports": ports, "type": "NodePort"},
    }))
}

fn state(changes: &Value) -> ObjectState {
    let set = exposed();
    let wanted = set.spec.service.as_ref().unwrap();
    let mut body = service(&set, wanted);
    // What the API server fills in.
    merge(
        &mut body,
        &json!({"spec": {
            "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "internalTrafficPolicy": "Cluster",
            "externalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
        }}),
    );
    for (index, port) in body["spec"]["ports"].as_array_mut().unwrap().iter_mut().enumerate() {
        port["nodePort"] = json!(30_000 + index);
    }
    merge(&mut body, changes);
    let service: Service = serde_json::from_value(body).unwrap();
    service_state(Some(&service), &set, wanted)
}

fn owner(uid: &str, is_controller: bool) -> Value {
    json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": is_controller},
    ]}})
}

#[test]
fn a_service_with_the_servers_defaults_is_as_wanted() {
    assert_eq!(state(&json!({})), ObjectState::Current);
    assert_eq!(state(&json!({"spec": {"selector": {}}})), ObjectState::Current);
}

#[test]
fn an_edited_service_is_outdated() {
    let base = || {
        json!([
            {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP", "appProtocol": "http"},
            {"name": "dns", "port": 53, "targetPort": 53, "protocol": "UDP"},
            {"name": "admin", "port": 81, "targetPort": 8181, "protocol": "TCP"},
        ])
    };
    assert_eq!(state(&json!({"spec": {"ports": base()}})), ObjectState::Current);
    let edits = [
        ("/0/name", json!("web")),
        ("/0/port", json!(8080)),
        ("/0/targetPort", json!("other")),
        ("/1/targetPort", json!(54)),
        ("/1/protocol", json!("TCP")),
        ("/0/appProtocol", json!("https")),
        ("/2/appProtocol", json!("http")),
    ];
    for (path, value) in edits {
        let mut ports = base();
        let (index, field) = (path[1..2].parse::<usize>().unwrap(), &path[3..]);
        ports[index][field] = value;
        assert_eq!(state(&json!({"spec": {"ports": ports}})), ObjectState::Outdated, "{path}");
    }
    let mut more = base();
    more.as_array_mut()
        .unwrap()
        .push(json!({"name": "more", "port": 99, "targetPort": 99, "protocol": "TCP"}));
    for changes in [
        json!({"spec": {"ports": more}}),
        json!({"spec": {"ports": [base()[0], base()[1]]}}),
        json!({"spec": {"ports": null}}),
        json!({"spec": {"selector": {"app": "web"}}}),
        json!({"spec": {"type": "ClusterIP"}}),
        json!({"spec": {"type": null}}),
        json!({"spec": null}),
    ] {
        assert_eq!(state(&changes), ObjectState::Outdated, "{changes}");
    }
}

#[test]
fn a_node_port_matters_only_if_the_wish_names_one() {
    let mut set = exposed();
    let wanted = set.spec.service.as_mut().unwrap();
    wanted.ports.truncate(1);
    wanted.ports[0].node_port = Some(30_080);
    let mut current: Service =
        serde_json::from_value(service(&set, set.spec.service.as_ref().unwrap())).unwrap();
    let compare = |service: &Service| service_state(Some(service), &set, set.spec.service.as_ref().unwrap());
    assert_eq!(compare(&current), ObjectState::Current);
    current.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(30_081);
    assert_eq!(compare(&current), ObjectState::Outdated);
}

#[test]
fn an_object_of_somebody_else_is_foreign() {
    for (owner, expected) in [
        (owner(SET_UID, true), ObjectState::Current),
        (owner(SET_UID, false), ObjectState::Foreign),
        (owner("other", true), ObjectState::Foreign),
        // Our watches would not show it any more.
        (json!({"metadata": {"labels": {(keys::LABEL_SET): null}}}), ObjectState::Outdated),
        // Left behind by an earlier set of this name.
        (json!({"metadata": {"ownerReferences": null}}), ObjectState::Outdated),
        (
            json!({"metadata": {"ownerReferences": null, "labels": {(keys::LABEL_SET): "other"}}}),
            ObjectState::Foreign,
        ),
        (
            json!({"metadata": {"ownerReferences": null, "labels": {(keys::LABEL_MANAGED_BY): null}}}),
            ObjectState::Foreign,
        ),
    ] {
        assert_eq!(state(&owner), expected, "{owner}");
        assert_eq!(read_slice(&owner).0, expected, "{owner}");
    }
    let set = exposed();
    assert_eq!(service_state(None, &set, set.spec.service.as_ref().unwrap()), ObjectState::Absent);
    let wish = SliceWish { family: IpFamily::IPv4, service: set.spec.service.as_ref().unwrap(), ports: &[] };
    let absent = ExposedSlice { family: IpFamily::IPv4, state: ObjectState::Absent, endpoints: vec![] };
    assert_eq!(exposed_slice(None, &set, wish), absent);
}

#[test]
fn a_name_that_a_write_found_taken_counts_as_foreign_for_a_minute() {
    let mut cache = Cache::default();
    exposed().seen(&mut cache, at(0));
    let key = SetKey { namespace: "shop".into(), name: "web".into() };
    let states = |cache: &Cache, seconds| {
        let exposure = observe(cache, &key, at(seconds)).unwrap().snapshot.exposure.unwrap();
        (exposure.service, exposure.slice_state())
    };
    assert_eq!(states(&cache, 0), (ObjectState::Absent, ObjectState::Absent));
    let taken = |kind, name: &str| {
        Written::NameTaken(TakenName { kind, namespace: "shop".into(), name: name.into() })
    };
    cache.wrote(taken(ExposedKind::Service, "front"), at(0));
    cache.wrote(taken(ExposedKind::Slice, "front-bps"), at(10));
    assert_eq!(states(&cache, 59), (ObjectState::Foreign, ObjectState::Foreign));
    assert_eq!(states(&cache, 60), (ObjectState::Absent, ObjectState::Foreign));
    assert_eq!(states(&cache, 70), (ObjectState::Absent, ObjectState::Absent));

    let set = exposed();
    let own = service(&set, set.spec.service.as_ref().unwrap());
    let own: Service = serde_json::from_value(own).unwrap();
    cache.wrote(taken(ExposedKind::Service, "front"), at(70));
    own.seen(&mut cache, at(71));
    assert_eq!(states(&cache, 72).0, ObjectState::Current);
}

fn endpoint(number: u8) -> Endpoint {
    Endpoint {
        pod: PodName(format!("web-{number}")),
        uid: Uid(format!("u{number}")),
        address: [198, 18, 0, number].into(),
        node: Some(NodeName("n1".into())),
        zone: Some("east".into()),
        is_ready: number == 1,
        is_terminating: number != 1,
    }
}

fn read_slice(changes: &Value) -> (ObjectState, Vec<Endpoint>) {
    let set = exposed();
    let wanted = set.spec.service.as_ref().unwrap();
    let ports = slice_ports(&set, wanted).unwrap();
    let mut body = endpoint_slice(
        &set,
        wanted,
        &ports,
        ShownAddresses { family: IpFamily::IPv4, endpoints: &[endpoint(2), endpoint(1)] },
    );
    merge(&mut body, changes);
    let slice: EndpointSlice = serde_json::from_value(body).unwrap();
    let wish = SliceWish { family: IpFamily::IPv4, service: wanted, ports: &ports };
    let ExposedSlice { state, endpoints, .. } = exposed_slice(Some(&slice), &set, wish);
    (state, endpoints)
}

#[test]
fn a_slice_has_the_hints_that_its_service_asks_for_and_no_others() {
    let state = |distribution: Option<TrafficDistribution>, hints: &Value| {
        let set = exposed();
        let wanted =
            ExposedService { traffic_distribution: distribution, ..set.spec.service.clone().unwrap() };
        let ports = slice_ports(&set, &wanted).unwrap();
        let mut body = endpoint_slice(
            &set,
            &wanted,
            &ports,
            ShownAddresses { family: IpFamily::IPv4, endpoints: &[endpoint(1)] },
        );
        merge(&mut body["endpoints"][0], &json!({"hints": hints}));
        let wish = SliceWish { family: IpFamily::IPv4, service: &wanted, ports: &ports };
        exposed_slice(Some(&serde_json::from_value(body).unwrap()), &set, wish).state
    };
    let zone = Some(TrafficDistribution::PreferSameZone);
    let (east, west) = (json!({"forZones": [{"name": "east"}]}), json!({"forZones": [{"name": "west"}]}));
    assert_eq!(state(zone, &east), ObjectState::Current);
    assert_eq!(state(None, &Value::Null), ObjectState::Current);
    assert_eq!(state(zone, &Value::Null), ObjectState::Outdated);
    assert_eq!(state(zone, &json!({"forZones": null})), ObjectState::Outdated);
    assert_eq!(state(None, &west), ObjectState::Outdated);
}

/// An API server that does not know a word keeps none of it; hints for it would be written for ever.
#[test]
fn hints_follow_the_service_as_it_is() {
    let mut wished = exposed();
    wished.spec.service.as_mut().unwrap().traffic_distribution = Some(TrafficDistribution::PreferSameNode);
    let seen = |kept: &Value| {
        let mut cache = Cache::default();
        wished.clone().seen(&mut cache, at(0));
        let mut body = service(&wished, wished.spec.service.as_ref().unwrap());
        merge(&mut body, &json!({"metadata": {"uid": "u"}, "spec": {"trafficDistribution": kept}}));
        serde_json::from_value::<Service>(body).unwrap().seen(&mut cache, at(0));
        let key = SetKey { namespace: "shop".into(), name: "web".into() };
        observe(&cache, &key, at(0)).unwrap().traffic_distribution
    };
    assert_eq!(seen(&json!("PreferSameNode")), Some(TrafficDistribution::PreferSameNode));
    assert_eq!(seen(&Value::Null), None);
}

#[test]
fn an_annotation_is_news_if_the_operator_wrote_it() {
    let mut set = exposed();
    let options = &mut set.spec.service.as_mut().unwrap().options;
    options.annotations.insert("ours".into(), "1".into());
    let body = service(&set, set.spec.service.as_ref().unwrap());
    let mut cache = Cache::default();
    let mut version = 0;
    let mut shown = |annotations: Value| {
        version += 1;
        let mut changed = body.clone();
        let metadata =
            json!({"uid": "u", "resourceVersion": version.to_string(), "annotations": annotations});
        merge(&mut changed, &json!({"metadata": metadata}));
        serde_json::from_value::<Service>(changed).unwrap().seen(&mut cache, at(0)).len()
    };
    assert_eq!(shown(json!({})), 1);
    assert_eq!(shown(json!({"of-the-cloud": "07:00"})), 0);
    assert_eq!(shown(json!({"of-the-cloud": "07:01"})), 0);
    assert_eq!(shown(json!({"ours": "2"})), 1);
    assert_eq!(shown(json!({"ours": null})), 1);
    assert_eq!(shown(json!({"ours": null, "backup.example.com/written-keys": null})), 1);
}

#[test]
fn a_slice_is_read_back_as_it_was_written_and_sorted() {
    assert_eq!(read_slice(&json!({})), (ObjectState::Current, vec![endpoint(1), endpoint(2)]));
}

#[test]
fn a_slice_with_edited_ports_is_outdated() {
    for ports in [
        json!(null),
        json!([]),
        json!([{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http"}]),
        json!([
            {"name": "http", "port": 8081, "protocol": "TCP", "appProtocol": "http"},
            {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "admin", "port": 8181, "protocol": "TCP"},
        ]),
    ] {
        assert_eq!(read_slice(&json!({"ports": ports})).0, ObjectState::Outdated, "{ports}");
    }
}

#[test]
fn an_address_that_somebody_added_makes_a_slice_outdated() {
    let target = json!({"kind": "Pod", "name": "web-1", "namespace": "shop", "uid": "u1"});
    for added in [
        json!({"addresses": ["198.18.0.9"]}),
        json!({"addresses": ["198.18.0.1", "198.18.0.9"], "targetRef": target}),
        json!({"addresses": ["x"], "targetRef": target}),
    ] {
        let (state, _) = read_slice(&json!({"endpoints": [added]}));
        assert_eq!(state, ObjectState::Outdated, "{added}");
    }
}

#[test]
fn a_slice_that_kube_proxy_would_not_find_is_outdated() {
    for labels in [
        json!({"kubernetes.io/service-name": null}),
        json!({"kubernetes.io/service-name": "other"}),
        json!({"endpointslice.kubernetes.io/managed-by": "somebody"}),
    ] {
        let (state, _) = read_slice(&json!({"metadata": {"labels": labels}}));
        assert_eq!(state, ObjectState::Outdated, "{labels}");
    }
}

#[test]
fn conditions_that_a_slice_leaves_out_have_the_defaults_of_kubernetes() {
    let target = json!({"kind": "Pod", "name": "web-1", "namespace": "shop", "uid": "u1"});
    let (_, read) = read_slice(&json!({"endpoints": [{"addresses": ["198.18.0.1"], "targetRef": target}]}));
    let flags: Vec<_> = read.iter().map(|endpoint| (endpoint.is_ready, endpoint.is_terminating)).collect();
    assert_eq!(flags, [(true, false)]);
}

#[test]
fn a_set_that_waits_for_the_name_of_a_service_hears_at_once_that_it_is_free() {
    let mut cache = Cache::default();
    let wish = exposed();
    let mut former = wish.clone();
    (former.metadata.name, former.metadata.uid) = (Some("former".into()), Some("former-uid".into()));
    let wanted = former.spec.service.clone().unwrap();
    let (mut service, mut slice) = (
        service(&former, &wanted),
        endpoint_slice(&former, &wanted, &[], ShownAddresses { family: IpFamily::IPv4, endpoints: &[] }),
    );
    for object in [&mut service, &mut slice] {
        merge(object, &json!({"metadata": {"uid": "u-former", "resourceVersion": "4"}}));
    }
    let service: Service = serde_json::from_value(service).unwrap();
    let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
    wish.seen(&mut cache, at(0));
    service.clone().seen(&mut cache, at(1));
    slice.clone().seen(&mut cache, at(1));
    let key = |name: &str| SetKey { namespace: "shop".into(), name: name.into() };
    let state =
        |cache: &Cache| observe(cache, &key("web"), at(2)).unwrap().snapshot.exposure.unwrap().service;
    assert_eq!(state(&cache), ObjectState::Foreign);
    let both = [(key("web"), Change::Urgent), (key("former"), Change::Urgent)];
    assert_eq!(service.lost(&mut cache, at(3)), both);
    assert_eq!(slice.lost(&mut cache, at(3)), both);
    assert_eq!(state(&cache), ObjectState::Absent);
}

/// A cache with a set, its Service of these families, and slices with one address each, by name and type.
fn dual_stack(families: &[&str], slices: &[[&str; 2]]) -> Cache {
    let set = exposed();
    let wanted = set.spec.service.as_ref().unwrap();
    let ports = slice_ports(&set, wanted).unwrap();
    let mut cache = Cache::default();
    set.clone().seen(&mut cache, at(0));
    let mut body = service(&set, wanted);
    merge(&mut body, &json!({"metadata": {"uid": "u"}, "spec": {"ipFamilies": families}}));
    serde_json::from_value::<Service>(body).unwrap().seen(&mut cache, at(0));
    for [name, address_type] in slices {
        let other = Endpoint { address: "2001:2::1".parse().unwrap(), ..endpoint(1) };
        let shown = if *address_type == "IPv6" { other } else { endpoint(1) };
        let shown = ShownAddresses { family: IpFamily::IPv4, endpoints: &[shown] };
        let mut slice = endpoint_slice(&set, wanted, &ports, shown);
        let metadata = json!({"name": name, "uid": name, "resourceVersion": "1"});
        merge(&mut slice, &json!({"metadata": metadata, "addressType": address_type}));
        serde_json::from_value::<EndpointSlice>(slice).unwrap().seen(&mut cache, at(0));
    }
    cache
}

/// Each slice in a word: its family, how it is, and how many addresses it has; then what is left over.
fn in_words(cache: &Cache) -> (Vec<String>, Vec<String>) {
    let key = SetKey { namespace: "shop".into(), name: "web".into() };
    let Observation { snapshot, slices, .. } = observe(cache, &key, at(1)).unwrap();
    let word = |slice: &ExposedSlice| {
        let is_misplaced = slices.get(&slice.family).is_some_and(|seen| seen.is_misplaced);
        let mark = if is_misplaced { " misplaced" } else { "" };
        format!("{} {:?} {}{mark}", slice.family.as_str(), slice.state, slice.endpoints.len())
    };
    let shown = snapshot.exposure.unwrap().slices.iter().map(word).collect();
    (shown, snapshot.leftovers.into_iter().map(|object| object.name).collect())
}

#[test]
fn a_service_has_a_slice_for_each_of_its_families() {
    let words = |families: &[&str], slices: &[[&str; 2]]| in_words(&dual_stack(families, slices));
    let (v4, v6) = (["front-bps", "IPv4"], ["front-bps-ipv6", "IPv6"]);
    let given = |shown: &[&str], left: &[&str]| {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        (owned(shown), owned(left))
    };
    // An API server that does not tell has one family.
    assert_eq!(words(&[], &[v4]), given(&["IPv4 Current 1"], &[]));
    assert_eq!(words(&["IPv4"], &[v4, v6]), given(&["IPv4 Current 1"], &["front-bps-ipv6"]));
    assert_eq!(words(&["IPv6"], &[v6]), given(&["IPv6 Current 1"], &[]));
    assert_eq!(words(&["IPv4", "IPv6"], &[v4]), given(&["IPv4 Current 1", "IPv6 Absent 0"], &[]));
    assert_eq!(words(&["IPv6", "IPv4"], &[v4, v6]), given(&["IPv6 Current 1", "IPv4 Current 1"], &[]));
}

#[test]
fn a_slice_of_another_family_than_its_name_says_is_left_over_or_made_anew() {
    let (old, v6) = (["front-bps", "IPv6"], ["front-bps-ipv6", "IPv6"]);
    let (shown, left) = in_words(&dual_stack(&["IPv6"], &[old, v6]));
    assert_eq!((shown, left), (vec!["IPv6 Current 1".to_owned()], vec!["front-bps".to_owned()]));
    let (shown, left) = in_words(&dual_stack(&["IPv4", "IPv6"], &[old, v6]));
    assert_eq!(shown, ["IPv4 Outdated 1 misplaced", "IPv6 Current 1"]);
    assert!(left.is_empty(), "its name is needed: {left:?}");
}

#[test]
fn a_family_that_a_service_has_beside_those_that_are_named_is_no_change() {
    let state = |wanted: &Value, present: &[&str]| {
        let mut set = exposed();
        let families = &mut set.spec.service.as_mut().unwrap().ip_families;
        *families = serde_json::from_value(wanted.clone()).unwrap();
        let mut body = service(&set, set.spec.service.as_ref().unwrap());
        merge(&mut body, &json!({"spec": {"ipFamilies": present, "ipFamilyPolicy": "PreferDualStack"}}));
        let seen = serde_json::from_value(body).unwrap();
        service_state(Some(&seen), &set, set.spec.service.as_ref().unwrap())
    };
    assert_eq!(state(&Value::Null, &["IPv6"]), ObjectState::Current);
    assert_eq!(state(&json!(["IPv4"]), &["IPv4", "IPv6"]), ObjectState::Current);
    assert_eq!(state(&json!(["IPv4", "IPv6"]), &["IPv4"]), ObjectState::Outdated);
    assert_eq!(state(&json!(["IPv6"]), &["IPv4", "IPv6"]), ObjectState::Outdated);
}

/// Their addresses are taken away before anybody else has a Service of that name for long.
#[test]
fn slices_of_a_service_that_somebody_else_has_now_are_still_the_sets() {
    let mut cache = dual_stack(&["IPv6"], &[["front-bps-ipv6", "IPv6"]]);
    let service = cache.services.get(&ObjectKey { namespace: "shop".into(), name: "front".into() });
    let service = Service::clone(service.unwrap());
    service.lost(&mut cache, at(1));
    let taken = TakenName { kind: ExposedKind::Service, namespace: "shop".into(), name: "front".into() };
    cache.wrote(Written::NameTaken(taken), at(1));
    let (shown, left) = in_words(&cache);
    assert_eq!(shown, ["IPv4 Absent 0", "IPv6 Current 1"]);
    assert!(left.is_empty(), "{left:?}");
}
