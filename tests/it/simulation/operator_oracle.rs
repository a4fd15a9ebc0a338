//! What must hold whenever the real operator runs, beyond the standard invariants.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::simulation::{
    kinds::{BACKUP_POD_SETS, ENDPOINT_SLICES, LEASES, PODS, SECRETS, SERVICES},
    oracle::{Invariant, ROLE_LABEL, SET_LABEL, controller, is_healthy, label, standard},
    request::{Request, Verb},
    world::{Actor, Event, Key, Object, World},
};

/// Hexadecimal digits at the end of a Pod's name.
const NAME_DIGITS: usize = 12;

/// The standard invariants and the operator's own.
pub fn all() -> Vec<Box<dyn Invariant>> {
    let mut all = standard();
    all.push(Box::new(FullyGuarded));
    all.push(Box::new(Named));
    all.push(Box::new(Capacity));
    all.push(Box::new(Bounded { once_silent: BTreeSet::new() }));
    all.push(Box::new(StatusOfWorld));
    all.push(Box::new(ExposedInStep));
    all.push(Box::new(NothingLeftOver));
    all.push(Box::new(NoLeak::default()));
    all.push(Box::new(Budgeted::default()));
    all
}

fn is_ours(event: &Event) -> bool {
    matches!(event.actor, Actor::Operator(_))
}

/// Pods that a set controls.
fn pods_of<'w>(world: &'w World, key: &'w Key, set: &'w Object) -> impl Iterator<Item = &'w Object> {
    let uid = &set["metadata"]["uid"];
    let pods = world.objects(&PODS, &key.namespace).map(|(_, pod)| pod);
    pods.filter(move |pod| controller(pod).is_some_and(|owner| owner["uid"] == *uid))
}

fn serves(pod: &Object) -> bool {
    label(pod, ROLE_LABEL) == "primary" && is_healthy(pod)
}

fn number(value: &Value) -> usize {
    value.as_u64().map_or(0, |number| usize::try_from(number).expect("small"))
}

/// Every change of a Pod, Service, slice or status names both uid and resourceVersion. Of budgets and groups the uid is enough:
/// all that is written there follows from the set, and their statuses change with each Pod.
struct FullyGuarded;

impl Invariant for FullyGuarded {
    fn name(&self) -> &'static str {
        "FULLY-GUARDED"
    }

    fn on_request(&mut self, _: &World, request: &Request, _: u32) -> Result<(), String> {
        let is_change = matches!(request.verb, Verb::Patch | Verb::Update | Verb::Delete);
        let is_exempt = matches!(request.key.kind.plural, "leases" | "secrets" | "events");
        let (uid, revision) = request.guards();
        let is_wish = matches!(request.key.kind.plural, "poddisruptionbudgets" | "hagroups")
            && request.verb == Verb::Patch;
        if !is_change || is_exempt || (uid.is_some() && (revision.is_some() || is_wish)) {
            return Ok(());
        }
        Err(format!("{request} lacks uid or resourceVersion"))
    }
}

/// Pods are created under deterministic names: the set's name, a dash, 12 hexadecimal digits.
struct Named;

impl Invariant for Named {
    fn name(&self) -> &'static str {
        "NAMED"
    }

    fn on_request(&mut self, _: &World, request: &Request, _: u32) -> Result<(), String> {
        if request.verb != Verb::Create || request.key.kind != &PODS {
            return Ok(());
        }
        let body = request.body.as_ref().unwrap_or(&Value::Null);
        let digits =
            request.key.name.strip_prefix(&format!("{}-", label(body, SET_LABEL))).unwrap_or_default();
        let are_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_named = digits.len() == NAME_DIGITS && are_hexadecimal;
        if is_named && body["metadata"]["generateName"].is_null() { Ok(()) } else { Err(request.to_string()) }
    }
}

/// The operator never takes a serving primary away unless as many as are wanted remain.
struct Capacity;

impl Invariant for Capacity {
    fn name(&self) -> &'static str {
        "CAPACITY"
    }

    fn on_event(&mut self, world: &World, event: &Event) -> Result<(), String> {
        let Some(old) = event.old.as_ref().filter(|old| event.key.kind == &PODS && serves(old)) else {
            return Ok(());
        };
        if !is_ours(event) || event.new.as_ref().is_some_and(serves) {
            return Ok(());
        }
        let key = Key::new(&BACKUP_POD_SETS, &event.key.namespace, label(old, SET_LABEL));
        let Some(set) = world.object(&key) else { return Ok(()) };
        let wanted = number(&set["spec"]["replicas"]);
        let left = pods_of(world, &key, set).filter(|pod| serves(pod)).count();
        if left >= wanted { Ok(()) } else { Err(format!("{} left {left} of {wanted}", event.key)) }
    }
}

