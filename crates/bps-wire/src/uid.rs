//! Uids of Pods and groups as the numbers that the protocol knows, and as Kubernetes writes them.

use std::collections::BTreeSet;

use bps_protocol::AgentId;

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
