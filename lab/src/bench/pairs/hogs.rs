//! A pair without a fault, while other processes want all processor time of the machine: nobody may take over.

use std::collections::BTreeSet;
use std::process::{self, Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Course;
use super::idle::epoch;
use super::report::Report;
use super::site::Site;
use super::trial::QUIET;
use crate::app::Outage;
use crate::bench::Error;
use crate::machine;

/// What is measured, behind the name of the site.
pub const WHAT: &str = "four CPU hogs, no fault";
/// How many processes want a core each.
pub const COUNT: usize = 4;
/// How many times as long as idling it is watched.
const TIMES: u32 = 2;
/// Pause between two looks at the Lease: a tenure lasts longer than that.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A program that never waits for anything, and ends within a second or so after whoever started it, whose process ID
/// it is told: its own `$PPID` is another one if that has ended before it looks.
const LOOP: [&str; 3] = [
    "sh",
    "-c",
    "while read -r _ _ _ parent _ < /proc/$$/stat && [ $parent = $0 ]; do
        i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done
    done",
];

/// Processes that take all they get; dropping the value ends them, and so does the end of this process.
pub struct Hogs(Vec<Child>);

impl Hogs {
    /// Starts so many.
    ///
    /// # Errors
    /// `Machine` if one does not start.
    pub fn start(count: usize) -> Result<Self, Error> {
        let mut hogs = Self(Vec::new());
        for _ in 0..count {
            let [program, arguments @ ..] = LOOP;
            let mut command = Command::new(program);
            command
                .args(arguments)
                .arg(process::id().to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let child = command.spawn().map_err(|source| Error::Machine {
                action: "start a process that takes all processor time",
                source: Box::new(machine::Error::Start { command: LOOP.join(" "), source }),
            })?;
            hogs.0.push(child);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Nothing else ends it, so both succeed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Watches, if it is wanted.
///
/// # Errors
/// `Request`, `Find`, `Machine`.
pub async fn run(course: &Course<'_>, site: &Site, title: &str, report: &mut Report) -> Result<(), Error> {
    let what = format!("{title}: {WHAT}");
    if !course.options.wants(&what) {
        return Ok(());
    }
    let time = course.options.idle * TIMES;
    eprint!("{what:<60} {} s", time.as_secs());
    let active = site.settled().await?;
    // The nodes lead to it then, too.
    sleep(QUIET).await;
    site.forget_visits(course.bench, &active).await?;
    let visit = site.visit(course.bench, &active).await?;
    let before = epoch(site).await?;
    let hogs = Hogs::start(COUNT)?;
    let (until, mut epochs) = (Instant::now() + time, BTreeSet::from([before]));
    while Instant::now() < until {
        sleep(LOOK_EVERY).await;
        // An API server that is late is asked again.
        epochs.extend(epoch(site).await.ok());
    }
    drop(hogs);
    let (outage, _) = visit.end().await?;
    eprintln!();
    course.note(report, format!("{title}: {}", line(time, epochs.len() - 1, &outage)));
    Ok(())
}

fn line(time: Duration, takeovers: usize, outage: &Outage) -> String {
    let (seconds, failed, requests) = (time.as_secs(), outage.failed, outage.requests);
    format!(
        "{COUNT} processes that take all processor time, {seconds} s without a fault: {takeovers} takeovers (target 0), \
         {failed} of {requests} requests failed"
    )
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;
    use crate::machine::process::ProcessId;

    #[test]
    fn hogs_end_after_whoever_started_them() {
        let [program, flag, script] = LOOP;
        let mut between = Command::new(program)
            .args([flag, r#""$0" "$1" "$2" $$ 2>/dev/null & echo $!; wait"#, program, flag, script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pid = String::new();
        BufReader::new(between.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let hog = ProcessId::of(pid.trim().parse().unwrap()).unwrap();
        assert!(hog.is_running());
        between.kill().unwrap();
        between.wait().unwrap();
        let began = std::time::Instant::now();
        while hog.is_running() {
            assert!(began.elapsed() < Duration::from_secs(30), "it goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn hogs_end_with_their_value() {
        let hogs = Hogs::start(2).unwrap();
        let processes: Vec<_> =
            hogs.0.iter().map(|child| ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap()).collect();
        assert!(processes.iter().all(|process| process.is_running()));
        drop(hogs);
        assert!(!processes.iter().any(|process| process.is_running()));
    }

    #[test]
    fn the_line_names_takeovers_and_failed_requests() {
        let outage = Outage { requests: 9, failed: 1, ..Outage::default() };
        assert_eq!(
            line(Duration::from_secs(120), 0, &outage),
            "4 processes that take all processor time, 120 s without a fault: 0 takeovers (target 0), 1 of 9 requests failed"
        );
    }
}
