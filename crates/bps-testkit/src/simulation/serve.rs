//! Carries out one understood request on the world.

use crate::simulation::api::{Hub, State};
use serde_json::{Value, json};

use crate::simulation::kinds::Trait;
use crate::simulation::list;
use crate::simulation::oracle::Violation;
use crate::simulation::patch;
use crate::simulation::refusal::Refusal;
use crate::simulation::request::PatchType;
use crate::simulation::request::Request;
use crate::simulation::request::Verb;
use crate::simulation::store::DeleteOptions;
use crate::simulation::store::Part;
use crate::simulation::watch::Watch;
use crate::simulation::world::Actor;
use crate::simulation::world::Key;
use crate::simulation::world::World;

/// What the server answers.
pub enum Reply {
    Json(u16, Value),
    Refused(Refusal),
    Watch(Box<Watch>),
}

impl Reply {
    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Json(code, _) => *code,
            Self::Refused(refusal) => refusal.code,
            Self::Watch(_) => 200,
        }
    }

    /// The answer to `/version`.
    pub fn version() -> Self {
        let version = json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.0-simulated", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        });
        Self::Json(200, version)
    }
}

/// Authorises and carries out a request; reads are served from `age` events ago.
pub fn carry_out(hub: &Hub, state: &mut State, from: (u32, &Request), age: u64) -> Reply {
    let (incarnation, request) = from;
    let world = &mut state.world;
    let verb = request.verb.name();
    if let Err(refusal) = world.admission.authorise(verb, &request.key, request.subresource()) {
        let (revision, detail) = (world.revision(), format!("{request} is not in the table"));
        world.violations.push(Violation { invariant: "RBAC", revision, detail });
        return Reply::Refused(refusal);
    }
    let actor = Actor::Operator(incarnation);
    let result = match request.verb {
        Verb::Get => list::get(world, request, age).map(|object| (200, object)),
        Verb::List => list::list(world, request, age).map(|list| (200, list)),
        Verb::Watch => {
            return match Watch::open(hub, world, request.clone(), incarnation) {
                Ok(watch) => Reply::Watch(Box::new(watch)),
                Err(refusal) => Reply::Refused(refusal),
            };
        }
        Verb::Create => body(request)
            .and_then(|body| world.create(actor, &request.key, body.clone()))
            .map(|object| (201, Value::clone(&object))),
        Verb::Update => update(world, actor, request),
        Verb::Patch => patch_object(world, actor, request),
        Verb::Delete => delete(world, actor, request).map(|object| (200, object)),
    };
    match result {
        Ok((code, object)) => {
            let object =
                if request.verb.is_write() { list::shape(&object, request.metadata_only) } else { object };
            Reply::Json(code, object)
        }
        Err(refusal) => Reply::Refused(refusal),
    }
}

fn body(request: &Request) -> Result<&Value, Refusal> {
    request.body.as_ref().ok_or_else(|| Refusal::bad_request("the request has no body"))
}

fn update(world: &mut World, actor: Actor, request: &Request) -> Result<(u16, Value), Refusal> {
    let key = &request.key;
    let (uid, revision) = request.guards();
    let found = world.object(key).map(|object| object["metadata"]["uid"].as_str().unwrap_or_default());
    if found.is_none() && !key.kind.has(Trait::CreateOnUpdate) {
        return Err(Refusal::not_found(key));
    }
    // Unlike in a patch, the uid in an update is a precondition, also for what would be created.
    let found = found.unwrap_or_default();
    if let Some(uid) = uid.filter(|uid| !uid.is_empty() && uid != found) {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
        return Err(Refusal::conflict(key, &why));
    }
    if found.is_empty() {
        return create_by_update(world, actor, request);
    }
    insist_on_version(key, revision.as_deref())?;
    let object = world.update(actor, key, (request.part, body(request)?.clone()))?;
    Ok((200, Value::clone(&object)))
}