/// A create of the operator never leads beyond what is wanted and the one extra Pod of a rollout.
///
/// Pods that go away, that have ended, or whose node is silent do not count; after a storm neither do those whose node
/// was silent in it, because the operator may not have heard of its return yet.
struct Bounded {
    once_silent: BTreeSet<String>,
}

impl Invariant for Bounded {
    fn name(&self) -> &'static str {
        "BOUNDED"
    }

    fn on_event(&mut self, world: &World, event: &Event) -> Result<(), String> {
        let silent = &world.physical.stopped_nodes;
        if silent.len() > 1 {
            self.once_silent.extend(silent.iter().cloned());
        }
        let Some(new) = event.new.as_ref().filter(|_| is_ours(event) && event.old.is_none()) else {
            return Ok(());
        };
        let key = Key::new(&BACKUP_POD_SETS, &event.key.namespace, label(new, SET_LABEL));
        let Some(set) = world.object(&key).filter(|_| event.key.kind == &PODS) else { return Ok(()) };
        let counts = |pod: &&Object| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && pod["status"]["phase"] != "Failed"
                && !silent.contains(crate::simulation::actors::node_of(pod))
                && !self.once_silent.contains(crate::simulation::actors::node_of(pod))
        };
        let count = pods_of(world, &key, set).filter(counts).count();
        let spec = &set["spec"];
        let wanted: usize =
            ["replicas", "hotBackups", "coldBackups"].iter().map(|tier| number(&spec[tier])).sum();
        if count <= wanted + 1 { Ok(()) } else { Err(format!("{count} Pods of {wanted}")) }
    }
}

/// At rest the counts of a status are those of the world, and the names in it exist.
struct StatusOfWorld;

impl Invariant for StatusOfWorld {
    fn name(&self) -> &'static str {
        "STATUS-OF-WORLD"
    }

    fn at_rest(&mut self, world: &World) -> Result<(), String> {
        for (key, set) in world.objects(&BACKUP_POD_SETS, "") {
            let status = &set["status"];
            let count = |role: &str, wants_healthy: bool| {
                let of_role = pods_of(world, key, set).filter(|pod| label(pod, ROLE_LABEL) == role);
                of_role.filter(|pod| !wants_healthy || is_healthy(pod)).count()
            };
            let shown = (number(&status["readyReplicas"]), number(&status["readyHotBackups"]));
            let actual = (count("primary", true), count("hot", true));
            if shown != actual {
                return Err(format!("{key} shows {shown:?} ready of {actual:?}"));
            }
            let names =
                status["pods"].as_object().into_iter().flatten().filter_map(|(_, names)| names.as_array());
            for name in names.flatten().filter_map(Value::as_str) {
                if world.object(&Key::new(&PODS, &key.namespace, name)).is_none() {
                    return Err(format!("{key} names {name}, which is gone"));
                }
            }
            if status["observedGeneration"] != set["metadata"]["generation"] {
                return Err(format!("{key} rests with the status of another generation"));
            }
        }
        Ok(())
    }
}

/// At rest the addresses behind a Service are exactly those of the ready primaries.
struct ExposedInStep;

impl Invariant for ExposedInStep {
    fn name(&self) -> &'static str {
        "EXPOSED-IN-STEP"
    }

    fn at_rest(&mut self, world: &World) -> Result<(), String> {
        for (key, set) in world.objects(&BACKUP_POD_SETS, "") {
            // Also of a paused set: it goes on to protect clients.
            let Some(name) = set["spec"]["service"]["name"].as_str() else { continue };
            let slice = world.object(&Key::new(&ENDPOINT_SLICES, &key.namespace, &format!("{name}-bps")));
            let exposed: BTreeSet<&str> = slice
                .and_then(|slice| slice["endpoints"].as_array())
                .into_iter()
                .flatten()
                .filter(|endpoint| endpoint["conditions"]["ready"] == true)
                .filter_map(|endpoint| endpoint["targetRef"]["uid"].as_str())
                .collect();
            let ready: BTreeSet<&str> = pods_of(world, key, set)
                .filter(|pod| serves(pod))
                .filter_map(|pod| pod["metadata"]["uid"].as_str())
                .collect();
            // In a storm what is seen of the nodes is in doubt, so who was exposed stays exposed.
            let is_storm = world.physical.stopped_nodes.len() > 1;
            if exposed != ready && !(is_storm && exposed.is_superset(&ready)) {
                return Err(format!("{key} exposes {exposed:?}, ready are {ready:?}"));
            }
        }
        Ok(())
    }
}

/// At rest a set exposes nothing but what its spec names.
struct NothingLeftOver;

