//! Every string the cluster sees: labels, annotations, names, ports, environment variables.
//!
//! A string that two programs must agree on is written here once and nowhere else.

/// API group of the kind. The only place where the group is written; labels and annotations share it as prefix.
pub const GROUP: &str = "backup.example.com";
/// Version of the kind that is served and stored.
pub const VERSION: &str = "v1alpha1";
/// Kind in manifests, owner references and events.
pub const KIND: &str = "BackupPodSet";
/// Plural name, as in URLs and RBAC rules.
pub const PLURAL: &str = "backuppodsets";
/// Kind of a group of pairs.
pub const GROUP_KIND: &str = "HAGroup";
/// Plural name of [`GROUP_KIND`].
pub const GROUP_PLURAL: &str = "hagroups";

/// Prefix of every label and annotation of ours; reserved in Pod templates.
pub const PREFIX: &str = "backup.example.com/";

/// Annotation in which `kubectl apply` keeps the manifest that it applied.
pub const ANNOTATION_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Label: name of the set that a Pod, Service or EndpointSlice belongs to.
pub const LABEL_SET: &str = "backup.example.com/set";
/// Label: name of the HA group that a Pod, Lease, Service or EndpointSlice belongs to.
pub const LABEL_GROUP: &str = "backup.example.com/group";
/// Label: role of a Pod: `primary`, `hot` or `cold`.
pub const LABEL_ROLE: &str = "backup.example.com/role";
/// Label: revision of the template that a Pod was made from, [`REVISION_HEX_DIGITS`] hexadecimal digits.
pub const LABEL_REVISION: &str = "backup.example.com/revision";
/// Label: `true` on every Pod that was made with a gate, whatever its role is by now; never changed, so that a NetworkPolicy can
/// let the operator in while the gate is opened.
pub const LABEL_GATE: &str = "backup.example.com/gate";
/// Label: the subset of the nodes that a Pod was made for, if its set has subsets; never changed.
pub const LABEL_SUBSET: &str = "backup.example.com/subset";
/// Label: role of a Pod in the words of the BPS paper; written in the same patch as [`LABEL_ROLE`].
pub const LABEL_TYPE: &str = "type";
/// Label: whether a Pod of a pair is `active` or `standby`; for your own selectors.
pub const LABEL_PAIR_STATE: &str = "backup.example.com/ha-state";
/// Label: name of the Pod's partner in a pair; for your own selectors. Left out if the name is longer than a label may be.
pub const LABEL_PAIR_PEER: &str = "backup.example.com/ha-peer";
/// Beginning of a label: an active that the Pod stands by for, in a group whose standbys do for several (`standbyFor`). The number of the
/// pair follows, and the value is the name of the active. Left out if the name is longer than a label may be.
pub const LABEL_STANDBY_OF: &str = "backup.example.com/standby-of-";
/// Label: `backup.example.com/ha-state` in the words of the thesis; written in the same patch. Reserved, so that a template cannot
/// pretend to be one.
pub const LABEL_HA_STATE: &str = "HAState";
/// Label: `backup.example.com/ha-peer` in the words of the thesis. Reserved for the same reason.
pub const LABEL_PEER: &str = "peer";
/// Label keys without our prefix that a Pod template must not set.
pub const RESERVED_LABELS: [&str; 3] = [LABEL_TYPE, LABEL_HA_STATE, LABEL_PEER];

/// Label on EndpointSlices: the Service they belong to (read by kube-proxy).
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label on EndpointSlices: who writes them, so that Kubernetes' own controllers leave them alone.
pub const LABEL_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Label on the operator's own objects: which tool keeps them.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`LABEL_MANAGED_BY`] and [`LABEL_SLICE_MANAGED_BY`].
pub const MANAGED_BY: &str = "bps-operator";

/// Annotation: slot number of a Pod within its set, decimal.
pub const ANNOTATION_SLOT: &str = "backup.example.com/slot";
/// Annotation: when the Pod got its role, RFC 3339 with milliseconds; written in the same patch as the role.
pub const ANNOTATION_ROLE_SINCE: &str = "backup.example.com/role-since";
/// Annotation: ids of the public keys that a cold Pod was created with, separated by commas.
pub const ANNOTATION_WAKE_KEYS: &str = "backup.example.com/wake-keys";

