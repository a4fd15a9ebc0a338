//! The truth: objects, one global revision, and an append-only log of everything that was committed.
//!
//! Knows nothing of HTTP. Requests come in through `store`, actors through `edit`, `create` and `delete`.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::simulation::admission::Admission;
use crate::simulation::kinds::Kind;
use crate::simulation::kinds::NODES;
use crate::simulation::kinds::PODS;
use crate::simulation::kinds::Trait;
use crate::simulation::oracle::Invariant;
use crate::simulation::oracle::Violation;
use crate::simulation::physical::Physical;

/// An object as stored; shared between the store, the log and open watches.
pub type Object = Arc<Value>;

/// Where an object lives. The namespace is empty for cluster-wide kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: &'static Kind,
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// A key in a namespace, or cluster-wide when the kind is.
    pub fn new(kind: &'static Kind, namespace: &str, name: &str) -> Self {
        let namespace = if kind.has(Trait::Namespaced) { namespace } else { "" };
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// A Pod in the namespace `default`.
    pub fn pod(name: &str) -> Self {
        Self::new(&PODS, "default", name)
    }

    /// A Node.
    pub fn node(name: &str) -> Self {
        Self::new(&NODES, "", name)
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.kind.plural, self.namespace, self.name)
    }
}

/// Who committed an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The operator; the number is its incarnation, counted from 1.
    Operator(u32),
    Kubelet,
    Scheduler,
    NodeController,
    GarbageCollector,
    /// Whoever sets the scene: a person with kubectl.
    User,
    Monkey,
}

/// One committed change.
#[derive(Clone, Debug)]
pub struct Event {
    pub revision: u64,
    pub key: Key,
    /// `None`: created.
    pub old: Option<Object>,
    /// `None`: removed.
    pub new: Option<Object>,
    pub actor: Actor,
}

/// The simulated cluster.
pub struct World {
    /// Simulated time.
    pub now: Timestamp,
    /// What is true on the nodes, whatever the API says.
    pub physical: Physical,
    /// Who may do what, and what is refused at admission.
    pub admission: Admission,
    /// Checked after every committed event.
    pub oracle: Vec<Box<dyn Invariant>>,
    /// What the oracle found, in order.
    pub violations: Vec<Violation>,
    /// What each manager applied last, for `patch::prune`.
    pub(super) applied: BTreeMap<(Key, String), Value>,
    objects: BTreeMap<Key, Object>,
    log: Vec<Event>,
    compacted: u64,
    incarnations: BTreeMap<Key, u64>,
}

/// Revision of the empty world. Not zero, because `resourceVersion=0` has a meaning of its own.
const FIRST_REVISION: u64 = 1000;

/// Where simulated time begins: 2026-01-01T00:00:00Z.
pub const EPOCH_SECONDS: i64 = 1_767_225_600;

impl Default for World {
    fn default() -> Self {
        Self {
            now: Timestamp::from_second(EPOCH_SECONDS).expect("a constant in range"),
            physical: Physical::default(),
            admission: Admission::default(),
            oracle: Vec::new(),
            violations: Vec::new(),
            applied: BTreeMap::new(),
            objects: BTreeMap::new(),
            log: Vec::new(),
            compacted: FIRST_REVISION,
            incarnations: BTreeMap::new(),
        }
    }
}

impl World {
    /// Revision of the newest event.
    pub fn revision(&self) -> u64 {
        FIRST_REVISION + self.log.len() as u64
    }

    /// All events, oldest first.
    pub fn log(&self) -> &[Event] {
        &self.log
    }

    /// Events after a revision.
    pub fn events_after(&self, revision: u64) -> &[Event] {
        let seen = usize::try_from(revision.saturating_sub(FIRST_REVISION)).unwrap_or(usize::MAX);
        &self.log[seen.min(self.log.len())..]
    }

    /// Oldest revision from which a list or a watch can still be served.
    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Forgets history before now: lists and watches from older revisions get 410.
    pub fn compact(&mut self) {
        self.compacted = self.revision();
    }

