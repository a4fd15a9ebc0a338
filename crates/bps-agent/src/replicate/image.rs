//! What is below a state directory, and how one such image becomes another one.
//!
//! Pure: touches no disk; see `scan` and `inbox`.

use std::collections::BTreeMap;

use super::HIDDEN_FOLDER;

/// Longest path below a state directory. Unit: bytes.
pub const PATH_MAX_BYTES: usize = 1024;
/// Most folders on the way to a file.
pub const PATH_MAX_PARTS: usize = 32;
/// Longest name of a file. Unit: bytes. Source: `NAME_MAX` of Linux.
const NAME_MAX_BYTES: usize = 255;

/// Length of a hash of contents (SHA-256). Unit: bytes.
pub const HASH_BYTES: usize = 32;

/// A path below a state directory that leads nowhere else: relative, without `.` and `..`, and never into the folder
/// that the agents keep there for themselves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatePath(Vec<u8>);

/// What is at a path. Anything but regular files and folders is not replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A folder.
    Folder {
        /// Permission bits.
        mode: u16,
    },
    /// A regular file.
    File {
        /// Permission bits.
        mode: u16,
        /// Unit: bytes.
        size: u64,
        /// SHA-256 of its content.
        hash: [u8; HASH_BYTES],
    },
}

/// All that is below a state directory.
pub type Image = BTreeMap<StatePath, Entry>;

/// One step from one image to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Remove what is there: a file, or a folder that is empty by then.
    Remove(StatePath),
    /// Make a folder.
    MakeFolder(StatePath, u16),
    /// Change permission bits only.
    SetMode(StatePath, u16),
    /// The file has other content, of which the first bytes may be those that it has.
    Write(StatePath),
}