/// Annotation: the ticket that opens the gate of this Pod and of no other, [`TICKET_HEX_DIGITS`] lowercase hexadecimal digits;
/// written in the same patch as the role. It is no secret: it repeats what the label of the role says, with a signature.
pub const ANNOTATION_TICKET: &str = "backup.example.com/ticket";

/// Annotation: uid of the set whose tickets open the gate of a Pod.
pub const ANNOTATION_GATE_OF: &str = "backup.example.com/gate-of";

/// On a Service: keys of its annotations and labels that the operator wrote because a specification names them, as JSON.
pub const ANNOTATION_WRITTEN_KEYS: &str = "backup.example.com/written-keys";
/// On a BackupPodSet: the last drill of `kubectl bps drill`, or the one that is going on, as JSON.
pub const ANNOTATION_DRILL: &str = "backup.example.com/drill";
/// Annotation on the Lease of a pair: second number of the epoch, decimal; the first one is `leaseTransitions`.
pub const ANNOTATION_HA_SEQUENCE: &str = "backup.example.com/ha-sequence";
/// Annotation on the Lease of a pair: the two members as JSON, each with uid, Pod name and address of its agent.
pub const ANNOTATION_HA_MEMBERS: &str = "backup.example.com/ha-members";
/// Annotation on the Lease of a pair: which member shall be replaced by whom, as JSON; absent if nobody.
pub const ANNOTATION_HA_PENDING: &str = "backup.example.com/ha-pending";
/// Annotation on the Lease of a pair: what the holder may live on, `Api` or `Peer`.
pub const ANNOTATION_HA_HOLD: &str = "backup.example.com/ha-hold";
/// Annotation on the Lease of a pair: how often it was written, decimal.
pub const ANNOTATION_HA_WRITES: &str = "backup.example.com/ha-writes";
/// Annotation on the Lease of a pair: what its active knows of the takeover that it acts by, as JSON.
pub const ANNOTATION_HA_TAKEOVER: &str = "backup.example.com/ha-takeover";
/// Annotation on the Lease of a pair: hold, watch and stop of its protocol in milliseconds, as JSON; never changed.
pub const ANNOTATION_HA_TIMING: &str = "backup.example.com/ha-timing";
/// Annotation on the Lease of a pair: for how long its active acts on without the API server while its standby answers, in
/// seconds, decimal; absent: for no longer than its keep-alives need. Never changed.
pub const ANNOTATION_HA_OUTAGE: &str = "backup.example.com/ha-outage";
/// Annotation on the Lease of a pair that was deleted and made again as it was: uid of the first one, by which its agents know it.
/// Never changed.
pub const ANNOTATION_HA_LEASE: &str = "backup.example.com/ha-lease";
/// Annotation on the Lease of a pair: name of the EndpointSlice that its active shows its address in; absent if none.
pub const ANNOTATION_HA_SLICE: &str = "backup.example.com/ha-slice";
/// Annotation on the EndpointSlice of a pair: uids of the Pods that may show themselves in it, separated by commas.
pub const ANNOTATION_HA_SHOWN_BY: &str = "backup.example.com/ha-shown-by";
/// Annotation on the Lease of a pair: `MakeBeforeBreak` if the active may outlast a planned handover; absent else.
pub const ANNOTATION_HA_HANDOVER: &str = "backup.example.com/ha-handover";
/// Annotation on the Lease of a pair: order to hand over to the peer, as the epoch, decimal, of the tenure that shall end;
/// it means nothing to any other tenure.
pub const ANNOTATION_HA_SWITCH_OVER: &str = "backup.example.com/ha-switch-over";
/// Annotation on the Lease of a pair, for people to write: a whole number; of pairs that lack a standby, the one with the lowest gets
/// one first. 0 if it is absent or no number.
pub const ANNOTATION_RANK: &str = "backup.example.com/rank";
/// Annotation on the Lease of a pair: uids of Pods that shall not act, separated by commas.
pub const ANNOTATION_HA_FENCED: &str = "backup.example.com/ha-fenced";
/// Annotation on the Lease of a pair: `true` once the operator has decided that the pair ends.
pub const ANNOTATION_HA_ENDING: &str = "backup.example.com/ha-ending";
/// Annotation on the Lease of a pair: its number in the group, decimal.
pub const ANNOTATION_HA_PAIR: &str = "backup.example.com/ha-pair";
/// Annotation on the Lease of a pair: numbers of the state directories that have every acknowledged write, hexadecimal and
/// separated by commas; only with one of them may a member take over, unless any may. Absent: nobody has acted yet.
pub const ANNOTATION_HA_IN_SYNC: &str = "backup.example.com/ha-in-sync";
/// Annotation on the Lease of a pair: uids of the Pods that have those directories, separated by commas, and the uid of no
/// Pod (zeros) in the place of one that has lost its directory; for the operator and for people, no agent decides by it.
pub const ANNOTATION_HA_IN_SYNC_PODS: &str = "backup.example.com/ha-in-sync-pods";
/// Annotation on the Lease of a pair: how much the standby lacks of the replicated state, and why if it gets none, as JSON;
/// absent while it is level.
pub const ANNOTATION_HA_LAG: &str = "backup.example.com/ha-lag";
/// Annotation on the Lease of a pair: how often in a row the application of the Pod that holds the role ended soon after its
/// start, and how it did last, as JSON; absent while it does not, and after 60 s of life.
pub const ANNOTATION_HA_CRASH_LOOP: &str = "backup.example.com/ha-crash-loop";
/// Annotation on the Lease of a pair with the timing profile `Fast`: the epoch of an active whose node wakes its agent late, so that
/// it lives on writes of the Lease; decimal, absent once a minute has passed without that.
pub const ANNOTATION_HA_LATE: &str = "backup.example.com/ha-late";
/// Annotation on an EndpointSlice: epoch of the active whose address it shows, decimal as in `HA_EPOCH`. On a Pod: epoch
/// of its last tenure, so that a group that is made anew knows what its epochs must exceed.
pub const ANNOTATION_HA_EPOCH: &str = "backup.example.com/ha-epoch";
/// Annotation on a Pod of a pair: `true` while no other one could act in its place. An admission policy refuses its deletion to the
/// controllers of workloads; `kubectl delete pod` and evictions are not asked.
pub const ANNOTATION_HA_KEPT: &str = "backup.example.com/ha-kept";

