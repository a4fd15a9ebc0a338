//! Runs all parts, each beside what it bears, and shows what became of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cargo::{self, LAB, Workspace};
use crate::files;
use crate::needs::Share;
use crate::order::{self, Candidate};
use crate::part::{Outcome, Part};
use crate::parts::Site;
use crate::report::{self, Ended, Tally};

/// Name of the file with the seconds of the last run.
const SECONDS: &str = "seconds.json";

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Options {
    /// Targets of the Makefile that check the sources.
    pub(crate) lints: Vec<String>,
    /// Only parts whose names contain one of these; all if there are none. The tests are compiled in any case.
    pub(crate) only: Vec<String>,
}

/// Why the suite did not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The workspace is not known, or what was compiled.
    #[error("find the tests")]
    FindTests(#[source] cargo::Error),
    /// A file could not be written or read.
    #[error("keep the logs of the tests")]
    Keep(#[source] files::Error),
    /// Another suite runs.
    #[error("another run of the tests has {folder}; wait for its end, or set CARGO_TARGET_DIR")]
    FindRunning {
        /// Where its logs are.
        folder: PathBuf,
    },
    /// A signal would end the suite alone, and leave its parts behind.
    #[error("handle signals")]
    HandleSignals(#[source] std::io::Error),
}

/// Runs the suite; returns whether all of it passed.
///
/// # Errors
/// See [`enum@Error`]; a part that fails is none.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let began = Instant::now();
    let mut suite = Suite::open(options)?;

    let lints: Vec<Part> = options.lints.iter().map(|target| suite.site.lint(target)).collect();
    for lint in suite.chosen(lints) {
        suite.run_all(vec![lint]);
    }

    let Compiled { lab, tests } = suite.compile()?;
    let tests = suite.chosen(tests);
    let has_control_planes = tests.iter().any(|part| part.needs.share != Share::Processor);
    if let Some(lab) = lab.filter(|_| has_control_planes) {
        suite.run_all(vec![suite.site.programs(&lab)]);
    }
    suite.run_all(tests);

    suite.sum_up(began.elapsed())
}

/// A run of the suite.
struct Suite<'a> {
    options: &'a Options,
    site: Site,
    /// Seconds of each part in earlier runs.
    last: BTreeMap<String, f64>,
    is_stopping: Arc<AtomicBool>,
    ended: Vec<Ended>,
    /// Two suites would write the same logs, and each would take the other's time for its own.
    _lock: File,
}

/// What the compilation makes possible.
#[derive(Default)]
struct Compiled {
    /// The lab, which builds what Cargo does not.
    lab: Option<PathBuf>,
    tests: Vec<Part>,
}

/// A part that runs.
struct Running {
    name: String,
    share: Share,
}

impl<'a> Suite<'a> {
    fn open(options: &'a Options) -> Result<Self, Error> {
        let cargo = std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from);
        let workspace = Workspace::ask(&cargo).map_err(Error::FindTests)?;
        let folder = workspace.target_directory.join("suite");
        files::create_folder(&folder).map_err(Error::Keep)?;
        let lock = lock(&folder)?;