impl StatePath {
    /// The path, if it is one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let is_name = |name: &[u8]| {
            !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_MAX_BYTES && !name.contains(&0)
        };
        let mut parts = bytes.split(|byte| *byte == b'/');
        let is_hidden = parts.clone().next() == Some(HIDDEN_FOLDER.as_bytes());
        let is_short = bytes.len() <= PATH_MAX_BYTES && parts.clone().count() <= PATH_MAX_PARTS;
        (is_short && !is_hidden && parts.all(is_name)).then(|| Self(bytes.to_owned()))
    }

    /// What has this name in the folder; `None` stands for the state directory itself.
    pub fn below(folder: Option<&Self>, name: &[u8]) -> Option<Self> {
        match folder {
            None => Self::parse(name),
            Some(Self(folder)) => Self::parse(&[folder, &b"/"[..], name].concat()),
        }
    }

    /// The bytes of it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path of the folder, empty for the state directory itself, and the last name.
    pub fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&[][..], &self.0[..]),
        }
    }

    /// The folder that it is in; `None`: the state directory itself.
    pub fn folder(&self) -> Option<Self> {
        Self::parse(self.split().0)
    }

    /// The names of the folders on the way, and the last name.
    pub fn parts(&self) -> (impl Iterator<Item = &[u8]>, &[u8]) {
        let (folders, name) = self.split();
        (folders.split(|byte| *byte == b'/').filter(|name| !name.is_empty()), name)
    }

    /// For people.
    pub fn display(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl Entry {
    /// Permission bits.
    pub fn mode(&self) -> u16 {
        match self {
            Self::Folder { mode } | Self::File { mode, .. } => *mode,
        }
    }
}

/// What makes `want` of `have`.
///
/// What is in the way comes first, then all that is new, and what is left over last: a crash in between leaves a renamed
/// file under both names instead of none.
pub fn diff(have: &Image, want: &Image) -> Vec<Change> {
    let (mut in_the_way, mut left_over, mut new) = (Vec::new(), Vec::new(), Vec::new());
    // What is in a folder comes after it, so it is removed before it.
    for (path, entry) in have.iter().rev() {
        match (entry, want.get(path)) {
            (_, None) if has_file_above(path, want) => in_the_way.push(Change::Remove(path.clone())),
            (_, None) => left_over.push(Change::Remove(path.clone())),
            (Entry::Folder { .. }, Some(Entry::File { .. }))
            | (Entry::File { .. }, Some(Entry::Folder { .. })) => {
                in_the_way.push(Change::Remove(path.clone()));
            }
            (Entry::Folder { .. }, Some(Entry::Folder { .. }))
            | (Entry::File { .. }, Some(Entry::File { .. })) => {}
        }
    }
    for (path, entry) in want {
        match (have.get(path), entry) {
            (Some(have), entry) if have == entry => {}
            (Some(Entry::File { size: had, hash: old, .. }), Entry::File { mode, size, hash })
                if (had, old) == (size, hash) =>
            {
                new.push(Change::SetMode(path.clone(), *mode));
            }
            (Some(Entry::Folder { .. }), Entry::Folder { mode }) => {
                new.push(Change::SetMode(path.clone(), *mode));
            }
            (_, Entry::Folder { mode }) => new.push(Change::MakeFolder(path.clone(), *mode)),
            (_, Entry::File { .. }) => new.push(Change::Write(path.clone())),
        }
    }
    in_the_way.into_iter().chain(new).chain(left_over).collect()
}

/// Whether a folder on the way to it is to become a file.
fn has_file_above(path: &StatePath, want: &Image) -> bool {
    let bytes = path.as_bytes();
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.filter_map(|at| StatePath::parse(&bytes[..at]))
        .any(|above| matches!(want.get(&above), Some(Entry::File { .. })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> StatePath {
        StatePath::parse(text.as_bytes()).unwrap()
    }

    fn file(content: u8, mode: u16) -> Entry {
        Entry::File { mode, size: 1, hash: [content; HASH_BYTES] }
    }

    #[test]
    fn only_paths_that_stay_below_the_directory_are_paths() {
        for good in ["a", "a/b", ".hidden", "a/.bps-ha", "..a", "a b\n"] {
            assert!(StatePath::parse(good.as_bytes()).is_some(), "{good:?}");
        }
        let long = "a".repeat(NAME_MAX_BYTES + 1);
        let deep = vec!["a"; PATH_MAX_PARTS + 1].join("/");
        for bad in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "a/.",
            ".bps-ha",
            ".bps-ha/id",
            "a\0",
            &long,
            &deep,
        ] {
            assert_eq!(StatePath::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn a_path_has_folders_and_a_name() {
        let path = path("a/b/c");
        let (folders, name) = path.parts();
        assert_eq!((folders.collect::<Vec<_>>(), name), (vec![&b"a"[..], b"b"], &b"c"[..]));
    }

    #[test]
    fn what_is_in_the_way_goes_first_and_what_is_left_over_last() {
        let have = Image::from([
            (path("a"), Entry::Folder { mode: 0o755 }),
            (path("a/b"), file(1, 0o644)),
            (path("c"), file(2, 0o644)),
            (path("d"), file(3, 0o644)),
            (path("e"), Entry::Folder { mode: 0o755 }),
            (path("e/f"), file(4, 0o644)),
        ]);
        let want = Image::from([
            (path("a"), file(1, 0o644)),
            (path("c"), file(2, 0o600)),
            (path("d"), Entry::Folder { mode: 0o700 }),
            (path("d/g"), file(5, 0o644)),
        ]);
        let expected = [
            Change::Remove(path("d")),
            Change::Remove(path("a/b")),
            Change::Remove(path("a")),
            Change::Write(path("a")),
            Change::SetMode(path("c"), 0o600),
            Change::MakeFolder(path("d"), 0o700),
            Change::Write(path("d/g")),
            Change::Remove(path("e/f")),
            Change::Remove(path("e")),
        ];
        assert_eq!(diff(&have, &want), expected);
        assert_eq!(diff(&want, &want), []);
    }
}