/// Digits of a revision: 40 bits, enough that two templates of one set never meet by chance.
pub const REVISION_HEX_DIGITS: usize = 10;
/// Digits of a ticket in an annotation: 192 bytes.
pub const TICKET_HEX_DIGITS: usize = 384;
/// Digits after the set's name in the name of a Pod, as in the BPS paper (`bps-sample-3f583358bca8`).
pub const POD_NAME_HEX_DIGITS: usize = 12;
/// Longest name of a set: a Pod name is the set's name, a dash and 12 digits, and must be a DNS label (63).
pub const SET_NAME_MAX_CHARS: usize = 63 - 1 - POD_NAME_HEX_DIGITS;

/// Prefix of the names of init containers that the operator adds; reserved in Pod templates.
pub const CONTAINER_PREFIX: &str = "bps-";
/// Init container that copies the wake-up program into [`VOLUME_GATE`].
pub const CONTAINER_INSTALL: &str = "bps-install";
/// Start of the names of init containers that only make the kubelet pull one more application image.
pub const CONTAINER_PULL_PREFIX: &str = "bps-pull-";
/// Init container that holds a cold Pod back until a valid ticket arrives.
pub const CONTAINER_GATE: &str = "bps-gate";
/// emptyDir volume with the copy of the wake-up program, or the wake-up image as a volume.
pub const VOLUME_GATE: &str = "bps-gate";
/// Where [`VOLUME_GATE`] is mounted.
pub const GATE_MOUNT_PATH: &str = "/bps";
/// The wake-up program inside [`VOLUME_GATE`].
pub const GATE_PROGRAM_PATH: &str = "/bps/bps-wakeup";
/// The wake-up program inside its own image.
pub const WAKEUP_IMAGE_PROGRAM_PATH: &str = "/bps-wakeup";
/// Downward API volume that shows [`ANNOTATION_TICKET`] to the gate.
pub const VOLUME_TICKET: &str = "bps-ticket";
/// Where [`VOLUME_TICKET`] is mounted.
pub const TICKET_MOUNT_PATH: &str = "/bps-ticket";
/// Name of the file in [`VOLUME_TICKET`].
pub const TICKET_FILE: &str = "ticket";
/// Annotation for the cluster autoscaler: names of volumes, separated by commas, that do not prevent it from removing the node.
pub const ANNOTATION_EVICTABLE_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
/// TCP port that the gate listens on, as in the BPS paper.
pub const GATE_PORT: u16 = 20000;
/// Name of [`GATE_PORT`] in the Pod.
pub const GATE_PORT_NAME: &str = "bps-gate";

