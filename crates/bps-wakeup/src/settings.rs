//! Reads the gate's settings from its environment.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::protocol::Identity;
use super::signing::{KeyError, PublicKey};
use super::uid::{NotAUid, Uid};

/// The port that a gate listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 20_000;

/// Where a ticket appears that is in an annotation of the Pod, unless told otherwise.
pub const DEFAULT_TICKET_FILE: &str = "/bps-ticket/ticket";

/// Variable with the Pod's uid, from the downward API.
pub const POD_UID: &str = "BPS_POD_UID";

/// Variable with the uid of the set.
pub const SET_UID: &str = "BPS_SET_UID";

/// Variable with the trusted keys: `<id>:<hex public key>`, comma separated.
pub const WAKE_KEYS: &str = "BPS_WAKE_KEYS";

/// Variable with another port, for Pods that share their node's network.
pub const PORT: &str = "BPS_GATE_PORT";

/// Variable with another file for the ticket.
pub const TICKET_FILE: &str = "BPS_TICKET_FILE";

/// Most keys that a Pod may trust. The operator hands out two: current and next.
pub const KEYS_MAX: usize = 8;

/// What a gate needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen. Unspecified IPv6 means all addresses of both families.
    pub address: SocketAddr,
    /// Where a ticket appears that is in an annotation of the Pod.
    pub ticket_file: PathBuf,
    /// The Pod that the gate holds.
    pub pod: Uid,
    /// The set of that Pod.
    pub set: Uid,
    /// The keys that may sign a ticket; at least one.
    pub keys: Vec<PublicKey>,
}

/// Which setting is missing or wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A variable that has no default is not set.
    #[error("set {0}")]
    Missing(&'static str),
    /// A uid is not one.
    #[error("read {name}")]
    ReadUid {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        source: NotAUid,
    },
    /// A key is not one.
    #[error("read {WAKE_KEYS}")]
    ReadKey {
        /// What is wrong with it.
        source: KeyError,
    },
    /// No key, or more than [`KEYS_MAX`].
    #[error("{WAKE_KEYS} needs 1 to {KEYS_MAX} keys")]
    CountKeys,
    /// The port is no port.
    #[error("{PORT} needs a number from 1 to 65535")]
    ReadPort,
}

impl Settings {
    /// Reads the settings; `variable` looks a variable of the environment up.
    ///
    /// # Errors
    /// [`Error`]: a gate with half its settings would stay closed for ever, so it does not start.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let uid = |name| {
            let text = variable(name).ok_or(Error::Missing(name))?;
            Uid::parse(&text).map_err(|source| Error::ReadUid { name, source })
        };
        let port = variable(PORT).map_or(Ok(DEFAULT_PORT), |text| port(&text))?;
        Ok(Self {
            address: (Ipv6Addr::UNSPECIFIED, port).into(),
            ticket_file: variable(TICKET_FILE).unwrap_or_else(|| DEFAULT_TICKET_FILE.to_owned()).into(),
            pod: uid(POD_UID)?,
            set: uid(SET_UID)?,
            keys: keys(&variable(WAKE_KEYS).ok_or(Error::Missing(WAKE_KEYS))?)?,
        })
    }

    /// Who the gate is and whom it trusts.
    pub fn identity(&self) -> Identity<'_> {
        Identity { pod: self.pod, set: self.set, keys: &self.keys }
    }
}

fn port(text: &str) -> Result<u16, Error> {
    text.parse().ok().filter(|port| *port != 0).ok_or(Error::ReadPort)
}

fn keys(text: &str) -> Result<Vec<PublicKey>, Error> {
    if text.is_empty() || text.split(',').count() > KEYS_MAX {
        return Err(Error::CountKeys);
    }
    let read = |entry| PublicKey::parse(entry).map_err(|source| Error::ReadKey { source });
    text.split(',').map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signing::SigningKey;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::read(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()))
    }

    #[test]
    fn complete_settings_are_read_with_their_defaults() {
        let keys = [1, 2].map(|seed| SigningKey::from_seed(&[seed; 32]).public());
        let text = format!("{},{}", keys[0], keys[1]);
        let settings = read(&[(POD_UID, "pod"), (SET_UID, "set"), (WAKE_KEYS, &text)]).unwrap();
        assert_eq!(settings.address.to_string(), "[::]:20000");
        assert_eq!(settings.ticket_file.to_str(), Some("/bps-ticket/ticket"));
        assert_eq!((settings.pod.as_str(), settings.set.as_str()), ("pod", "set"));
        assert_eq!(settings.keys, keys);
    }

    #[test]
    fn each_missing_or_wrong_setting_is_named() {
        let key = SigningKey::from_seed(&[1; 32]).public().to_string();
        let many = [key.as_str(); KEYS_MAX + 1].join(",");
        let with = |keys: &str| read(&[(POD_UID, "pod"), (SET_UID, "set"), (WAKE_KEYS, keys)]).err();
        assert_eq!(read(&[]).err(), Some(Error::Missing(POD_UID)));
        assert_eq!(read(&[(POD_UID, "pod")]).err(), Some(Error::Missing(SET_UID)));
        assert_eq!(read(&[(POD_UID, "pod"), (SET_UID, "set")]).err(), Some(Error::Missing(WAKE_KEYS)));
        assert_eq!(read(&[(POD_UID, "")]).err(), Some(Error::ReadUid { name: POD_UID, source: NotAUid }));
        assert_eq!(read(&[(PORT, "0")]).err(), Some(Error::ReadPort));
        assert_eq!(with(""), Some(Error::CountKeys));
        assert_eq!(with(&many), Some(Error::CountKeys));
        assert_eq!(with("x"), Some(Error::ReadKey { source: KeyError::NotAnEntry }));
    }
}
