//! Create, update and delete with the rules of the API server: preconditions, subresources, grace, finalizers.

use serde_json::{Map, Value, json};
use std::sync::Arc;

use crate::simulation::kinds::Trait;
use crate::simulation::refusal::Refusal;
use crate::simulation::world::Actor;
use crate::simulation::world::Key;
use crate::simulation::world::Object;
use crate::simulation::world::World;
use crate::simulation::world::bump_generation;

/// Grace of a Pod that names none, in seconds; the API server's default.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    #[default]
    Main,
    Status,
}

/// Body of a DELETE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub grace_seconds: Option<i64>,
    /// `Background` (or empty), `Foreground`, `Orphan`.
    pub propagation: String,
}

impl DeleteOptions {
    /// Reads a request body; an absent one is the default.
    pub fn parse(body: Option<&Value>) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let Some(body) = body else { return Self::default() };
        Self {
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
            propagation: text(&body["propagationPolicy"]).unwrap_or_default(),
        }
    }

    /// The kubelet's and a person's `--force --grace-period=0`, for one incarnation only.
    pub fn force(object: &Value) -> Self {
        Self {
            uid: object["metadata"]["uid"].as_str().map(str::to_owned),
            grace_seconds: Some(0),
            ..Self::default()
        }
    }
}

/// Metadata that the server sets and a client cannot.
const SERVER_OWNED: &[&str] = &[
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
];