/// Init container that copies the agent into [`VOLUME_AGENT`].
pub const CONTAINER_INSTALL_AGENT: &str = "bps-install-agent";
/// emptyDir volume with the agent's marks and its state file, and with the agent if it is copied.
pub const VOLUME_AGENT: &str = "bps-agent";
/// Image volume that is the agent's image.
pub const VOLUME_AGENT_PROGRAM: &str = "bps-agent-program";
/// Volume with the keys of the group.
pub const VOLUME_AGENT_KEYS: &str = "bps-agent-keys";
/// Projected volume with what the agent needs to reach the API server: a token of the Pod's ServiceAccount and the certificates of
/// the cluster.
pub const VOLUME_AGENT_API: &str = "bps-agent-api";
/// Where [`VOLUME_AGENT_API`] is mounted.
pub const AGENT_API_MOUNT_PATH: &str = "/bps-ha-api";
/// File of [`VOLUME_AGENT_API`] with the token.
pub const AGENT_API_TOKEN_FILE: &str = "token";
/// File of [`VOLUME_AGENT_API`] with the certificates.
pub const AGENT_API_CERTIFICATES_FILE: &str = "ca.crt";
/// How long the token is good for. Unit: seconds.
///
/// 6 h: a kubelet renews it when four fifths of that have passed, so that it outlasts an API server that is away for an hour.
pub const AGENT_API_TOKEN_SECONDS: u64 = 21_600;
/// Where [`VOLUME_AGENT`] is mounted.
pub const AGENT_MOUNT_PATH: &str = "/bps-ha";
/// Where [`VOLUME_AGENT_KEYS`] is mounted.
pub const AGENT_KEYS_MOUNT_PATH: &str = "/bps-ha-keys";
/// The agent inside [`VOLUME_AGENT`].
pub const AGENT_PROGRAM_PATH: &str = "/bps-ha/bps-agent";
/// Where [`VOLUME_AGENT_PROGRAM`] is mounted.
pub const AGENT_VOLUME_MOUNT_PATH: &str = "/bps-ha-program";
/// The agent inside [`VOLUME_AGENT_PROGRAM`].
pub const AGENT_VOLUME_PROGRAM_PATH: &str = "/bps-ha-program/bps-agent";
/// The agent inside its own image, and inside an application's image unless its user says otherwise.
pub const AGENT_IMAGE_PROGRAM_PATH: &str = "/bps-agent";
/// Annotation of a Pod template with an agent: what the container was before, as JSON.
pub const ANNOTATION_INJECTED: &str = "backup.example.com/injected";

