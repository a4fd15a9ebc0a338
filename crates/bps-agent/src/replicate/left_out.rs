//! Files of the state directory that belong to one run of the application, such as the one with its process ID.
//!
//! They are not replicated, and removed before each start. kea-dhcp4, chrony, rsyslog, pgbouncer, kamailio and squid refuse
//! to start beside a file with the process ID that they have themselves, which is ordinary in a container: each start of it
//! gives the same IDs. The first three, but for chrony, refuse an empty one as well.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::image::StatePath;

/// Longest file that is taken for one with a process ID. Unit: bytes. 256: a `postmaster.pid` has seven lines.
const PID_FILE_MAX_BYTES: u64 = 256;
/// How the names of such files end.
const PID_FILE: &[u8] = b".pid";

/// A path below the state directory, with one `*` in its last name at most, which stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutPattern {
    /// The folder; empty: the state directory itself.
    folder: String,
    /// The name up to the `*`, or all of it.
    begin: String,
    /// What follows the `*`, if there is one.
    end: Option<String>,
}

/// All files of a state directory that belong to one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    patterns: Vec<LeftOutPattern>,
}

impl FromStr for LeftOutPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let advice =
            "write a path below the state directory with at most one * in its last name, such as run/*.lock";
        if StatePath::parse(text.as_bytes()).is_none() || text.contains('\n') {
            return Err(advice.to_owned());
        }

        let (folder, name) = text.rsplit_once('/').unwrap_or(("", text));
        let (begin, end) = match name.split_once('*') {
            Some((begin, end)) => (begin, Some(end)),
            None => (name, None),
        };
        let has_more = folder.contains('*') || end.is_some_and(|end| end.contains('*'));
        if has_more {
            return Err(advice.to_owned());
        }
        Ok(Self { folder: folder.to_owned(), begin: begin.to_owned(), end: end.map(str::to_owned) })
    }
}

impl LeftOutPattern {
    fn matches(&self, folder: &[u8], name: &[u8]) -> bool {
        if folder != self.folder.as_bytes() {
            return false;
        }
        let (begin, end) = (self.begin.as_bytes(), self.end.as_deref().map(str::as_bytes));
        match end {
            None => name == begin,
            Some(end) => {
                name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
            }
        }
    }
}

impl LeftOut {
    /// Files with a process ID, and those that these patterns name.
    pub fn naming(patterns: Vec<LeftOutPattern>) -> Self {
        Self { patterns }
    }

    /// Whether the path is one of a pattern.
    pub fn names(&self, path: &StatePath) -> bool {
        let (folder, name) = path.split();
        self.patterns.iter().any(|pattern| pattern.matches(folder, name))
    }

