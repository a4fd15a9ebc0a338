//! Which state directories have every acknowledged write, as an annotation of the Lease says it.

use std::collections::BTreeSet;

/// Number of a state directory: drawn when it is first used, and kept in it. Not that of a Pod: a Pod may come back with
/// another directory, and a directory with another Pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId(pub u128);

/// What a version of the Lease says of the directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Nothing: nobody has acted yet.
    #[default]
    Unsaid,
    /// These have every acknowledged write.
    Only(BTreeSet<DirectoryId>),
    /// It cannot be read.
    Unreadable,
}

impl Level {
    /// Reads the annotation.
    pub fn read(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::Unsaid };
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let number = |word: &str| u128::from_str_radix(word, 16).map(DirectoryId);
        words.map(number).collect::<Result<_, _>>().map_or(Self::Unreadable, Self::Only)
    }

    /// The annotation.
    pub fn write(level: &BTreeSet<DirectoryId>) -> String {
        let words: Vec<_> = level.iter().map(|directory| format!("{:032x}", directory.0)).collect();
        words.join(",")
    }

    /// How many are level; `None` if nobody has acted with replicated state.
    pub fn count(&self) -> Option<usize> {
        match self {
            Self::Unsaid => None,
            Self::Only(level) => Some(level.len()),
            Self::Unreadable => Some(0),
        }
    }

    /// Whether exactly these are level.
    pub fn is(&self, directories: &BTreeSet<DirectoryId>) -> bool {
        matches!(self, Self::Only(level) if level == directories)
    }

    /// Whether this one is level.
    pub fn names(&self, own: DirectoryId) -> bool {
        matches!(self, Self::Only(level) if level.contains(&own))
    }

    /// Whether another one than this is level.
    pub fn names_others(&self, own: DirectoryId) -> bool {
        matches!(self, Self::Only(level) if level.iter().any(|directory| *directory != own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DirectoryId = DirectoryId(0xa);
    const B: DirectoryId = DirectoryId(0xb);

    #[test]
    fn the_annotation_is_read_as_it_was_written() {
        for directories in [&[][..], &[A], &[A, B]] {
            let set = directories.iter().copied().collect();
            assert_eq!(Level::read(Some(&Level::write(&set))), Level::Only(set));
        }
        assert_eq!((Level::read(None), Level::read(Some("web-0"))), (Level::Unsaid, Level::Unreadable));
    }
}