/// Environment of the gate: uid of its own Pod.
pub const ENV_POD_UID: &str = "BPS_POD_UID";
/// Environment of the gate: uid of the set.
pub const ENV_SET_UID: &str = "BPS_SET_UID";
/// Environment of the gate: `<id>:<hexadecimal public key>`, separated by commas. Public, not secret.
pub const ENV_WAKE_KEYS: &str = "BPS_WAKE_KEYS";
/// Environment of an application with an agent: epoch of its tenure as one decimal number; later ones of the same pair are
/// higher.
pub const ENV_HA_EPOCH: &str = "HA_EPOCH";
/// Environment of an application with an agent, and of hooks: name of the Lease of its pair, among whose epochs its own is
/// one.
pub const ENV_HA_PAIR: &str = "HA_PAIR";
/// Environment of an application with an agent, and of hooks: [`HA_ROLE_ACTIVE`] or [`HA_ROLE_STANDBY`].
pub const ENV_HA_ROLE: &str = "HA_ROLE";
/// Value of [`ENV_HA_ROLE`].
pub const HA_ROLE_ACTIVE: &str = "active";
/// Value of [`ENV_HA_ROLE`].
pub const HA_ROLE_STANDBY: &str = "standby";
/// Environment of an application with an agent, and of hooks: file with role and epoch as JSON, if there is one.
pub const ENV_HA_STATE_FILE: &str = "HA_STATE_FILE";
/// Environment of an application with an agent: IP address of the other Pod of its pair.
pub const ENV_HA_PEER: &str = "HA_PEER";
/// Environment of an application with an agent: number of a descriptor that it must leave open until it ends, and pass
/// on to its children; never to be read or written.
pub const ENV_HA_LIFELINE_FD: &str = "HA_LIFELINE_FD";
/// Environment of an application whose state is replicated: Unix socket on which it asks for a barrier.
pub const ENV_HA_SYNC_SOCKET: &str = "HA_SYNC_SOCKET";
/// Environment of a container with an agent: path of the agent's program, wherever it comes from.
pub const ENV_HA_AGENT: &str = "HA_AGENT";
/// Environment of an agent: how long its Pod may take to end once its signal has come, if that is not what Kubernetes gives by
/// default. Unit: seconds.
pub const ENV_HA_END_WITHIN_SECONDS: &str = "HA_END_WITHIN_SECONDS";
/// What Kubernetes gives a Pod by default to end (`terminationGracePeriodSeconds`). Unit: seconds.
pub const END_WITHIN_SECONDS: u64 = 30;
/// Time of a Pod's grace period that an agent needs to hand over, to release its Lease and to relay, besides what the
/// application takes to stop. Unit: seconds. 7: two holds of 1.9 s, 2 s of relaying and 1 s to spare, rounded up; a
/// test of the agent holds it to that.
pub const LEAVING_SECONDS: u64 = 7;
/// Environment of the agent: uid of its own Pod.
pub const ENV_AGENT_POD_UID: &str = "POD_UID";
/// Environment of the agent: IP address of its own Pod.
pub const ENV_POD_IP: &str = "POD_IP";
/// Environment of the operator and the agent: name of its own Pod.
pub const ENV_POD_NAME: &str = "POD_NAME";
/// Environment of the operator and the agent: its own namespace.
pub const ENV_POD_NAMESPACE: &str = "POD_NAMESPACE";
/// Environment of a container with an agent whose template has another [`ENV_AGENT_POD_UID`]: uid of its own Pod.
pub const ENV_OWN_POD_UID: &str = "BPS_HA_POD_UID";
/// The same for [`ENV_POD_IP`].
pub const ENV_OWN_POD_IP: &str = "BPS_HA_POD_IP";
/// The same for [`ENV_POD_NAME`].
pub const ENV_OWN_POD_NAME: &str = "BPS_HA_POD_NAME";
/// The same for [`ENV_POD_NAMESPACE`].
pub const ENV_OWN_POD_NAMESPACE: &str = "BPS_HA_POD_NAMESPACE";

/// Namespace that the operator is installed in.
pub const OPERATOR_NAMESPACE: &str = "backuppodset-system";
/// Deployment, ServiceAccount and container of the operator, and the name of its image.
pub const OPERATOR: &str = "bps-operator";
/// Lease that the leading replica holds.
pub const LEASE_LEADER: &str = "bps-operator";
/// Secret with the keys that wake-up tickets are signed with.
pub const SECRET_WAKE_KEYS: &str = "bps-wakeup-keys";

