//! Who an agent is: its Pod, and the uid of it as the number that the protocol knows.

use std::net::IpAddr;

use bps_api::keys;
use bps_protocol::AgentId;
use bps_wire::uid::parse_uid;

/// The agent's own Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Uid of the Pod.
    pub id: AgentId,
    /// Name of the Pod.
    pub pod: String,
    /// Namespace of the Pod.
    pub namespace: String,
    /// Address of the Pod.
    pub ip: IpAddr,
}

/// Reads the uid of the own Pod from the environment; for the parser of arguments.
///
/// # Errors
/// What to write into the Pod's template.
pub fn parse_own_uid(text: &str) -> Result<AgentId, String> {
    let advice = format!("; set {} from the field metadata.uid", keys::ENV_AGENT_POD_UID);
    parse_uid(text).map(AgentId).map_err(|error| format!("{error}{advice}"))
}
