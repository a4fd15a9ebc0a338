//! Addresses of others behind the Service of a set.

use bps_api::service::IpFamily;
use bps_core::manifests::{ShownAddresses, endpoint_slice, service};
use bps_core::model::Others;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::{at, merge, set};
use crate::{Cache, Cleared, Observation, SetKey, Watched as _, Written, observe};

fn wish() -> Value {
    json!({"template": super::template(), "service": {"name": "front", "ports": [{"port": 80}]}})
}

/// The set with its Service, changed like this, and its slice.
fn cache(changes: &Value) -> Cache {
    let mut cache = Cache::default();
    let set = set(wish());
    let wanted = set.spec.service.clone().unwrap();
    set.clone().seen(&mut cache, at(0));
    see_service(&mut cache, changes, 0);
    let mut slice =
        endpoint_slice(&set, &wanted, &[], ShownAddresses { family: IpFamily::IPv4, endpoints: &[] });
    merge(&mut slice, &json!({"metadata": {"uid": "u-slice", "resourceVersion": "3"}}));
    serde_json::from_value::<EndpointSlice>(slice).unwrap().seen(&mut cache, at(0));
    cache
}

fn see_service(cache: &mut Cache, changes: &Value, second: i64) {
    let set = set(wish());
    let mut body = service(&set, set.spec.service.as_ref().unwrap());
    let version = (100 + second).to_string();
    merge(&mut body, &json!({"metadata": {"uid": "u-front", "resourceVersion": version}}));
    merge(&mut body, changes);
    serde_json::from_value::<Service>(body).unwrap().seen(cache, at(second));
}

/// A slice of the slice controller: it bears the labels of its Service.
fn foreign() -> EndpointSlice {
    let labels = json!({
        "backup.example.com/set": "web", "kubernetes.io/service-name": "front",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    let metadata = json!({
        "name": "front-x7k", "namespace": "shop", "uid": "u-x7k", "resourceVersion": "5", "labels": labels,
    });
    serde_json::from_value(json!({"metadata": metadata, "addressType": "IPv4", "endpoints": []})).unwrap()
}

fn clear(cache: &mut Cache, left: &[&str], second: i64) {
    let standing =
        left.iter().filter_map(|object| object.strip_prefix("endpointslice/")).map(str::to_owned).collect();
    let left = left.iter().map(|&object| object.to_owned()).collect();
    let (namespace, service, uid) = ("shop".to_owned(), "front".to_owned(), "u-front".to_owned());
    let cleared = Cleared { namespace, service, uid, left, standing, deleted: Vec::new() };
    cache.wrote(Written::Cleared(Box::new(cleared)), at(second));
}

fn seen(cache: &Cache, second: i64) -> Observation {
    let key = SetKey { namespace: "shop".into(), name: "web".into() };
    observe(cache, &key, at(second)).expect("the set is there")
}

fn others(cache: &Cache, second: i64) -> Others {
    seen(cache, second).snapshot.exposure.expect("it is exposed").others
}

#[test]
fn a_service_is_looked_at_first_and_then_once_an_hour() {
    let mut cache = cache(&json!({}));
    assert_eq!(others(&cache, 0), Others::Unknown);
    clear(&mut cache, &[], 1);
    assert_eq!(others(&cache, 3_600), Others::None);
    // An hour, and up to ten minutes more by its uid.
    let again = seen(&cache, 2).snapshot.look_by.expect("it is looked at again");
    let after = again.duration_since(at(1)).as_secs();
    assert!((3_600..4_200).contains(&after), "{after}");
    assert_eq!((others(&cache, after), others(&cache, after + 1)), (Others::None, Others::Unknown));
}

#[test]
fn a_slice_that_bears_our_label_is_looked_at_at_once() {
    let mut cache = cache(&json!({}));
    clear(&mut cache, &[], 1);
    foreign().seen(&mut cache, at(2));
    assert_eq!(others(&cache, 2), Others::Unknown);
    clear(&mut cache, &["endpointslice/front-x7k"], 3);
    let standing = Others::Standing { objects: vec!["endpointslice/front-x7k".to_owned()], until: at(63) };
    assert_eq!(others(&cache, 4), standing);
    assert_eq!(others(&cache, 63), Others::Unknown);
    foreign().lost(&mut cache, at(64));
    clear(&mut cache, &[], 64);
    assert_eq!(others(&cache, 65), Others::None);
}

#[test]
fn what_was_deleted_is_gone_before_the_watch_shows_it() {
    let mut cache = cache(&json!({}));
    foreign().seen(&mut cache, at(1));
    let cleared = Cleared {
        namespace: "shop".into(),
        service: "front".into(),
        uid: "u-front".into(),
        deleted: vec![foreign()],
        ..Cleared::default()
    };
    cache.wrote(Written::Cleared(Box::new(cleared)), at(2));
    assert_eq!((others(&cache, 2), others(&cache, 7)), (Others::None, Others::Unknown), "once more in 5 s");
}

#[test]
fn an_answer_about_a_service_that_is_gone_is_not_kept() {
    let mut cache = cache(&json!({}));
    let service: Service = serde_json::from_value(json!({"metadata": {
        "name": "front", "namespace": "shop", "uid": "u-front", "labels": {"backup.example.com/set": "web"},
    }}))
    .unwrap();
    service.lost(&mut cache, at(1));
    clear(&mut cache, &[], 2);
    see_service(&mut cache, &json!({"metadata": {"uid": "u-next"}}), 3);
    assert_eq!(others(&cache, 3), Others::Unknown);
}

#[test]
fn after_a_selector_it_is_looked_twice() {
    let mut cache = cache(&json!({}));
    clear(&mut cache, &[], 1);
    see_service(&mut cache, &json!({"spec": {"selector": {"app": "web"}}}), 10);
    assert_eq!(others(&cache, 10), Others::None, "first the selector goes");
    see_service(&mut cache, &json!({}), 11);
    assert_eq!(others(&cache, 11), Others::Unknown);
    clear(&mut cache, &[], 11);
    assert_eq!((others(&cache, 15), others(&cache, 16)), (Others::None, Others::Unknown));
    clear(&mut cache, &[], 16);
    assert_eq!(others(&cache, 3_000), Others::None);
}

#[test]
fn what_was_found_behind_a_service_says_nothing_of_the_next_one() {
    let mut cache = cache(&json!({}));
    clear(&mut cache, &[], 1);
    see_service(&mut cache, &json!({"metadata": {"uid": "u-next"}}), 2);
    assert_eq!(others(&cache, 2), Others::Unknown);
}
