//! Objects of our own kinds, read as well as this version of the program can.
//!
//! An operator that is older than the CRD may meet a value that it does not know: after a downgrade, or while both are replaced. One
//! field is no reason to stop the failover of a set, so what cannot be read is left out and named.

use std::borrow::Cow;

use kube_core::{ObjectMeta, Resource};
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most fields that are left out of one object; one with more is not read at all.
const LEFT_OUT_MAX: usize = 16;

/// An object of which this version may not understand everything.
#[derive(Clone, Debug)]
pub enum Readable<K> {
    /// What could be read.
    Object {
        /// The object without what could not be read.
        object: Box<K>,
        /// The first field of its `spec` that could not be read.
        unread: Option<Unread>,
    },
    /// Nothing but whose it is.
    Opaque {
        /// Its metadata.
        metadata: Box<ObjectMeta>,
        /// What could not be read.
        unread: Unread,
    },
}

/// A field that this version of the program does not understand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} cannot be read by this version ({reason}): install the operator and the CRDs of one version")]
pub struct Unread {
    /// Where it is, such as `spec.service.type`.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

impl<K> Readable<K> {
    /// The object, as far as it could be read at all.
    pub fn object(&self) -> Option<&K> {
        match self {
            Self::Object { object, .. } => Some(object),
            Self::Opaque { .. } => None,
        }
    }

    /// What is missing in it.
    pub const fn unread(&self) -> Option<&Unread> {
        match self {
            Self::Object { unread, .. } => unread.as_ref(),
            Self::Opaque { unread, .. } => Some(unread),
        }
    }
}

impl<K> From<K> for Readable<K> {
    fn from(object: K) -> Self {
        Self::Object { object: Box::new(object), unread: None }
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// For the watches of `kube`, which demand it; never sent.
impl<K: Serialize> Serialize for Readable<K> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object { object, .. } => object.serialize(serializer),
            Self::Opaque { metadata, .. } => metadata.serialize(serializer),
        }
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Readable<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind(kind: &()) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &()) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &()) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &()) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Object { object, .. } => object.meta(),
            Self::Opaque { metadata, .. } => metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Object { object, .. } => object.meta_mut(),
            Self::Opaque { metadata, .. } => metadata,
        }
    }
}

/// Reads an object; what cannot be read is left out, the smallest part that will do.
///
/// # Errors
/// The metadata cannot be read.
fn read<K: DeserializeOwned>(mut body: Value) -> Result<Readable<K>, serde_json::Error> {
    let mut unread = None;
    let mut fault = match parsed(&body) {
        Ok(object) => return Ok(Readable::Object { object, unread: None }),
        Err(fault) => fault,
    };
    for _ in 0..LEFT_OUT_MAX {
        let path = left_out::<K>(&mut body, fault.path);
        if path.len() < 2 && path.first().is_none_or(|first| first != "status") {
            break;
        }
        if path[0] == "spec" {
            unread.get_or_insert(Unread { path: path.join("."), reason: fault.reason });
        }
        fault = match parsed(&body) {
            Ok(object) => return Ok(Readable::Object { object, unread }),
            Err(next) => next,
        };
    }
    let unread = Unread { path: "spec".to_owned(), reason: fault.reason };
    let metadata = ObjectMeta::deserialize(&body["metadata"])?;
    Ok(Readable::Opaque { metadata: Box::new(metadata), unread })
}

/// Where an object cannot be read, and why.
struct Fault {
    path: Vec<String>,
    reason: String,
}

fn parsed<K: DeserializeOwned>(body: &Value) -> Result<Box<K>, Fault> {
    serde_path_to_error::deserialize(body).map(Box::new).map_err(|error| {
        let steps = error.path().iter().map(ToString::to_string);
        let path = steps.map(|step| step.trim_matches(['[', ']']).to_owned()).collect();
        Fault { path, reason: error.into_inner().to_string() }
    })
}

/// Takes what is at fault out of an object; returns where it was.
///
/// Of structures whose fields are flattened, the error names only the structure: then each of its fields is tried. A field that is
/// not there, but has to be, takes the structure that it belongs to with it.
fn left_out<K: DeserializeOwned>(body: &mut Value, mut path: Vec<String>) -> Vec<String> {
    let fields: Vec<String> = match at(body, &path) {
        Some(Value::Object(fields)) => fields.keys().cloned().collect(),
        Some(_) | None => Vec::new(),
    };
    for field in fields {
        let inner = [path.clone(), vec![field]].concat();
        let mut without = body.clone();
        take_out(&mut without, &inner);
        if parsed::<K>(&without).err().is_none_or(|fault| fault.path != path) {
            *body = without;
            return inner;
        }
    }
    while path.len() > 1 && at(body, &path).is_none() {
        path.pop();
    }
    take_out(body, &path);
    path
}

fn at<'v>(body: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(body, |value, step| match value {
        Value::Object(fields) => fields.get_mut(step),
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