        let is_stopping = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, is_stopping.clone()).map_err(Error::HandleSignals)?;
        }
        // A first run has none, and one that cannot be read is no reason not to test.
        let last = fs::read_to_string(folder.join(SECONDS)).unwrap_or_default();
        let last = serde_json::from_str(&last).unwrap_or_default();
        let site = Site { cargo, workspace, folder };
        Ok(Self { options, site, last, is_stopping, ended: Vec::new(), _lock: lock })
    }

    fn chosen(&self, parts: Vec<Part>) -> Vec<Part> {
        let only = &self.options.only;
        let is_chosen =
            |part: &Part| only.is_empty() || only.iter().any(|word| part.name.contains(word.as_str()));
        parts.into_iter().filter(is_chosen).collect()
    }

    /// Compiles all tests; there are none if that does not succeed.
    fn compile(&mut self) -> Result<Compiled, Error> {
        self.run_all(vec![self.site.compilation()]);
        if self.ended.last().is_none_or(|compilation| compilation.outcome != Outcome::Passed) {
            self.note("tests", Outcome::LeftOut("they were not compiled".to_owned()));
            return Ok(Compiled::default());
        }

        let messages = files::read(&self.site.messages()).map_err(Error::Keep)?;
        let built = self.site.workspace.built(&messages).map_err(Error::FindTests)?;
        let packages = self.site.workspace.packages_with_doc_tests(files::sources);
        let mut tests: Vec<Part> = built.tests.into_iter().map(Site::test).collect();
        let lab = built.programs.get(LAB).cloned();
        tests.extend(self.site.doc_tests(&packages));
        Ok(Compiled { lab, tests })
    }

    /// Runs these parts, each beside what it bears. Ends when they do, and each has a bound.
    fn run_all(&mut self, parts: Vec<Part>) {
        let mut waiting = self.without_left_out(parts);
        let mut running: Vec<Running> = Vec::new();
        let (sender, reports) = mpsc::channel();
        let is_stopping = self.is_stopping.clone();
        thread::scope(|scope| {
            loop {
                while let Some(part) = self.take_next(&mut waiting, &running) {
                    running.push(Running { name: part.name.clone(), share: part.needs.share });
                    println!("{} ...", part.name);
                    let log = part.log(&self.site.folder);
                    let (sender, is_stopping) = (sender.clone(), &is_stopping);
                    scope.spawn(move || {
                        let began = Instant::now();
                        let outcome = part.run(&log, is_stopping);
                        let report = Report { part, outcome, took: began.elapsed() };
                        sender.send(report).expect("the suite waits for it");
                    });
                }

                if running.is_empty() {
                    break;
                }
                let report = reports.recv().expect("a sender is kept here");
                running.retain(|part| part.name != report.part.name);
                self.show(report);
            }
        });
        for part in waiting {
            self.note(&part.name, Outcome::LeftOut("the suite was told to end".to_owned()));
        }
    }

    fn without_left_out(&mut self, parts: Vec<Part>) -> Vec<Part> {
        let may_run = |part: &Part| !part.needs.is_for_root || rustix::process::geteuid().is_root();
        let (waiting, left_out): (Vec<_>, Vec<_>) = parts.into_iter().partition(may_run);
        for part in left_out {
            self.note(&part.name, Outcome::LeftOut("it needs root (namespaces, mounts, cgroups)".to_owned()));
        }
        waiting
    }

    fn take_next(&self, waiting: &mut Vec<Part>, running: &[Running]) -> Option<Part> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return None;
        }
        let candidates: Vec<Candidate> = waiting.iter().map(|part| self.candidate(part)).collect();
        let shares: Vec<Share> = running.iter().map(|part| part.share).collect();
        order::next(&candidates, &shares).map(|index| waiting.remove(index))
    }

    fn candidate(&self, part: &Part) -> Candidate {
        let last = self.last.get(&part.name).and_then(|seconds| Duration::try_from_secs_f64(*seconds).ok());
        let expected = last.unwrap_or(part.needs.expected);
        Candidate { name: part.name.clone(), share: part.needs.share, expected }
    }

    /// Shows what a part said: all of it if it failed or if that is wanted, else its last words.
    fn show(&mut self, report: Report) {
        let Report { part, outcome, took } = report;
        let log = part.log(&self.site.folder);
        // A part that did not start has no log.
        let said = fs::read(&log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let seconds = took.as_secs_f64();
        println!("{} ... {} ({seconds:.1} s, {})", part.name, described(&outcome), log.display());
        if outcome != Outcome::Passed || part.needs.is_shown {
            println!("{}", said.trim_end());
        } else {
            for line in report::last_words(&said) {
                println!("{line}");
            }
        }
        if outcome != Outcome::Passed
            && let Some(hint) = report::disk_hint(files::free_mib(&self.site.folder))
        {
            println!("{hint}");
        }
        let tally = Tally::of(&said, &outcome);
        let failures = report::failures(&said);
        self.ended.push(Ended { name: part.name, outcome, seconds, tally, failures });
    }

    /// The same for a part that was not run.
    fn note(&mut self, name: &str, outcome: Outcome) {
        println!("{name} ... {}", described(&outcome));
        let tally = Tally::of("", &outcome);
        self.ended.push(Ended { name: name.to_owned(), outcome, seconds: 0.0, tally, failures: vec![] });
    }

    /// Prints the table, what failed once more, and the sum; returns whether all is well.
    fn sum_up(self, took: Duration) -> Result<bool, Error> {
        println!("\n{}all of them took {:.1} s", report::table(&self.ended, &self.last), took.as_secs_f64());
        let remembered = report::remembered(&self.ended, &self.last);
        let text = serde_json::to_vec_pretty(&remembered).expect("names and numbers");
        files::write(&self.site.folder.join(SECONDS), &text).map_err(Error::Keep)?;

        for part in self.ended.iter().filter(|part| part.outcome != Outcome::Passed) {
            println!("{}: {}", part.name, described(&part.outcome));
            for failure in &part.failures {
                println!("  {failure}");
            }
        }
        let sum = self.ended.iter().fold(Tally::default(), |sum, part| sum.plus(part.tally));
        println!("{sum}");
        Ok(sum.failed == 0 && !self.is_stopping.load(Ordering::Relaxed))
    }
}

/// A part that has ended, and how.
struct Report {
    part: Part,
    outcome: Outcome,
    took: Duration,
}

fn described(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::Failed(why) => format!("FAILED: {why}"),
        Outcome::LeftOut(why) => format!("left out: {why}"),
    }
}

fn lock(folder: &Path) -> Result<File, Error> {
    let path = folder.join("lock");
    let failed = |error| Error::Keep(files::Error::of("lock", &path, error));
    let file = File::create(&path).map_err(failed)?;
    let is_free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    if is_free { Ok(file) } else { Err(Error::FindRunning { folder: folder.to_owned() }) }
}