    /// The object, if it exists.
    pub fn object(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    /// Every object of a kind in a namespace (empty: all), by key.
    pub fn objects(&self, kind: &'static Kind, namespace: &str) -> impl Iterator<Item = (&Key, &Object)> {
        select(&self.objects, kind, namespace)
    }

    /// The objects of a kind as they were at a revision, by key.
    pub fn objects_at(&self, revision: u64, kind: &'static Kind, namespace: &str) -> BTreeMap<Key, Object> {
        let mut then: BTreeMap<Key, Object> =
            self.objects(kind, namespace).map(|(key, object)| (key.clone(), Arc::clone(object))).collect();
        let wanted = |key: &Key| key.kind == kind && (namespace.is_empty() || key.namespace == namespace);
        for event in self.events_after(revision).iter().rev().filter(|event| wanted(&event.key)) {
            match &event.old {
                Some(old) => then.insert(event.key.clone(), Arc::clone(old)),
                None => then.remove(&event.key),
            };
        }
        then
    }

    /// `now`, to the second, as metadata has it.
    pub fn time(&self) -> Value {
        self.time_after(SignedDuration::ZERO)
    }

    /// The time after a duration, to the second.
    pub fn time_after(&self, duration: SignedDuration) -> Value {
        let at = self.now.saturating_add(duration).expect("a signed duration always saturates");
        Value::String(Timestamp::from_second(at.as_second()).expect("in range").to_string())
    }

    /// Commits a change by an actor that the server trusts to touch spec and status alike.
    ///
    /// Returns false, and commits nothing, when the object is not there or nothing changed.
    pub fn edit(&mut self, actor: Actor, key: &Key, change: impl FnOnce(&mut Value)) -> bool {
        let Some(old) = self.objects.get(key).cloned() else { return false };
        let mut new = Value::clone(&old);
        change(&mut new);
        self.replace(actor, key, new)
    }

    /// Stores a new version of an object, unless it is the same; counts the generation.
    pub(super) fn replace(&mut self, actor: Actor, key: &Key, mut new: Value) -> bool {
        let old = Arc::clone(&self.objects[key]);
        let labels = |object: &Value| object["metadata"]["labels"].clone();
        let is_labelled = key.kind.has(Trait::CountsLabels) && labels(&old) != labels(&new);
        if key.kind.has(Trait::Generation) && (is_labelled || desired(&old) != desired(&new)) {
            bump_generation(&mut new);
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        if new == *old {
            return false;
        }
        let metadata = &new["metadata"];
        let is_released = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
        let is_over = !metadata["deletionTimestamp"].is_null() && metadata["deletionGracePeriodSeconds"] == 0;
        self.commit(actor, key, (!(is_over && is_released)).then_some(new));
        true
    }

    /// Stores an object that does not exist yet, under a fresh uid.
    pub(super) fn insert(&mut self, actor: Actor, key: &Key, mut new: Value) {
        let nth = self.incarnations.entry(key.clone()).or_default();
        *nth += 1;
        let uid = uid(key, *nth);
        let metadata = &mut new["metadata"];
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = self.time();
        if key.kind.has(Trait::Generation) {
            metadata["generation"] = json!(1);
        }
        self.commit(actor, key, Some(new));
    }

    /// Stores the last version of an object and removes it, which watches see as two events.
    pub(super) fn end(&mut self, actor: Actor, key: &Key, last: Value) {
        self.commit(actor, key, Some(last));
        self.commit(actor, key, None);
    }

    /// Removes an object at once.
    pub(super) fn remove(&mut self, actor: Actor, key: &Key) {
        self.commit(actor, key, None);
    }

    fn commit(&mut self, actor: Actor, key: &Key, new: Option<Value>) {
        let revision = self.revision() + 1;
        let new = new.map(|mut object| {
            object["metadata"]["resourceVersion"] = json!(revision.to_string());
            Arc::new(object)
        });
        let old = match &new {
            Some(new) => self.objects.insert(key.clone(), Arc::clone(new)),
            None => self.objects.remove(key),
        };
        if new.is_none() {
            self.applied.retain(|(applied, _), _| applied != key);
        }
        self.log.push(Event { revision, key: key.clone(), old, new, actor });
        self.judge(|world, invariant| {
            let event = world.log.last().expect("pushed above");
            invariant.on_event(world, event)
        });
    }

    /// Asks every invariant, and notes what it finds.
    pub fn judge(&mut self, ask: impl Fn(&World, &mut dyn Invariant) -> Result<(), String>) {
        let mut oracle = std::mem::take(&mut self.oracle);
        for invariant in &mut oracle {
            if let Err(detail) = ask(self, invariant.as_mut()) {
                let revision = self.revision();
                self.violations.push(Violation { invariant: invariant.name(), revision, detail });
            }
        }
        self.oracle = oracle;
    }
}

fn select<'a>(
    objects: &'a BTreeMap<Key, Object>,
    kind: &'static Kind,
    namespace: &str,
) -> impl Iterator<Item = (&'a Key, &'a Object)> {
    let all = namespace.is_empty();
    let namespace = namespace.to_owned();
    let first = Key { kind, namespace: namespace.clone(), name: String::new() };
    objects.range(first..).take_while(move |(key, _)| key.kind == kind && (all || key.namespace == namespace))
}

/// What generation counts: everything but `metadata` and `status`.
fn desired(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().expect("objects are objects");
    fields.iter().filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status")).collect()
}

/// Adds one to the generation, if the object has one.
pub(super) fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

/// A uid that depends on the name and its how-manieth bearer only, so that runs with and without faults agree.
fn uid(key: &Key, nth: u64) -> String {
    // FNV-1a, 64 bit.
    let hash = key.to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{:08x}-{:04x}-4000-8000-{nth:012x}", hash >> 32, hash & 0xffff)
}
