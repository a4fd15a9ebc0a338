//! An application that works no more without ending.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::LONG_ROUNDS;
use super::journal::{now, print_outages};
use super::stage::Stage;

/// Succeeds until the test says that the application of this agent hangs.
const CHECK: &str = r#"--live-exec=["sh", "-c", "[ ! -e \"$JOURNAL.$AGENT.hangs\" ]"]"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_hangs_is_followed_as_one_that_crashed() {
    let mut stage = Stage::set("hangs").await;
    stage.arguments = vec![CHECK.to_owned(), "--live-period=1".to_owned(), "--live-failures=2".to_owned()];
    stage.start_agents();
    let mut outages = Vec::new();
    for _ in 0..LONG_ROUNDS {
        let before = stage.settled().await;
        let hangs = stage.directory.join(format!("journal.{}.hangs", before.agent));
        let pid = Pid::from_raw(before.pid).expect("a process");
        kill_process(pid, Signal::STOP).expect("it runs");
        let hung = now();
        fs::write(&hangs, "").expect("a file");
        let after = stage.start_after(before).await;
        assert_ne!(after.agent, before.agent);
        outages.push(after.at.saturating_sub(hung));
        fs::remove_file(&hangs).expect("it was there");
    }
    print_outages("application hangs, two checks of one second", &mut outages);
    for agent in 0..2 {
        assert_eq!(stage.terminate_agent(agent).await, Some(0));
    }
    stage.end();
}

/// Ends as soon as it has said that it was started.
const CRASHES: &str = r#"echo "start $HA_EPOCH $AGENT $$ $(date +%s%N) $HA_PEER" >> "$JOURNAL"; exit 1"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_ends_again_and_again_is_started_ever_later_and_its_pods_are_not_ready() {
    let mut stage = Stage::set("crashes").await;
    (stage.application, stage.restart_pause_max) = (CRASHES, 8);
    stage.start_agents();
    let starts_of = |agent| {
        let starts = stage.starts().into_iter().filter(|start| start.agent == agent);
        starts.map(|start| start.at).collect::<Vec<_>>()
    };
    let looped = async || [0, 1].map(&starts_of).iter().all(|starts| starts.len() >= 4).then_some(());
    stage.until("four starts by each agent", looped).await;
    for agent in 0..2 {
        let starts = starts_of(agent);
        let pauses: Vec<Duration> = starts.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        println!("agent {agent}: {pauses:.1?} from start to start");
        // In a loop, no other one is asked: that would cost writes, and has failed as well.
        let epochs: Vec<u64> =
            stage.starts().iter().filter(|start| start.agent == agent).map(|start| start.epoch).collect();
        assert!(epochs.windows(2).any(|pair| pair[0] == pair[1]), "{epochs:?}");
        stage.until("a Pod that is not ready", async || (!stage.is_ready(agent)).then_some(())).await;
        assert!(stage.log(agent).contains("waits longer each time"), "{}", stage.log(agent));
    }
    stage.end();
}
