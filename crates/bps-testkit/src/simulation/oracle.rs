//! Invariants that are checked after every committed event and every request: what must never be seen.
//!
//! An invariant is pluggable: it gets events, requests and replies, keeps what it needs, and says what is wrong.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::simulation::kinds::BACKUP_POD_SETS;
use crate::simulation::kinds::PODS;
use crate::simulation::request::Request;
use crate::simulation::request::Verb;
use crate::simulation::world::Actor;
use crate::simulation::world::Event;
use crate::simulation::world::Key;
use crate::simulation::world::Object;
use crate::simulation::world::World;

/// Something that must hold throughout a run.
pub trait Invariant: Send {
    /// Short name for reports.
    fn name(&self) -> &'static str;

    /// Looks at an event that was just committed; the world is as it left it.
    ///
    /// # Errors
    /// What is wrong.
    fn on_event(&mut self, _world: &World, _event: &Event) -> Result<(), String> {
        Ok(())
    }

    /// Looks at a write of the operator when it is sent; the world is as it finds it.
    ///
    /// # Errors
    /// What is wrong.
    fn on_request(&mut self, _world: &World, _request: &Request, _incarnation: u32) -> Result<(), String> {
        Ok(())
    }

    /// Hears that a write was acknowledged to the operator with this HTTP code.
    ///
    /// # Errors
    /// What is wrong.
    fn on_reply(&mut self, _request: &Request, _incarnation: u32, _code: u16) -> Result<(), String> {
        Ok(())
    }

    /// Looks at the world when nothing moves any more.
    ///
    /// # Errors
    /// What is wrong.
    fn at_rest(&mut self, _world: &World) -> Result<(), String> {
        Ok(())
    }
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub revision: u64,
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at revision {}: {}", self.invariant, self.revision, self.detail)
    }
}

/// A label of an object; empty when absent.
pub fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

/// Whether a Pod's condition Ready is True and it is not being deleted.
pub fn is_healthy(pod: &Value) -> bool {
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    pod["metadata"]["deletionTimestamp"].is_null()
        && pod["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(ready))
}

/// The owner reference that has `controller: true`.
pub fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// At every revision, at most `most` objects of a kind share a group. (I3 with `most` 1: one active per pair.)
pub struct AtMost {
    pub name: &'static str,
    pub most: usize,
    /// The group of a Pod; `None` when the Pod does not count.
    pub group: fn(&Value) -> Option<String>,
}

impl Invariant for AtMost {
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_event(&mut self, world: &World, event: &Event) -> Result<(), String> {
        let Some(group) =
            event.new.as_ref().filter(|_| event.key.kind == &PODS).and_then(|pod| (self.group)(pod))
        else {
            return Ok(());
        };
        let pods = world.objects(&PODS, &event.key.namespace);
        let members: Vec<&str> = pods
            .filter(|(_, pod)| (self.group)(pod).as_ref() == Some(&group))
            .map(|(key, _)| key.name.as_str())
            .collect();
        if members.len() > self.most {
            return Err(format!("{group}: {}", members.join(", ")));
        }
        Ok(())
    }
}

/// LAST-PRIMARY: the operator never deletes or demotes the last healthy primary of a set that wants primaries.
pub struct LastPrimary;

/// Labels that name the set and the role of a Pod.
pub const SET_LABEL: &str = "backup.example.com/set";
pub const ROLE_LABEL: &str = "backup.example.com/role";

impl Invariant for LastPrimary {
    fn name(&self) -> &'static str {
        "LAST-PRIMARY"
    }

    fn on_event(&mut self, world: &World, event: &Event) -> Result<(), String> {
        let serves = |pod: &Object| label(pod, ROLE_LABEL) == "primary" && is_healthy(pod);
        let Some(old) = event.old.as_ref().filter(|old| event.key.kind == &PODS && serves(old)) else {
            return Ok(());
        };
        let is_ours = matches!(event.actor, Actor::Operator(_));
        if !is_ours || event.new.as_ref().is_some_and(serves) {
            return Ok(());
        }
        let set = label(old, SET_LABEL);
        let wants_primaries =
            world.object(&Key::new(&BACKUP_POD_SETS, &event.key.namespace, set)).is_some_and(|set| {
                set["metadata"]["deletionTimestamp"].is_null()
                    && set["spec"]["replicas"].as_i64().unwrap_or(1) > 0
            });
        let others = world.objects(&PODS, &event.key.namespace);
        let is_last = !others.into_iter().any(|(_, pod)| label(pod, SET_LABEL) == set && serves(pod));
        if wants_primaries && is_last {
            return Err(format!("{} was the last healthy primary of {set}", event.key.name));
        }
        Ok(())
    }
}

/// NO-FOREIGN: the operator changes only objects that a `BackupPodSet` controls, and creates no others.
///
/// Kinds that have no controller are exempt.
pub struct NoForeign {
    pub exempt: Vec<&'static str>,
}

impl Default for NoForeign {
    fn default() -> Self {
        Self { exempt: vec!["backuppodsets", "leases", "events", "secrets"] }
    }
}