fn take_out(body: &mut Value, path: &[String]) {
    let Some((last, parents)) = path.split_last() else { return };
    match at(body, parents) {
        Some(Value::Object(fields)) => drop(fields.remove(last)),
        Some(Value::Array(items)) => {
            if let Some(index) = last.parse().ok().filter(|index| *index < items.len()) {
                items.remove(index);
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use bps_api::BackupPodSet;
    use bps_api::service::TrafficPolicy;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn body(changes: &Value) -> Value {
        let mut body = json!({
            "apiVersion": "backup.example.com/v1alpha1",
            "kind": "BackupPodSet",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
            "spec": {
                "replicas": 2,
                "hotBackups": 1,
                "service": {
                    "name": "web",
                    "ports": [{"port": 80}, {"port": 81, "name": "b", "protocol": "UDP"}],
                    "internalTrafficPolicy": "Local",
                },
                "template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}},
            },
        });
        merge(&mut body, changes);
        body
    }

    fn merge(into: &mut Value, changes: &Value) {
        match (into, changes) {
            (Value::Object(into), Value::Object(changes)) => {
                for (key, value) in changes {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, changes) => *into = changes.clone(),
        }
    }

    fn readable(changes: &Value) -> Readable<BackupPodSet> {
        serde_json::from_value(body(changes)).expect("metadata that can be read")
    }

    #[test]
    fn only_what_is_unknown_is_left_out_and_named() {
        let cases = [
            (json!({"scaleInPolicy": "Later"}), "spec.scaleInPolicy"),
            (json!({"updateStrategy": {"type": "Someday", "partition": 1}}), "spec.updateStrategy.type"),
            // Flattened into the Service.
            (
                json!({"service": {"externalTrafficPolicy": "Sometimes"}}),
                "spec.service.externalTrafficPolicy",
            ),
            (json!({"service": {"type": "Magic"}}), "spec.service.type"),
            (json!({"strategy": {"init": "wisest"}}), "spec.strategy.init"),
        ];
        for (changes, path) in cases {
            let read = readable(&json!({"spec": changes}));
            let unread = read.unread().expect("something unknown");
            assert_eq!(unread.path, path);
            let set = read.object().expect("the rest");
            let service = set.spec.service.as_ref().expect("the Service");
            assert_eq!((set.spec.replicas, set.spec.hot_backups, service.ports.len()), (2, 1, 2), "{path}");
            assert_eq!(service.options.internal_traffic_policy, Some(TrafficPolicy::Local), "{path}");
        }
    }

    #[test]
    fn several_unknown_fields_are_left_out_and_the_first_is_named() {
        let read = readable(&json!({"spec": {
            "scaleInPolicy": "Later",
            "service": {"type": "Magic", "ports": [{"port": 80, "protocol": "QUIC"}]},
        }}));
        let set = read.object().expect("the rest");
        assert_eq!(set.spec.service.as_ref().map(|service| service.ports.len()), Some(1));
        let error = read.unread().expect("something unknown").to_string();
        assert!(error.starts_with("spec.") && error.contains("one version"), "{error}");
    }

    #[test]
    fn an_unknown_value_of_the_status_is_no_matter_of_the_user() {
        let read = readable(&json!({"status": {"conditions": 7, "replicas": 2}}));
        assert_eq!(read.unread(), None);
        let set = read.object().expect("the set");
        assert_eq!(set.status.as_ref().map(|status| status.replicas), Some(2));
    }

    #[test]
    fn of_an_object_without_a_spec_the_metadata_is_known() {
        let read = readable(&json!({"spec": {"template": {"spec": 7, "metadata": 8}}}));
        assert!(read.unread().is_some());
        let nothing = readable(&json!({"spec": 7}));
        assert!(nothing.object().is_none());
        assert_eq!(nothing.meta().uid.as_deref(), Some("u1"));
    }

    #[test]
    fn what_can_be_read_is_read_as_always() {
        let read = readable(&json!({}));
        let plain: BackupPodSet = serde_json::from_value(body(&json!({}))).expect("a set");
        assert_eq!(read.unread(), None);
        assert_eq!(
            serde_json::to_value(read.object().expect("the set")).unwrap(),
            serde_json::to_value(plain).unwrap()
        );
    }

    /// Any JSON of a small depth.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,6}", inner, 0..3)
                    .prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        /// A list of sets must never fail for one of them.
        #[test]
        fn whatever_one_field_says_the_metadata_is_known(
            field in prop::sample::select(vec![
                "replicas", "hotBackups", "coldBackups", "strategy", "service", "template", "activeStandby", "updateStrategy",
                "coldStart", "disruption", "paused", "scaleInPolicy", "wakeupTimeout", "somethingNew",
            ]),
            value in any_json(),
        ) {
            let mut body = body(&json!({}));
            body["spec"][field] = value;
            let is_plain = serde_json::from_value::<BackupPodSet>(body.clone()).is_ok();
            let read: Readable<BackupPodSet> = serde_json::from_value(body).expect("metadata that can be read");
            prop_assert_eq!(read.meta().name.as_deref(), Some("web"));
            prop_assert_eq!(read.unread().is_none(), is_plain);
        }
    }
}