/// Some kinds are written on a version alone.
fn insist_on_version(key: &Key, version: Option<&str>) -> Result<(), Refusal> {
    let is_unconditional = version.is_none_or(str::is_empty);
    if is_unconditional && !key.kind.has(Trait::UnconditionalUpdate) {
        let why = "Invalid value: 0: must be specified for an update";
        return Err(Refusal::invalid(key, "metadata.resourceVersion", why));
    }
    Ok(())
}

fn create_by_update(world: &mut World, actor: Actor, request: &Request) -> Result<(u16, Value), Refusal> {
    world.admission.authorise("create", &request.key, "")?;
    let mut body = body(request)?.clone();
    // The version of what it was meant to replace is not looked at.
    body["metadata"]["resourceVersion"] = Value::Null;
    let object = world.create(actor, &request.key, body)?;
    Ok((201, Value::clone(&object)))
}

fn delete(world: &mut World, actor: Actor, request: &Request) -> Result<Value, Refusal> {
    let key = &request.key;
    let object = world.delete(actor, key, &DeleteOptions::parse(request.body.as_ref()))?;
    if key.kind.has(Trait::ReturnsDeleted) || world.object(key).is_some() {
        return Ok(Value::clone(&object));
    }
    let uid = &object["metadata"]["uid"];
    let mut details = json!({"name": key.name, "kind": key.kind.plural, "uid": uid});
    if !key.kind.group.is_empty() {
        details["group"] = json!(key.kind.group);
    }
    Ok(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    }))
}

fn patch_object(world: &mut World, actor: Actor, request: &Request) -> Result<(u16, Value), Refusal> {
    let key = &request.key;
    let body = body(request)?;
    let patch_type = request.patch_type.expect("a PATCH was parsed with its type");
    if patch_type == PatchType::Apply {
        return apply(world, actor, request);
    }
    let mut new = Value::clone(world.object(key).ok_or_else(|| Refusal::not_found(key))?);
    match patch_type {
        PatchType::Json => patch::json_patch(&mut new, body)?,
        PatchType::Strategic if !patch::is_plain_merge(body) => {
            return Err(Refusal::bad_request("a strategic merge of lists is not simulated"));
        }
        PatchType::Merge | PatchType::Strategic | PatchType::Apply => patch::merge(&mut new, body),
    }
    // A patch may take it away.
    insist_on_version(key, new["metadata"]["resourceVersion"].as_str())?;
    let object = world.update(actor, key, (request.part, new))?;
    Ok((200, Value::clone(&object)))
}

fn apply(world: &mut World, actor: Actor, request: &Request) -> Result<(u16, Value), Refusal> {
    let key = &request.key;
    let body = body(request)?;
    let manager = request.parameter("fieldManager");
    if manager.is_empty() {
        return Err(Refusal::bad_request("PatchOptions is invalid: fieldManager: Required value"));
    }
    let applied_as = (key.clone(), format!("{manager}/{}", request.subresource()));
    let Some(old) = world.object(key) else {
        return create_by_apply(world, actor, request);
    };
    let mut new = Value::clone(old);
    if let Some(before) = world.applied.get(&applied_as) {
        patch::prune(&mut new, before, body);
    }
    patch::merge(&mut new, body);
    let object = world.update(actor, key, (request.part, new))?;
    world.applied.insert(applied_as, without_guards(body));
    Ok((200, Value::clone(&object)))
}

fn create_by_apply(world: &mut World, actor: Actor, request: &Request) -> Result<(u16, Value), Refusal> {
    let key = &request.key;
    if request.part == Part::Status {
        return Err(Refusal::not_found(key));
    }
    if request.guards() != (None, None) {
        return Err(Refusal::conflict(
            key,
            "a uid or resourceVersion was sent for an object that does not exist",
        ));
    }
    world.admission.authorise("create", key, "")?;
    let body = body(request)?;
    let object = world.create(actor, key, body.clone())?;
    let manager = request.parameter("fieldManager");
    world.applied.insert((key.clone(), format!("{manager}/")), without_guards(body));
    Ok((201, Value::clone(&object)))
}

/// What apply must not later take away: identity is not a field that a manager owns.
fn without_guards(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.retain(|name, _| !matches!(name.as_str(), "uid" | "resourceVersion" | "name" | "namespace"));
    }
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
    }
    body
}