impl Invariant for NothingLeftOver {
    fn name(&self) -> &'static str {
        "NOTHING-LEFT-OVER"
    }

    fn at_rest(&mut self, world: &World) -> Result<(), String> {
        for (key, set) in world.objects(&BACKUP_POD_SETS, "") {
            let spec = &set["spec"];
            if spec["paused"] == true {
                continue;
            }
            let service = spec["service"]["name"].as_str();
            let slice = service.map(|name| format!("{name}-bps"));
            for (kind, wanted) in [(&SERVICES, service), (&ENDPOINT_SLICES, slice.as_deref())] {
                let is_left = |(found, object): &(&Key, &Object)| {
                    object["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"]
                        && Some(found.name.as_str()) != wanted
                };
                if let Some((found, _)) = world.objects(kind, "").find(is_left) {
                    return Err(format!("{key} left {found}"));
                }
            }
        }
        Ok(())
    }
}

/// No object but the Secret ever holds the bytes of a key, in base64, hexadecimal or as a list.
#[derive(Default)]
struct NoLeak {
    forms: Vec<String>,
}

/// The ways in which bytes of a key could be written.
pub fn forms(secret: &Value) -> Vec<String> {
    let entries = secret["data"].as_object().into_iter().flatten();
    let seeds = entries.filter(|(name, _)| *name != "rotated-at").filter_map(|(_, value)| value.as_str());
    let spell = |seed: &str| {
        let bytes = BASE64_STANDARD.decode(seed).expect("the server stores base64");
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let digit = |four: u8| char::from_digit(four.into(), 16).expect("four bits are one digit");
        let hexadecimal: String = digits.map(digit).collect();
        [seed.to_owned(), hexadecimal, format!("{bytes:?}")]
    };
    seeds.flat_map(spell).collect()
}

impl Invariant for NoLeak {
    fn name(&self) -> &'static str {
        "NO-LEAK"
    }

    fn on_event(&mut self, _: &World, event: &Event) -> Result<(), String> {
        let Some(new) = &event.new else { return Ok(()) };
        if event.key.kind == &SECRETS {
            self.forms.extend(forms(new));
            return Ok(());
        }
        if !is_ours(event) || event.key.kind == &LEASES {
            return Ok(());
        }
        let text = new.to_string();
        if self.forms.iter().any(|form| text.contains(form)) {
            return Err(event.key.to_string());
        }
        Ok(())
    }
}

/// What the operator may send for the sets of one namespace within [`MINUTE`], for each Pod that they want and besides.
///
/// Six Pods needed at most 20 creations, 23 events and 29 changes in a minute, over all scenarios under the faults that are tried: this
/// is a third more, and up to twice. What has no bound, such as a refusal that is tried again with each event, goes past it in seconds.
const BUDGETS: [Allowance; 3] = [
    Allowance { what: Sent::Creation, each: 3, besides: 9 },
    Allowance { what: Sent::Event, each: 4, besides: 12 },
    Allowance { what: Sent::Change, each: 4, besides: 28 },
];

/// Over how long requests are counted.
const MINUTE: SignedDuration = SignedDuration::from_secs(60);

/// A kind of request that costs the API server something each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    /// Of a Pod.
    Creation,
    /// Of an Event.
    Event,
    /// Every other write, but for those of Leases.
    Change,
}

/// How many requests of a kind are sent at most.
struct Allowance {
    what: Sent,
    /// For each Pod that is wanted.
    each: usize,
    /// Whatever is wanted.
    besides: usize,
}

/// Requests, creations and events stay under a budget, whatever is refused.
#[derive(Default)]
struct Budgeted {
    sent: BTreeMap<Sent, VecDeque<Timestamp>>,
    /// Most Pods that were wanted so far: a set that was scaled in has more to do than its counts tell.
    wanted: usize,
}

impl Invariant for Budgeted {
    fn name(&self) -> &'static str {
        "BUDGETED"
    }

    fn on_request(&mut self, world: &World, request: &Request, _: u32) -> Result<(), String> {
        let what = match (request.key.kind.plural, request.verb) {
            ("leases" | "secrets", _) => return Ok(()),
            ("pods", Verb::Create) => Sent::Creation,
            ("events", _) => Sent::Event,
            (_, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete) => Sent::Change,
            _ => return Ok(()),
        };
        let pods = |set: &Object| -> usize {
            ["replicas", "hotBackups", "coldBackups"].iter().map(|tier| number(&set["spec"][tier])).sum()
        };
        let wanted = world.objects(&BACKUP_POD_SETS, "").map(|(_, set)| pods(set)).sum();
        self.wanted = self.wanted.max(wanted);
        let sent = self.sent.entry(what).or_default();
        sent.push_back(world.now);
        while sent.front().is_some_and(|first| world.now.duration_since(*first) >= MINUTE) {
            sent.pop_front();
        }
        let allowance = BUDGETS.iter().find(|allowance| allowance.what == what).expect("each has one");
        let most = allowance.each * self.wanted + allowance.besides;
        if sent.len() <= most {
            return Ok(());
        }
        Err(format!("{} of {what:?} within a minute, {most} allowed for {} Pods", sent.len(), self.wanted))
    }
}
