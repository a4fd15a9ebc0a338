//! Who may do what (RBAC, as data) and what admission refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::simulation::kinds::Kind;
use crate::simulation::refusal::Refusal;
use crate::simulation::world::Key;
use crate::simulation::world::World;

/// One RBAC rule: these verbs on these resources of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub group: String,
    /// Plural names; a subresource is `plural/status`.
    pub resources: Vec<String>,
    pub verbs: Vec<String>,
    /// The only namespace that it applies to; empty for all.
    pub namespace: String,
    /// The only objects that it applies to; empty for all.
    pub names: Vec<String>,
}

impl Rule {
    /// A rule from literals; lists are separated by blanks.
    pub fn new(group: &str, resources: &str, verbs: &str) -> Self {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Self {
            group: group.to_owned(),
            resources: words(resources),
            verbs: words(verbs),
            namespace: String::new(),
            names: Vec::new(),
        }
    }

    fn allows(&self, key: &Key, resource: &str, verb: &str) -> bool {
        self.group == key.kind.group
            && (self.namespace.is_empty() || self.namespace == key.namespace)
            && (self.names.is_empty() || self.names.contains(&key.name))
            && self.resources.iter().any(|one| one == resource)
            && self.verbs.iter().any(|one| one == verb)
    }
}

/// A check at creation, in the place of quota, Pod security or a webhook; it may change the object.
pub type Hook = Arc<dyn Fn(&World, &Key, &mut Value) -> Result<(), Refusal> + Send + Sync>;

/// What stands between a request and the store.
#[derive(Clone, Default)]
pub struct Admission {
    /// `None` allows everything; otherwise what no rule names is refused with 403.
    pub rules: Option<Vec<Rule>>,
    /// Asked in order at each creation.
    pub hooks: Vec<Hook>,
}

/// The identity that refusals name.
pub const USER: &str = "system:serviceaccount:backuppodset-system:bps-operator";

impl Admission {
    /// Whether the operator may do this.
    ///
    /// # Errors
    /// 403 when rules are in force and none allows it.
    pub fn authorise(&self, verb: &str, key: &Key, subresource: &str) -> Result<(), Refusal> {
        let Some(rules) = &self.rules else { return Ok(()) };
        let kind = key.kind;
        let resource = if subresource.is_empty() {
            kind.plural.to_owned()
        } else {
            format!("{}/{subresource}", kind.plural)
        };
        if rules.iter().any(|rule| rule.allows(key, &resource, verb)) {
            return Ok(());
        }
        Err(Refusal::unauthorised(USER, verb, &resource, kind))
    }

    /// Asks every hook.
    ///
    /// # Errors
    /// The first hook's refusal.
    pub fn admit(&self, world: &World, key: &Key, body: &mut Value) -> Result<(), Refusal> {
        self.hooks.iter().try_for_each(|hook| hook(world, key, body))
    }
}

/// Refuses more than `most` objects of a kind in a namespace, as a `ResourceQuota` does.
pub fn quota(kind: &'static Kind, most: usize) -> Hook {
    Arc::new(move |world, key, _| {
        let used = world.objects(kind, &key.namespace).count();
        if key.kind != kind || used < most {
            return Ok(());
        }
        let name = kind.plural;
        Err(Refusal::admission(
            key,
            &format!(
                "exceeded quota: quota, requested: count/{name}=1, used: count/{name}={used}, limited: count/{name}={most}"
            ),
        ))
    })
}

/// Removes a label from the first objects of a kind, as a policy does that allows some labels only, until it is corrected.
pub fn without_label(kind: &'static Kind, label: &'static str, first: usize) -> Hook {
    let left = AtomicUsize::new(first);
    Arc::new(move |_, key, body| {
        let is_meant = key.kind == kind && body["metadata"]["labels"].get(label).is_some();
        let is_one = |left: usize| left.checked_sub(1);
        if is_meant && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_one).is_ok() {
            body["metadata"]["labels"].as_object_mut().and_then(|labels| labels.remove(label));
        }
        Ok(())
    })
}

/// Refuses Pods that the `restricted` Pod security standard refuses, by the fields that matter most.
pub fn restricted() -> Hook {
    Arc::new(|_, key, body| {
        if key.kind.plural != "pods" {
            return Ok(());
        }
        let spec = &body["spec"];
        let containers =
            ["containers", "initContainers"].into_iter().filter_map(|list| spec[list].as_array());
        for container in containers.flatten() {
            let own = &container["securityContext"];
            let inherited = |field: &str| {
                if own[field].is_null() { &spec["securityContext"][field] } else { &own[field] }
            };
            let drops_all =
                own["capabilities"]["drop"].as_array().is_some_and(|all| all.iter().any(|c| c == "ALL"));
            let is_fit = own["allowPrivilegeEscalation"] == false
                && drops_all
                && inherited("runAsNonRoot") == true
                && !inherited("seccompProfile").is_null();
            if !is_fit {
                let why =
                    format!("violates PodSecurity \"restricted:latest\": container {}", container["name"]);
                return Err(Refusal::admission(key, &why));
            }
        }
        Ok(())
    })
}
