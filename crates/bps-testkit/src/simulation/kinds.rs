//! The kinds that the simulated server knows, as one table: routes and the ways in which kinds differ.

use serde_json::Value;

use crate::simulation::refusal::Refusal;

/// A way in which one kind is treated differently from another by the real API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trait {
    /// Lives in a namespace.
    Namespaced,
    /// `status` is written through `/status` only, and the rest is not written through it.
    StatusSubresource,
    /// `metadata.generation` counts changes outside `metadata` and `status`.
    Generation,
    /// `metadata.generation` counts changes of labels too.
    CountsLabels,
    /// A PUT of what is not there creates it.
    CreateOnUpdate,
    /// A PUT without a resourceVersion is accepted.
    UnconditionalUpdate,
    /// An immediate DELETE answers with the object, not with a `Status`.
    ReturnsDeleted,
    /// DELETE gives the kubelet a grace period.
    GracefulDeletion,
    /// A custom resource: strategic merge patches are refused with 415.
    Custom,
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Name in URLs.
    pub plural: &'static str,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Name in objects.
    pub kind: &'static str,
    /// Top-level field that must not change after creation, if any.
    pub frozen: Option<&'static str>,
    /// What sets this kind apart.
    pub traits: &'static [Trait],
}

use Trait::{
    CountsLabels, CreateOnUpdate, Custom, Generation, GracefulDeletion, Namespaced, ReturnsDeleted,
    StatusSubresource, UnconditionalUpdate,
};

pub static PODS: Kind = Kind {
    plural: "pods",
    group: "",
    version: "v1",
    kind: "Pod",
    frozen: Some("spec"),
    traits: &[
        Namespaced,
        StatusSubresource,
        Generation,
        UnconditionalUpdate,
        ReturnsDeleted,
        GracefulDeletion,
    ],
};
pub static NODES: Kind = Kind {
    plural: "nodes",
    group: "",
    version: "v1",
    kind: "Node",
    frozen: None,
    traits: &[StatusSubresource, UnconditionalUpdate],
};
pub static SERVICES: Kind = Kind {
    plural: "services",
    group: "",
    version: "v1",
    kind: "Service",
    frozen: None,
    traits: &[Namespaced, StatusSubresource, UnconditionalUpdate, ReturnsDeleted],
};
pub static SECRETS: Kind = Kind {
    plural: "secrets",
    group: "",
    version: "v1",
    kind: "Secret",
    frozen: None,
    traits: &[Namespaced, UnconditionalUpdate],
};
pub static BACKUP_POD_SETS: Kind = Kind {
    plural: "backuppodsets",
    group: "backup.example.com",
    version: "v1alpha1",
    kind: "BackupPodSet",
    frozen: None,
    traits: &[Namespaced, StatusSubresource, Generation, Custom],
};
pub static HA_GROUPS: Kind = Kind {
    plural: "hagroups",
    group: "backup.example.com",
    version: "v1alpha1",
    kind: "HAGroup",
    frozen: None,
    traits: &[Namespaced, StatusSubresource, Generation, Custom],
};
pub static ENDPOINT_SLICES: Kind = Kind {
    plural: "endpointslices",
    group: "discovery.k8s.io",
    version: "v1",
    kind: "EndpointSlice",
    frozen: Some("addressType"),
    traits: &[Namespaced, Generation, CountsLabels, UnconditionalUpdate],
};
pub static ENDPOINTS: Kind = Kind {
    plural: "endpoints",
    group: "",
    version: "v1",
    kind: "Endpoints",
    frozen: None,
    traits: &[Namespaced, UnconditionalUpdate],
};
pub static BUDGETS: Kind = Kind {
    plural: "poddisruptionbudgets",
    group: "policy",
    version: "v1",
    kind: "PodDisruptionBudget",
    frozen: None,
    traits: &[Namespaced, StatusSubresource, Generation, UnconditionalUpdate],
};
pub static EVENTS: Kind = Kind {
    plural: "events",
    group: "events.k8s.io",
    version: "v1",
    kind: "Event",
    frozen: None,
    traits: &[Namespaced, UnconditionalUpdate],
};
pub static LEASES: Kind = Kind {
    plural: "leases",
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    frozen: None,
    traits: &[Namespaced, CreateOnUpdate],
};
pub static CONTROLLER_REVISIONS: Kind = Kind {
    plural: "controllerrevisions",
    group: "apps",
    version: "v1",
    kind: "ControllerRevision",
    frozen: Some("data"),
    traits: &[Namespaced, UnconditionalUpdate],
};

pub static ROLES: Kind = Kind {
    plural: "roles",
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "Role",
    frozen: None,
    traits: &[Namespaced, UnconditionalUpdate],
};
pub static ROLE_BINDINGS: Kind = Kind {
    plural: "rolebindings",
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "RoleBinding",
    frozen: Some("roleRef"),
    traits: &[Namespaced, UnconditionalUpdate],
};

/// Every kind that is served.
pub static KINDS: [&Kind; 14] = [
    &PODS,
    &NODES,
    &SERVICES,
    &SECRETS,
    &BACKUP_POD_SETS,
    &HA_GROUPS,
    &ENDPOINT_SLICES,
    &ENDPOINTS,
    &BUDGETS,
    &EVENTS,
    &LEASES,
    &CONTROLLER_REVISIONS,
    &ROLES,
    &ROLE_BINDINGS,
];

impl Kind {
    /// The row for a route.
    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        KINDS.into_iter().find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
    }

    /// Whether the kind is treated in that way.
    pub fn has(&self, wanted: Trait) -> bool {
        self.traits.contains(&wanted)
    }

    /// `group/version`, as in an object's `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group`, as error messages of the server name a resource.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `kind.group`, as messages about a body name it.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Fills in `apiVersion` and `kind`, or refuses a body of another kind as the server does.
    pub fn stamp(&self, body: &mut Value) -> Result<(), Refusal> {
        for (field, wanted) in [("apiVersion", self.api_version()), ("kind", self.kind.to_owned())] {
            let sent = body[field].as_str().unwrap_or_default();
            if !sent.is_empty() && sent != wanted {
                return Err(Refusal::bad_request(&format!(
                    "the {field} in the data ({sent}) is not {wanted}"
                )));
            }
            body[field] = Value::String(wanted);
        }
        Ok(())
    }
}
