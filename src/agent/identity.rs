//! Who an agent is: its Pod, and the uid of it as the number that the protocol knows.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::api::keys;
use crate::ha::AgentId;

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

/// Text that is no uid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no uid: expected 32 hexadecimal digits, with or without dashes, as in metadata.uid")]
pub struct NotAUid {
    found: String,
}

/// A uid as the number it is. Static Pods have one without dashes.
///
/// # Errors
/// What was expected instead.
pub fn parse_uid(text: &str) -> Result<u128, NotAUid> {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    // `from_str_radix` takes a sign.
    let is_hexadecimal = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_hexadecimal);
    number.ok_or_else(|| NotAUid { found: text.to_owned() })
}

/// Reads the uids of Pods, separated by commas; nobody if one of them cannot be read.
pub fn parse_uids(text: &str) -> BTreeSet<AgentId> {
    let uids = text.split(',').map(|uid| parse_uid(uid.trim()).map(AgentId));
    uids.collect::<Result<_, _>>().unwrap_or_default()
}

/// A uid as Kubernetes writes it.
pub fn format_uid(uid: u128) -> String {
    let digits = format!("{uid:032x}");
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

/// Reads the uid of the own Pod from the environment; for the parser of arguments.
///
/// # Errors
/// What to write into the Pod's template.
pub fn parse_own_uid(text: &str) -> Result<AgentId, String> {
    let advice = format!("; set {} from the field metadata.uid", keys::ENV_AGENT_POD_UID);
    parse_uid(text).map(AgentId).map_err(|error| format!("{error}{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_keeps_its_form() {
        let text = "0a1b2c3d-0000-4000-8000-0123456789ab";
        assert_eq!(parse_uid(text).map(format_uid), Ok(text.to_owned()));
        assert_eq!(parse_uid("0a1b2c3d0000400080000123456789ab"), parse_uid(text));
    }

    #[test]
    fn a_list_is_read_as_a_whole_or_not_at_all() {
        let [one, two] = [1, 2].map(format_uid);
        let both = BTreeSet::from([AgentId(1), AgentId(2)]);
        assert_eq!(parse_uids(&format!("{one}, {two}")), both);
        assert_eq!([parse_uids(""), parse_uids(&format!("{one},web-2"))], [BTreeSet::new(), BTreeSet::new()]);
    }

    #[test]
    fn other_text_is_refused_with_what_is_expected() {
        for text in
            ["", "web-0", "+a1b2c3d-0000-4000-8000-0123456789ab", "0a1b2c3d-0000-4000-8000-0123456789"]
        {
            let error = parse_uid(text).expect_err(text).to_string();
            assert!(
                error.ends_with("expected 32 hexadecimal digits, with or without dashes, as in metadata.uid")
            );
        }
    }
}
