//! Remembers and restores the kernel settings that a kubelet changes for the whole machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Error;

/// Settings that kubelet writes at its start (`setupKernelTunables` of its container manager), as paths
/// below `/proc/sys`. kube-proxy's settings are per network namespace and end with it.
const CHANGED_BY_KUBELET: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// The present values, by path below `/proc/sys`; settings that this kernel does not have are left out.
pub fn read() -> BTreeMap<String, String> {
    CHANGED_BY_KUBELET
        .into_iter()
        .filter_map(|key| {
            let value = fs::read_to_string(path(key)).ok()?;
            Some((key.to_owned(), value.trim().to_owned()))
        })
        .collect()
}

/// Writes back every value that has changed.
///
/// # Errors
/// `File` if the kernel refuses a value.
pub fn restore(saved: &BTreeMap<String, String>) -> Result<(), Error> {
    for (key, value) in changed(saved, &read()) {
        write(&key, &value)?;
    }
    Ok(())
}

/// Writes one value, by path below `/proc/sys`.
///
/// # Errors
/// `File` if the kernel refuses it.
pub fn write(key: &str, value: &str) -> Result<(), Error> {
    let path = path(key);
    fs::write(&path, value).map_err(|error| Error::file("write", &path, error))
}

/// The saved values that differ from the present ones.
pub fn changed(
    saved: &BTreeMap<String, String>,
    present: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    saved
        .iter()
        .filter(|(key, value)| present.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn path(key: &str) -> PathBuf {
    Path::new("/proc/sys").join(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_that_differ_are_written_back() {
        let saved = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "0".to_owned())]);
        let present = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "10".to_owned())]);
        assert_eq!(changed(&saved, &present), BTreeMap::from([("b".to_owned(), "0".to_owned())]));
    }
}
