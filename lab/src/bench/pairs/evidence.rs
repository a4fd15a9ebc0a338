//! Keeps what explains a round that took long: what its clients saw, and what every container wrote to its log.

use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::Course;
use crate::app::sample::CSV_HEADER;
use crate::app::{Outage, Sample};
use crate::bench::Error;
use crate::paths::RunDirectory;

/// Where a kubelet keeps the logs of containers, below the log directory of its node.
const LOGS: &str = "var-log/pods";

/// Which rounds are kept, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keeping {
    /// Gets a folder for each round that is kept.
    pub folder: PathBuf,
    /// Rounds whose clients waited longer for an answer are kept.
    pub over: Duration,
}

impl Keeping {
    /// Whether one of the clients waited so long, or was never answered again.
    fn is_worth(&self, clients: &[Client<'_>]) -> bool {
        clients.iter().any(|client| client.waited.is_none_or(|time| time > self.over))
    }
}

/// What a client of a round saw.
pub struct Client<'a> {
    /// Name of the file that tells it.
    file: &'static str,
    /// How long it waited; `None`: it was never answered again.
    waited: Option<Duration>,
    samples: &'a [Sample],
}

impl<'a> Client<'a> {
    /// One that makes a connection for each request.
    pub fn fresh(outage: &Outage, samples: &'a [Sample]) -> Self {
        Self { file: "new-connections.csv", waited: outage.whole_again, samples }
    }

    /// One that has one connection.
    pub fn kept(outage: &Outage, samples: &'a [Sample]) -> Self {
        Self { file: "kept-connection.csv", waited: outage.longest_gap, samples }
    }
}

/// Logs of the containers of a round. They stay although the kubelet removes those of a Pod that is gone.
pub struct Evidence<'a> {
    keeping: &'a Keeping,
    run: &'a RunDirectory,
    held: TempDir,
}

impl<'a> Evidence<'a> {
    /// Begins to hold the logs that there are, if rounds are kept at all.
    ///
    /// # Errors
    /// `Write`.
    pub fn of(course: &'a Course<'_>) -> Result<Option<Self>, Error> {
        let run = course.bench.cluster.run_directory();
        course.options.keeping.as_ref().map(|keeping| Self::begin(keeping, run)).transpose()
    }

    fn begin(keeping: &'a Keeping, run: &'a RunDirectory) -> Result<Self, Error> {
        // A file has a second name only in its own file system.
        let held = tempfile::tempdir_in(run.path()).map_err(writing(run.path()))?;
        let evidence = Self { keeping, run, held };
        evidence.hold()?;
        Ok(evidence)
    }

    /// Holds the logs of containers that have come since, too; keeps all with what the clients saw, if it is worth it, in a
    /// folder of this name.
    ///
    /// # Errors
    /// `Write`.
    pub fn end(self, name: &str, clients: &[Client<'_>]) -> Result<(), Error> {
        if !self.keeping.is_worth(clients) {
            return Ok(());
        }
        self.hold()?;
        let folder = self.keeping.folder.join(name.replace([' ', ':', ','], "-"));
        fs::create_dir_all(&folder).map_err(writing(&folder))?;
        for Client { file, samples, .. } in clients {
            let header = iter::once(CSV_HEADER.to_owned());
            let lines: Vec<String> = header.chain(samples.iter().map(Sample::to_string)).collect();
            fs::write(folder.join(file), lines.join("\n") + "\n").map_err(writing(&folder))?;
        }
        for log in entries(self.held.path()).map_err(writing(&folder))? {
            let name = log.file_name().unwrap_or_default();
            fs::copy(&log, folder.join(name)).map_err(writing(&folder))?;
        }
        Ok(())
    }

    /// Gives each log file of each node a second name.
    fn hold(&self) -> Result<(), Error> {
        let nodes = entries(&self.run.path().join("nodes")).map_err(writing(self.run.path()))?;
        for pod in nodes.iter().flat_map(|node| entries(&node.join(LOGS)).unwrap_or_default()) {
            for container in entries(&pod).unwrap_or_default() {
                // Whatever goes at this moment was held before, or is as good as never there.
                for log in entries(&container).unwrap_or_default() {
                    let words = [&pod, &container, &log].map(|path| path.file_name().unwrap_or_default());
                    let name = words.map(|word| word.to_string_lossy()).join("_");
                    drop(fs::hard_link(&log, self.held.path().join(name)));
                }
            }
        }
        Ok(())
    }
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

fn writing(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Write { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Outcome;

    #[test]
    fn a_round_that_took_long_is_kept_with_the_logs_of_pods_that_are_gone() {
        let root = tempfile::tempdir().unwrap();
        let run = RunDirectory::at(root.path());
        let keeping = Keeping { folder: root.path().join("kept"), over: Duration::from_millis(100) };
        let log = |pod: &str| {
            let folder = run.node("one").join(LOGS).join(pod).join("web");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("0.log"), pod).unwrap();
            run.node("one").join(LOGS).join(pod)
        };
        let samples = [Sample { start_ns: 1, end_ns: 2, outcome: Outcome::Ok, pod: "web".to_owned() }];
        let prompt = Outage {
            whole_again: Some(Duration::from_millis(100)),
            longest_gap: Some(Duration::ZERO),
            ..Outage::default()
        };
        let round = |name: &str, outage: &Outage| {
            let before = log("before");
            let evidence = Evidence::begin(&keeping, &run).unwrap();
            fs::remove_dir_all(before).unwrap();
            let after = log("after");
            let clients = [Client::fresh(outage, &samples), Client::kept(&prompt, &[])];
            evidence.end(name, &clients).unwrap();
            fs::remove_dir_all(after).unwrap();
        };
        round("prompt", &prompt);
        round("pair: late, 1", &Outage { whole_again: None, ..prompt.clone() });

        let folder = keeping.folder.join("pair--late--1");
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("new-connections.csv"), format!("{CSV_HEADER}\n1,2,ok,web\n"));
        assert_eq!(read("kept-connection.csv"), format!("{CSV_HEADER}\n"));
        assert_eq!([read("before_web_0.log"), read("after_web_0.log")], ["before", "after"]);
        assert_eq!(entries(&keeping.folder).unwrap().len(), 1);
        assert_eq!(entries(&folder).unwrap().len(), 4);
    }
}