impl Invariant for NoForeign {
    fn name(&self) -> &'static str {
        "NO-FOREIGN"
    }

    fn on_event(&mut self, world: &World, event: &Event) -> Result<(), String> {
        let is_ours = matches!(event.actor, Actor::Operator(_));
        if !is_ours || self.exempt.contains(&event.key.kind.plural) {
            return Ok(());
        }
        // Without a controller it is nobody's: to adopt it is no foreign write.
        let was_orphan = event.old.as_ref().is_some_and(|old| controller(old).is_none());
        let adopted = event.new.as_ref().filter(|_| was_orphan);
        let touched = adopted.or(event.old.as_ref()).or(event.new.as_ref()).expect("an event has an object");
        let owner = controller(touched).filter(|owner| owner["kind"] == "BackupPodSet");
        let set_uid = owner.and_then(|owner| owner["uid"].as_str()).unwrap_or_default();
        let is_there = world.objects(&BACKUP_POD_SETS, "").any(|(_, set)| set["metadata"]["uid"] == set_uid);
        let ever_was = is_there
            || world.log().iter().any(|past| {
                let is_set = past.key.kind == &BACKUP_POD_SETS && past.key.namespace == event.key.namespace;
                is_set && past.new.as_ref().is_some_and(|set| set["metadata"]["uid"] == set_uid)
            });
        if ever_was {
            return Ok(());
        }
        Err(format!("{} is controlled by {:?}", event.key, owner.map(|owner| &owner["name"])))
    }
}

/// GUARDED: each delete names uid and resourceVersion, each change of a Pod names the resourceVersion.
pub struct Guarded;

impl Invariant for Guarded {
    fn name(&self) -> &'static str {
        "GUARDED"
    }

    fn on_request(&mut self, _: &World, request: &Request, _: u32) -> Result<(), String> {
        let (uid, revision) = request.guards();
        let is_guarded = match request.verb {
            Verb::Delete => uid.is_some() && revision.is_some(),
            Verb::Patch | Verb::Update => revision.is_some() || request.key.kind != &PODS,
            Verb::Create | Verb::Get | Verb::List | Verb::Watch => true,
        };
        if is_guarded { Ok(()) } else { Err(format!("{request} is not guarded")) }
    }
}

/// ONE-CREATE: one incarnation does not create again what it was told it had created and nobody removed.
///
/// Leases and Secrets are exempt: whoever is told that one is not there may create it, and the name guards it.
#[derive(Default)]
pub struct OneCreate {
    acknowledged: BTreeMap<Key, BTreeSet<u32>>,
}

impl Invariant for OneCreate {
    fn name(&self) -> &'static str {
        "ONE-CREATE"
    }

    fn on_event(&mut self, _: &World, event: &Event) -> Result<(), String> {
        if event.new.is_none() {
            self.acknowledged.remove(&event.key);
        }
        Ok(())
    }

    fn on_request(&mut self, _: &World, request: &Request, incarnation: u32) -> Result<(), String> {
        let known = self.acknowledged.get(&request.key).is_some_and(|all| all.contains(&incarnation));
        if request.verb == Verb::Create && known {
            return Err(format!("{request} again"));
        }
        Ok(())
    }

    fn on_reply(&mut self, request: &Request, incarnation: u32, code: u16) -> Result<(), String> {
        if request.verb == Verb::Create
            && code < 300
            && !matches!(request.key.kind.plural, "leases" | "secrets")
        {
            self.acknowledged.entry(request.key.clone()).or_default().insert(incarnation);
        }
        Ok(())
    }
}

/// STATUS-TRUE: a status is never from the future, and at rest it is of the newest spec.
///
/// A set without `status.observedGeneration` is not judged.
pub struct StatusTrue;

fn generations(set: &Value) -> Option<(i64, i64)> {
    Some((set["status"]["observedGeneration"].as_i64()?, set["metadata"]["generation"].as_i64()?))
}

impl Invariant for StatusTrue {
    fn name(&self) -> &'static str {
        "STATUS-TRUE"
    }

    fn on_event(&mut self, _: &World, event: &Event) -> Result<(), String> {
        let set = event.new.as_ref().filter(|_| event.key.kind == &BACKUP_POD_SETS);
        match set.and_then(|set| generations(set)) {
            Some((observed, actual)) if observed > actual => {
                Err(format!("{} observed generation {observed} of {actual}", event.key))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn at_rest(&mut self, world: &World) -> Result<(), String> {
        let mut sets = world.objects(&BACKUP_POD_SETS, "");
        let behind = |set: &Object| generations(set).is_some_and(|(observed, actual)| observed != actual);
        match sets.find(|(_, set)| behind(set)) {
            Some((key, _)) => Err(format!("{key} rests with the status of another generation")),
            None => Ok(()),
        }
    }
}

/// The invariants that hold for every set, whatever the scenario.
pub fn standard() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(LastPrimary),
        Box::new(NoForeign::default()),
        Box::new(Guarded),
        Box::new(StatusTrue),
        Box::new(OneCreate::default()),
    ]
}
