//! An application that cannot be killed, and agents that nobody reads or that stand still.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::machine::process::ProcessId;
use rustix::process::{Pid, Signal, kill_process};

use super::journal::{now, print_outages};
use super::stage::{PATIENCE, Stage};

/// Where the kernel offers to freeze processes so that not even SIGKILL ends them; the second version of cgroups does not.
const FREEZERS: &str = "/sys/fs/cgroup/freezer";

/// How long an agent stands still: three times what it lets pass without a word, and not long enough for a takeover.
const STANDS_STILL: Duration = Duration::from_millis(1_500);

/// A process that does not end before this value is dropped, as if it waited for a disk.
struct Stuck {
    group: PathBuf,
}

impl Stuck {
    fn new(pid: i32) -> io::Result<Self> {
        let group = PathBuf::from(FREEZERS).join(format!("stuck-{pid}"));
        fs::create_dir(&group)?;
        let stuck = Self { group };
        fs::write(stuck.group.join("cgroup.procs"), pid.to_string())?;
        fs::write(stuck.group.join("freezer.state"), "FROZEN")?;
        Ok(stuck)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        fs::write(self.group.join("freezer.state"), "THAWED").expect("it was frozen");
        let began = Instant::now();
        while fs::remove_dir(&self.group).is_err() {
            assert!(began.elapsed() < PATIENCE, "a process that was thawed does not end");
            std::thread::yield_now();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_cannot_be_killed_is_followed_once_its_hold_is_over() {
    if !PathBuf::from(FREEZERS).is_dir() {
        eprintln!(
            "not tested: this kernel has no {FREEZERS}, without which a process ends when it is killed"
        );
        return;
    }
    let mut stage = Stage::set("unkillable").await;
    stage.start_agents();
    let before = stage.settled().await;
    let application = ProcessId::of(before.pid).expect("it runs");
    let child = *application.children().first().expect("it sleeps by way of a child");
    let stuck = Stuck::new(child.pid).expect("it runs");
    let killed = now();
    kill_process(Pid::from_raw(before.pid).expect("a process"), Signal::KILL).expect("it runs");
    let after = stage.start_after(before).await;
    assert_ne!(after.agent, before.agent);
    print_outages("application cannot be killed", &mut [after.at.saturating_sub(killed)]);
    drop(stuck);
    assert_eq!(stage.ended_agent(before.agent).await, Some(137), "its enforcer has killed it");
    stage.start_agent(before.agent);
    stage.settled().await;
    for agent in 0..2 {
        assert_eq!(stage.terminate_agent(agent).await, Some(0));
    }
    stage.end();
}

/// As when the container runtime does not read what comes from its containers.
#[tokio::test(flavor = "multi_thread")]
async fn agents_that_nobody_reads_take_over_and_an_enforcer_kills_all_the_same() {
    let mut stage = Stage::set("unread").await;
    stage.unread = Some(Vec::new());
    stage.start_agents();
    let before = stage.settled().await;
    kill_process(Pid::from_raw(before.pid).expect("a process"), Signal::KILL).expect("it runs");
    let after = stage.start_after(before).await;
    assert_ne!(after.agent, before.agent);
    stage.settled().await;

    stage.signal_agent(after.agent, Signal::STOP);
    let next = stage.start_after(after).await;
    assert_ne!(next.agent, after.agent);
    assert_eq!(stage.ended_agent(after.agent).await, Some(137), "its enforcer has killed it");
    assert_eq!(ProcessId::of(after.pid), None, "with its application");
    assert_eq!(stage.terminate_agent(next.agent).await, Some(0));
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_got_no_processor_time_for_a_while_says_so() {
    let mut stage = Stage::set("late").await;
    stage.start_agents();
    let before = stage.settled().await;
    let standby = 1 - before.agent;
    let said = |stage: &Stage| stage.log(standby).matches("Was woken late").count();
    let known = said(&stage);
    stage.signal_agent(standby, Signal::STOP);
    // As long as a fault lasts, not a wait for something.
    tokio::time::sleep(STANDS_STILL).await;
    stage.signal_agent(standby, Signal::CONT);
    stage.until("a word about it", async || (said(&stage) > known).then_some(())).await;
    assert_eq!(stage.settled().await, before, "nobody takes over because of a standby");
    for agent in 0..2 {
        assert_eq!(stage.terminate_agent(agent).await, Some(0));
    }
    stage.end();
}