    /// Removes all of them from the state directory. What cannot be removed stays; the application will say what it makes of it.
    ///
    /// # Errors
    /// A folder cannot be read, or a file not removed.
    pub fn remove_from(&self, root: &Path) -> io::Result<()> {
        let mut folders: Vec<&str> = self.patterns.iter().map(|pattern| &*pattern.folder).collect();
        folders.push("");
        folders.sort_unstable();
        folders.dedup();
        for folder in folders {
            let entries = match fs::read_dir(root.join(folder)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name();
                let is_named =
                    self.patterns.iter().any(|pattern| pattern.matches(folder.as_bytes(), name.as_bytes()));
                // Nothing is followed: a link is no file here.
                let is_file = entry.file_type()?.is_file();
                if is_file && (is_named || folder.is_empty() && is_pid_file(&name, &entry.path())?) {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        Ok(())
    }

    /// As text for the process that becomes the application, with the state directory; see [`LeftOut::of_text`].
    pub fn text(&self, root: &Path) -> Option<String> {
        let patterns = self.patterns.iter().map(|LeftOutPattern { folder, begin, end }| {
            let slash = if folder.is_empty() { "" } else { "/" };
            let end = end.as_ref().map(|end| format!("*{end}")).unwrap_or_default();
            format!("\n{folder}{slash}{begin}{end}")
        });
        // The first line is all of it.
        let root = root.to_str().filter(|root| !root.contains('\n'))?;
        Some(root.to_owned() + &patterns.collect::<String>())
    }

    /// The state directory and its files of one run, as [`LeftOut::text`] writes them; what is no pattern is ignored.
    pub fn of_text(text: &OsStr) -> Option<(PathBuf, Self)> {
        let mut lines = text.to_str()?.lines();
        let root = PathBuf::from(lines.next()?);
        let patterns = lines.filter_map(|line| line.parse().ok()).collect();
        Some((root, Self { patterns }))
    }
}

/// Whether a file may have a process ID in it, by its path and its length.
pub fn may_be_pid_file(path: &StatePath, bytes: u64) -> bool {
    let (folder, name) = path.split();
    folder.is_empty() && name.ends_with(PID_FILE) && bytes <= PID_FILE_MAX_BYTES
}

/// Whether that is in it: nothing, or a number in the first line. Anything else is data, whatever it is called.
///
/// # Errors
/// It cannot be read.
pub fn has_pid(from: impl io::Read) -> io::Result<bool> {
    let mut text = Vec::new();
    from.take(PID_FILE_MAX_BYTES + 1).read_to_end(&mut text)?;
    let is_short = u64::try_from(text.len()).is_ok_and(|length| length <= PID_FILE_MAX_BYTES);
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    Ok(is_short && first.iter().all(u8::is_ascii_digit))
}

fn is_pid_file(name: &OsStr, path: &Path) -> io::Result<bool> {
    Ok(name.as_bytes().ends_with(PID_FILE) && has_pid(fs::File::open(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(patterns: &[&str]) -> LeftOut {
        LeftOut::naming(patterns.iter().map(|text| text.parse().expect("a pattern")).collect())
    }

    #[test]
    fn a_pattern_is_a_path_with_one_star_in_its_last_name() {
        let names = |pattern: &str, path: &str| {
            left_out(&[pattern]).names(&StatePath::parse(path.as_bytes()).expect("a path"))
        };
        for (pattern, path, expected) in [
            ("node.lock", "node.lock", true),
            ("node.lock", "data/node.lock", false),
            ("run/*.lock", "run/a.lock", true),
            ("run/*.lock", "run/.lock", true),
            ("run/*.lock", "a.lock", false),
            ("run/*.lock", "run/below/a.lock", false),
            ("a*a", "a", false),
            ("*", "anything", true),
        ] {
            assert_eq!(names(pattern, path), expected, "{pattern} {path}");
        }
        for text in ["", "/a", "../a", "a/../b", "*/a", "a*b*c", "a\nb", ".bps-ha/id"] {
            let error = text.parse::<LeftOutPattern>().expect_err(text);
            assert!(error.contains("such as run/*.lock"), "{error}");
        }
    }

    #[test]
    fn what_has_a_process_id_and_what_is_named_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("run")).unwrap();
        for (name, text) in [
            ("kea.pid", "7\n"),
            ("empty.pid", ""),
            ("postmaster.pid", "7\n/data\n1700000000\n5432\n"),
            ("run/a.lock", "x"),
            ("data.pid", "not one"),
            ("long.pid", &"7".repeat(257)),
            ("run/b.pid", "7"),
            ("run/a.log", "x"),
            ("a.lock", "x"),
        ] {
            write(name, text);
        }
        std::os::unix::fs::symlink("kea.pid", folder.path().join("link.pid")).unwrap();

        let all = left_out(&["run/*.lock", "missing/*"]);
        let (root, told) = LeftOut::of_text(OsStr::new(&all.text(folder.path()).unwrap())).unwrap();
        assert_eq!((&*root, &told), (folder.path(), &all));
        assert_eq!(all.text(Path::new("/state\n/other")), None);
        told.remove_from(&root).unwrap();

        let mut left = Vec::new();
        for below in ["", "run"] {
            let entries = fs::read_dir(folder.path().join(below)).unwrap();
            left.extend(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
        }
        left.sort();
        assert_eq!(left, ["a.lock", "a.log", "b.pid", "data.pid", "link.pid", "long.pid", "run"]);
    }
}