impl World {
    /// Creates an object.
    ///
    /// # Errors
    /// 409 when the name is taken, 400 and 422 for a bad body, 403 by admission.
    pub fn create(&mut self, actor: Actor, key: &Key, mut body: Value) -> Result<Object, Refusal> {
        key.kind.stamp(&mut body)?;
        if self.object(key).is_some() {
            return Err(Refusal::already_exists(key));
        }
        if !body["metadata"]["resourceVersion"].as_str().unwrap_or_default().is_empty() {
            return Err(Refusal::versioned_creation());
        }
        let metadata = body["metadata"].as_object_mut().expect("the name was read from it");
        metadata.retain(|name, _| !SERVER_OWNED.contains(&name.as_str()));
        metadata.insert("name".to_owned(), json!(key.name));
        if key.kind.has(Trait::Namespaced) {
            metadata.insert("namespace".to_owned(), json!(key.namespace));
        }
        if key.kind.has(Trait::StatusSubresource) {
            body.as_object_mut().expect("has metadata").remove("status");
        }
        if key.kind.has(Trait::GracefulDeletion) {
            body["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
        }
        one_controller(key, &body)?;
        self.admission.admit(self, key, &mut body)?;
        self.insert(actor, key, body);
        Ok(Arc::clone(self.object(key).expect("inserted above")))
    }

    /// Stores a client's new version of an object; `part` says what of it counts.
    ///
    /// # Errors
    /// 404, 409 when uid or resourceVersion differ, 422 for what may not change.
    pub fn update(&mut self, actor: Actor, key: &Key, (part, new): (Part, Value)) -> Result<Object, Refusal> {
        let old = Arc::clone(self.object(key).ok_or_else(|| Refusal::not_found(key))?);
        check_identity(key, &old, (part, &new))?;
        let mut merged = match part {
            Part::Main => new,
            Part::Status => {
                let mut merged = Value::clone(&old);
                merged["status"] = new["status"].clone();
                merged
            }
        };
        if part == Part::Main {
            if key.kind.has(Trait::StatusSubresource) {
                merged["status"] = old["status"].clone();
            }
            keep_server_owned(&old, &mut merged);
            key.kind.stamp(&mut merged)?;
        }
        drop_nulls(&mut merged);
        one_controller(key, &merged)?;
        no_new_finalizers(key, &old, &merged)?;
        if let Some(field) = key.kind.frozen.filter(|field| part == Part::Main && merged[field] != old[field])
        {
            return Err(Refusal::invalid(key, field, "Forbidden: field is immutable"));
        }
        let last = Arc::new(merged.clone());
        self.replace(actor, key, merged);
        // An update that took the last finalizer of a deleted object away answers with what it would have stored.
        Ok(self.object(key).map_or(last, Arc::clone))
    }

    /// Deletes an object, or begins to: Pods have a grace period, finalizers hold the object.
    ///
    /// # Errors
    /// 404, and 409 when a precondition fails.
    pub fn delete(&mut self, actor: Actor, key: &Key, options: &DeleteOptions) -> Result<Object, Refusal> {
        let old = Arc::clone(self.object(key).ok_or_else(|| Refusal::not_found(key))?);
        check_delete_preconditions(key, &old, options)?;
        let grace = grace_seconds(key, &old, options);
        let mut new = Value::clone(&old);
        add_propagation_finalizer(&mut new, &options.propagation);
        let is_held = new["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let is_over = grace == 0 && !is_held;
        if is_over && !key.kind.has(Trait::GracefulDeletion) {
            self.remove(actor, key);
            return Ok(self.gone(old));
        }
        let running = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
        if running.is_none_or(|running| grace < running) {
            let seconds = jiff::SignedDuration::from_secs(grace);
            new["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            new["metadata"]["deletionTimestamp"] = self.time_after(seconds);
            if running.is_none() {
                bump_generation(&mut new);
            }
        }
        if is_over {
            self.end(actor, key, new.clone());
            return Ok(self.gone(Arc::new(new)));
        }
        self.replace(actor, key, new);
        Ok(Arc::clone(self.object(key).expect("held by its grace period or a finalizer")))
    }

    /// What the answer to a deletion shows: the last content at the version of the removal.
    fn gone(&self, last: Object) -> Object {
        let mut gone = Value::clone(&last);
        gone["metadata"]["resourceVersion"] = json!(self.revision().to_string());
        Arc::new(gone)
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// An old version is a conflict; with the right one another uid or name is a mistake of the sender.
fn check_identity(key: &Key, old: &Value, (part, new): (Part, &Value)) -> Result<(), Refusal> {
    let (uid, revision) = (text(new, "uid"), text(new, "resourceVersion"));
    let name = text(new, "name");
    if !name.is_empty() && name != key.name {
        let why =
            format!("the name of the object ({name}) does not match the name on the URL ({})", key.name);
        return Err(Refusal::bad_request(&why));
    }
    if !revision.is_empty() && revision != text(old, "resourceVersion") {
        return Err(Refusal::conflict(
            key,
            "the object has been modified; please apply your changes to the latest version and try again",
        ));
    }
    // Of a custom resource, only `status` is taken from what is sent to `/status`.
    let is_ignored = part == Part::Status && key.kind.has(Trait::Custom);
    if !uid.is_empty() && uid != text(old, "uid") && !is_ignored {
        let why = format!("Invalid value: \"{uid}\": field is immutable");
        return Err(Refusal::invalid(key, "metadata.uid", &why));
    }
    Ok(())
}

fn check_delete_preconditions(key: &Key, old: &Value, options: &DeleteOptions) -> Result<(), Refusal> {
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != text(old, "uid")) {
        let actual = text(old, "uid");
        let why = format!("the UID in the precondition ({uid}) does not match the UID in record ({actual})");
        return Err(Refusal::other_deletion(key, &why));
    }
    let actual = text(old, "resourceVersion");
    match options.resource_version.as_deref().filter(|wanted| *wanted != actual) {
        Some(wanted) => Err(Refusal::other_deletion(
            key,
            &format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({actual})"
            ),
        )),
        None => Ok(()),
    }
}

fn no_new_finalizers(key: &Key, old: &Value, new: &Value) -> Result<(), Refusal> {
    let of = |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let before = of(old);
    if text(old, "deletionTimestamp").is_empty() || of(new).iter().all(|one| before.contains(one)) {
        return Ok(());
    }
    let why = "Forbidden: no new finalizers can be added if the object is being deleted";
    Err(Refusal::invalid(key, "metadata.finalizers", why))
}

fn keep_server_owned(old: &Value, new: &mut Value) {
    for field in SERVER_OWNED.iter().chain(&["name", "namespace"]) {
        new["metadata"][*field] = old["metadata"][*field].clone();
    }
}

/// Null and absent are the same to the server, and empty maps and lists in metadata are not stored.
fn drop_nulls(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.retain(|_, value| !value.is_null());
    let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.retain(|_, value| {
        !value.is_null()
            && value.as_object().is_none_or(|map| !Map::is_empty(map))
            && value.as_array().is_none_or(|list| !list.is_empty())
    });
}

fn one_controller(key: &Key, object: &Value) -> Result<(), Refusal> {
    let owners = object["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    if owners.iter().filter(|owner| owner["controller"] == true).count() > 1 {
        let why = "Invalid value: Only one reference can have Controller set to true";
        return Err(Refusal::invalid(key, "metadata.ownerReferences", why));
    }
    Ok(())
}

fn grace_seconds(key: &Key, old: &Value, options: &DeleteOptions) -> i64 {
    let is_over = matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let is_bound = old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    if !key.kind.has(Trait::GracefulDeletion) || is_over || !is_bound {
        return 0;
    }
    let own = old["spec"]["terminationGracePeriodSeconds"].as_i64();
    options.grace_seconds.or(own).unwrap_or(DEFAULT_GRACE_SECONDS)
}

fn add_propagation_finalizer(object: &mut Value, propagation: &str) {
    let finalizer = match propagation {
        "Foreground" => "foregroundDeletion",
        "Orphan" => "orphan",
        _ => return,
    };
    let finalizers = &mut object["metadata"]["finalizers"];
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    let finalizers = finalizers.as_array_mut().expect("finalizers are a list");
    if !finalizers.iter().any(|one| one == finalizer) {
        finalizers.push(json!(finalizer));
    }
}
