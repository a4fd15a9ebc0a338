//! What the operator may do in the cluster: one table, from which `deploy/` and the tests take everything.
//!
//! A request that is not in the table is refused by the API server, so a new kind of write begins here.

use bps_api::keys;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// Where a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the namespaces that are watched: the whole cluster, or each namespace of a restricted installation.
    Watched,
    /// On objects without a namespace; small enough to be granted in a restricted installation as well.
    Cluster,
    /// In the operator's own namespace.
    Operator,
}

/// Permission for some verbs on some resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it applies.
    pub scope: Scope,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural names, subresources after a slash.
    pub resources: &'static [&'static str],
    /// The only objects that it applies to; empty for all.
    pub names: &'static [&'static str],
    /// What may be done.
    pub verbs: &'static [&'static str],
}

const READ: &[&str] = &["get", "list", "watch"];
const KEEP: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
const CREATE: &[&str] = &["create"];
const WRITE: &[&str] = &["create", "patch"];

/// Everything that the operator may do.
pub const RULES: &[Rule] = &[
    Rule {
        scope: Scope::Watched,
        group: keys::GROUP,
        resources: &[keys::PLURAL, keys::GROUP_PLURAL],
        names: &[],
        verbs: READ,
    },
    // A set with active and standby Pods keeps a group.
    Rule {
        scope: Scope::Watched,
        group: keys::GROUP,
        resources: &[keys::GROUP_PLURAL],
        names: &[],
        verbs: WRITE,
    },
    Rule {
        scope: Scope::Watched,
        group: keys::GROUP,
        resources: &["backuppodsets/status", "hagroups/status"],
        names: &[],
        verbs: &["patch"],
    },
    // An owner reference that blocks the deletion of its owner needs this where
    // OwnerReferencesPermissionEnforcement is on.
    Rule {
        scope: Scope::Watched,
        group: keys::GROUP,
        resources: &["backuppodsets/finalizers", "hagroups/finalizers"],
        names: &[],
        verbs: &["update"],
    },
    Rule { scope: Scope::Watched, group: "", resources: &["pods", "services"], names: &[], verbs: KEEP },
    Rule {
        scope: Scope::Watched,
        group: "discovery.k8s.io",
        resources: &["endpointslices"],
        names: &[],
        verbs: KEEP,
    },
    Rule {
        scope: Scope::Watched,
        group: "policy",
        resources: &["poddisruptionbudgets"],
        names: &[],
        verbs: KEEP,
    },
    // What Kubernetes' own controllers wrote for a Service that had a selector is copied into slices for as long as it stands.
    Rule {
        scope: Scope::Watched,
        group: "",
        resources: &["endpoints"],
        names: &[],
        verbs: &["get", "delete"],
    },
    // OpenShift asks for this before it lets anybody write addresses of the Pod network into a slice.
    Rule {
        scope: Scope::Watched,
        group: "discovery.k8s.io",
        resources: &["endpointslices/restricted"],
        names: &[],
        verbs: CREATE,
    },
    Rule {
        scope: Scope::Watched,
        group: "apps",
        resources: &["controllerrevisions"],
        names: &[],
        verbs: &["list", "create", "patch", "delete"],
    },
    // A patch counts an event that repeats.
    Rule { scope: Scope::Watched, group: "events.k8s.io", resources: &["events"], names: &[], verbs: WRITE },
    Rule {
        scope: Scope::Watched,
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: KEEP,
    },
    // Keys of agents are written and never read; `deploy/base/admission.yaml` limits the Secrets to those of groups.
    Rule { scope: Scope::Watched, group: "", resources: &["secrets"], names: &[], verbs: WRITE },
    // Permissions of agents are watched, so that they are put right at once and an idle group costs no request. What they
    // permit, the operator may do itself.
    Rule {
        scope: Scope::Watched,
        group: "rbac.authorization.k8s.io",
        resources: &["roles", "rolebindings"],
        names: &[],
        // One of somebody else that has the name is read, to be left alone.
        verbs: &["get", "list", "watch", "create", "patch"],
    },
    Rule { scope: Scope::Cluster, group: "", resources: &["nodes"], names: &[], verbs: READ },
    // Who reads /metrics is asked of the API server.
    Rule {
        scope: Scope::Cluster,
        group: "authentication.k8s.io",
        resources: &["tokenreviews"],
        names: &[],
        verbs: CREATE,
    },
    Rule {
        scope: Scope::Cluster,
        group: "authorization.k8s.io",
        resources: &["subjectaccessreviews"],
        names: &[],
        verbs: CREATE,
    },
    Rule {
        scope: Scope::Operator,
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: CREATE,
    },
    Rule {
        scope: Scope::Operator,
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[keys::LEASE_LEADER],
        verbs: &["get", "update"],
    },
    // A create cannot be limited to a name; reading and changing can, so no other Secret is ever seen.
    Rule { scope: Scope::Operator, group: "", resources: &["secrets"], names: &[], verbs: CREATE },
    Rule {
        scope: Scope::Operator,
        group: "",
        resources: &["secrets"],
        names: &[keys::SECRET_WAKE_KEYS],
        verbs: &["get", "update"],
    },
];

/// The rules of one scope in the form of a Role or ClusterRole.
pub fn policy_rules(scope: Scope) -> Vec<PolicyRule> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let rules = RULES.iter().filter(|rule| rule.scope == scope);
    rules
        .map(|rule| PolicyRule {
            api_groups: Some(vec![rule.group.to_owned()]),
            resources: Some(texts(rule.resources)),
            resource_names: (!rule.names.is_empty()).then(|| texts(rule.names)),
            verbs: texts(rule.verbs),
            non_resource_urls: None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_grants_more_than_it_names() {
        let texts =
            RULES.iter().flat_map(|rule| rule.resources.iter().chain(rule.verbs).chain([&rule.group]));
        assert_eq!(texts.filter(|text| text.contains('*')).collect::<Vec<_>>(), Vec::<&&str>::new());
    }

    /// Verbs whose answer has the object in it: a patch that changes nothing reads it.
    const SHOWING: &[&str] = &["get", "list", "watch", "patch", "update", "delete"];

    /// What is not limited by name here is limited to the Secrets of groups by the policy `backuppodset-secrets`, without which
    /// `backuppodset_unlimited` is 1.
    #[test]
    fn secrets_are_shown_by_name_or_where_a_policy_limits_them() {
        let is_showing = |verb: &&str| SHOWING.contains(verb);
        let secrets = RULES.iter().filter(|rule| rule.resources.contains(&"secrets"));
        let showing = secrets.filter_map(|rule| {
            let verbs: Vec<_> = rule.verbs.iter().copied().filter(is_showing).collect();
            (!verbs.is_empty()).then_some((rule.scope, rule.names, verbs))
        });
        let expected = [
            (Scope::Watched, &[][..], vec!["patch"]),
            (Scope::Operator, &[keys::SECRET_WAKE_KEYS][..], vec!["get", "update"]),
        ];
        assert_eq!(showing.collect::<Vec<_>>(), expected);
    }
}
