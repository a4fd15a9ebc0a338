//! The three roles a Pod of a set can have.

use std::fmt;

/// What a Pod is for, from the most to the least awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs and is exposed to clients.
    Primary,
    /// Runs and is not exposed; takes a primary's place at once.
    Hot,
    /// Scheduled with its resources reserved; the application waits behind the cold gate.
    Cold,
}

impl Role {
    /// All roles, in the order in which shortages are filled.
    pub const ALL: [Self; 3] = [Self::Primary, Self::Hot, Self::Cold];

    /// The canonical word: value of the role label, word in logs, status and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Hot => "hot",
            Self::Cold => "cold",
        }
    }

    /// Value of the short `type` label that the BPS paper's users select on.
    pub const fn type_label(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Hot => "hotbackup",
            Self::Cold => "coldbackup",
        }
    }

    /// The role with this canonical word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