/// Name of the image that brings the agent, and of the program in it.
pub const AGENT: &str = "bps-agent";
/// Type of the Secrets with the keys of groups.
pub const SECRET_TYPE_GROUP_KEYS: &str = "backup.example.com/ha-keys";
/// Entry of such a Secret: the keys, one in each line.
pub const SECRET_GROUP_KEYS_ENTRY: &str = "keys";

/// Another entry: what a reader of the agents' `/metrics` must send as bearer token.
pub const SECRET_METRICS_TOKEN_ENTRY: &str = "metrics-token";

/// Field manager of every write but status.
pub const FIELD_MANAGER: &str = "bps-operator";
/// Field manager of what agents write.
pub const FIELD_MANAGER_AGENT: &str = "bps-agent";
/// Field manager of what a person writes by the kubectl plugin.
pub const FIELD_MANAGER_PLUGIN: &str = "kubectl-bps";
/// Field manager of status writes.
pub const FIELD_MANAGER_STATUS: &str = "bps-operator-status";
/// `reportingController` of events.
pub const EVENT_REPORTER: &str = "backup.example.com/bps-operator";

/// TCP port of `/livez` and `/readyz`, plain HTTP.
pub const HEALTH_PORT: u16 = 8081;
/// Port on which the agents of a pair talk to each other, UDP and TCP.
pub const AGENT_PORT: u16 = 20001;
/// TCP port of the agent's `/livez`, `/readyz` and `/metrics`, plain HTTP.
pub const AGENT_HEALTH_PORT: u16 = 20002;
/// TCP port on which agents receive the state of the active: [`AGENT_STATE_PORT_ABOVE`] that of [`AGENT_PORT`].
pub const AGENT_STATE_PORT: u16 = AGENT_PORT + AGENT_STATE_PORT_ABOVE;
/// How far above the port that agents talk on is the one that they receive state on.
pub const AGENT_STATE_PORT_ABOVE: u16 = 2;
/// TCP port of `/metrics`, HTTPS.
pub const METRICS_PORT: u16 = 8443;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_ours_starts_with_the_group() {
        let keys = [
            LABEL_SET,
            LABEL_GROUP,
            LABEL_ROLE,
            LABEL_REVISION,
            LABEL_PAIR_STATE,
            LABEL_PAIR_PEER,
            ANNOTATION_SLOT,
            ANNOTATION_ROLE_SINCE,
            LABEL_GATE,
            LABEL_SUBSET,
            LABEL_STANDBY_OF,
            ANNOTATION_WAKE_KEYS,
            ANNOTATION_GATE_OF,
            ANNOTATION_WRITTEN_KEYS,
            ANNOTATION_DRILL,
            ANNOTATION_HA_SEQUENCE,
            ANNOTATION_HA_MEMBERS,
            ANNOTATION_HA_PENDING,
            ANNOTATION_HA_HOLD,
            ANNOTATION_HA_WRITES,
            ANNOTATION_HA_TAKEOVER,
            ANNOTATION_HA_TIMING,
            ANNOTATION_HA_OUTAGE,
            ANNOTATION_HA_LEASE,
            ANNOTATION_HA_SLICE,
            ANNOTATION_HA_SHOWN_BY,
            ANNOTATION_HA_HANDOVER,
            ANNOTATION_HA_SWITCH_OVER,
            ANNOTATION_RANK,
            ANNOTATION_HA_FENCED,
            ANNOTATION_HA_ENDING,
            ANNOTATION_HA_PAIR,
            ANNOTATION_HA_IN_SYNC,
            ANNOTATION_HA_IN_SYNC_PODS,
            ANNOTATION_HA_LAG,
            ANNOTATION_HA_CRASH_LOOP,
            ANNOTATION_HA_LATE,
            ANNOTATION_INJECTED,
            ANNOTATION_HA_EPOCH,
            ANNOTATION_HA_KEPT,
            EVENT_REPORTER,
        ];
        assert_eq!(PREFIX, format!("{GROUP}/"));
        assert_eq!(keys.map(|key| key.starts_with(PREFIX)), [true; 41]);
    }

    #[test]
    fn the_longest_set_name_still_gives_a_pod_name_that_is_a_dns_label() {
        assert_eq!(SET_NAME_MAX_CHARS, 50);
    }
}
