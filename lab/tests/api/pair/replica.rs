//! State that is replicated: no write that was acknowledged after a barrier is lost, whatever fails.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bps_agent::replicate::HIDDEN_FOLDER;
use bps_api::keys;
use bps_protocol::AgentId;
use bps_wire::lag::Told;
use bps_wire::lease::Record;
use bps_wire::level::Level;
use rustix::process::Signal;
use serde_json::json;

use super::journal::{Start, print_outages};
use super::stage::{HEARD_WITHIN, Stage, pod};

/// Faults of each kind.
const ROUNDS: usize = 4;
/// Acknowledged writes between two faults.
const WRITES: usize = 10;
/// More than the 2 s after which a standby takes over that may.
const LONG_ENOUGH: Duration = Duration::from_secs(5);

/// Goes on with the number after the last one in its log, and acknowledges each after a barrier.
const COUNTER: &str = r#"
say() { echo "$1 $HA_EPOCH $AGENT $$ $(date +%s%N) $HA_PEER" >> "$JOURNAL"; }
exec 9>> "$JOURNAL.lock"
flock -n 9 || say two
say start
trap 'say stop; exit 0' TERM
number=$(tail -n 1 "$STATE/log" 2> /dev/null)
while :; do
    number=$((number + 1))
    echo "$number" >> "$STATE/log"
    answer=$("$PROGRAM" sync 9>&-) && echo "$number $HA_EPOCH ${answer%% *}" >> "$JOURNAL.acknowledged"
done
"#;

/// A write that a client was told is safe.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Acknowledged {
    number: u64,
    epoch: u64,
    is_alone: bool,
}

fn acknowledged(stage: &Stage) -> Vec<Acknowledged> {
    let text = fs::read_to_string(stage.directory.join("journal.acknowledged")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        let number = |index: usize| fields[index].parse().expect("a number");
        Acknowledged { number: number(0), epoch: number(1), is_alone: fields[2] == "alone" }
    });
    lines.collect()
}

/// Waits until so many more writes were acknowledged in a tenure, on both disks or on one.
async fn writes(stage: &Stage, start: Start, is_alone: bool) {
    let count = |writes: Vec<Acknowledged>| {
        writes.iter().filter(|write| (write.epoch, write.is_alone) == (start.epoch, is_alone)).count()
    };
    let before = count(acknowledged(stage));
    stage
        .until("acknowledged writes", async || (count(acknowledged(stage)) >= before + WRITES).then_some(()))
        .await;
}

/// The log of an agent has each number once and in order, and all that were acknowledged.
fn nothing_is_lost(stage: &Stage, agent: usize) {
    let log = fs::read_to_string(stage.directory.join(pod(agent)).join("state/log")).expect("a log");
    let numbers: Vec<u64> = log.lines().map(|line| line.parse().expect("a number")).collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected);
    let writes = acknowledged(stage);
    assert!(writes.is_sorted_by_key(|write| (write.epoch, write.number)), "{writes:?}");
    let last = writes.last().expect("a write").number;
    assert!(last <= numbers.len() as u64, "{last} was acknowledged, and {} are there", numbers.len());
    println!("{} acknowledged writes, {} in the log", writes.len(), numbers.len());
}

fn counting(stage: &mut Stage) {
    (stage.promote_when, stage.application) = (Some("in-sync"), COUNTER);
    stage.start_agents();
}

/// An active whose writes are acknowledged once they are on both disks.
async fn in_sync(stage: &mut Stage) -> Start {
    counting(stage);
    let active = stage.settled().await;
    writes(stage, active, false).await;
    active
}

/// Ends the last application for good, so that its log does not change any more.
async fn end(mut stage: Stage) {
    let last = stage.settled().await;
    writes(&stage, last, false).await;
    for agent in [1 - last.agent, last.agent] {
        stage.kill_agent(agent);
    }
    nothing_is_lost(&stage, last.agent);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_with_an_application_or_an_agent_nor_in_a_handover() {
    let mut stage = Stage::set("replicated").await;
    counting(&mut stage);
    for fault in ["application killed", "agent killed", "agent terminated", "switched over"] {
        let mut outages = Vec::new();
        for _ in 0..ROUNDS {
            let before = stage.settled().await;
            writes(&stage, before, false).await;
            let began = Instant::now();
            match fault {
                "application killed" => drop(before.kill()),
                "agent killed" => drop(stage.kill_agent(before.agent)),
                "switched over" => {
                    stage.annotate(keys::ANNOTATION_HA_SWITCH_OVER, Some(before.epoch.to_string())).await;
                }
                _ => assert_eq!(stage.terminate_agent(before.agent).await, Some(0)),
            }
            let after = stage.start_after(before).await;
            assert_eq!(after.agent, 1 - before.agent, "{fault}");
            outages.push(began.elapsed());
            if fault.starts_with("agent") {
                stage.start_agent(before.agent);
            }
        }
        print_outages(fault, &mut outages);
    }
    end(stage).await;
}

/// An active that acknowledged writes without its standby; neither agent runs any more.
async fn alone(stage: &mut Stage) -> Start {
    let before = in_sync(stage).await;
    stage.kill_agent(1 - before.agent);
    writes(stage, before, true).await;
    stage.kill_agent(before.agent);
    before
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_goes_on_alone_and_its_standby_acts_only_once_it_is_level_again() {
    let mut stage = Stage::set("diverged").await;
    let before = alone(&mut stage).await;

    // It is the first one that is there, and does not act: it lacks what was acknowledged without it.
    stage.start_agent(1 - before.agent);
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(stage.starts().last(), Some(&before));
    stage.start_agent(before.agent);
    let after = stage.start_after(before).await;
    assert_eq!(after.agent, before.agent);

    writes(&stage, after, false).await;
    stage.kill_agent(after.agent);
    let last = stage.start_after(after).await;
    assert_eq!(last.agent, 1 - after.agent, "it is level again");
    stage.start_agent(after.agent);
    end(stage).await;
}

/// Its volume may go with its Pod.
#[tokio::test(flavor = "multi_thread")]
async fn an_active_that_is_asked_to_end_lets_its_standby_have_the_state_first() {
    let mut stage = Stage::set("copying").await;
    let before = in_sync(&mut stage).await;
    let [volume, other] =
        [before.agent, 1 - before.agent].map(|agent| stage.directory.join(pod(agent)).join("state"));
    stage.kill_agent(1 - before.agent);
    writes(&stage, before, true).await;
    // Where the first file of a batch would be kept aside.
    let obstacle = other.join(HIDDEN_FOLDER).join("new-1");
    fs::create_dir(&obstacle).expect("a directory");
    stage.start_agent(1 - before.agent);
    stage.await_role(1 - before.agent, "standby").await;
    tokio::time::sleep(HEARD_WITHIN).await;

    stage.ask_agent_to_end(before.agent);
    writes(&stage, before, true).await;
    fs::remove_dir(obstacle).expect("a directory");
    assert_eq!(stage.ended_agent(before.agent).await, Some(0));
    let after = stage.start_after(before).await;
    assert_eq!(after.agent, 1 - before.agent);
    fs::remove_dir_all(volume).expect("a directory");
    stage.start_agent(before.agent);
    end(stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_has_lost_its_level_directory_does_not_act_and_takes_its_pod_out_of_the_list() {
    let mut stage = Stage::set("emptied").await;
    let before = alone(&mut stage).await;
    let Record { level, level_pods, .. } = stage.lease().await;
    assert_eq!(level_pods, BTreeSet::from([stage.id(before.agent)]));

    // The same Pod, with another directory at the same place.
    fs::remove_dir_all(stage.directory.join(pod(before.agent)).join("state")).expect("a directory");
    stage.start_agents();
    let nobody = BTreeSet::from([AgentId::NOBODY]);
    stage.until("an empty list", async || (stage.lease().await.level_pods == nobody).then_some(())).await;
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(stage.starts().last(), Some(&before));
    assert_eq!([0, 1].map(|agent| stage.is_ready(agent)), [false; 2]);
    assert_eq!(stage.lease().await.level, level);

    // A person does without what was lost.
    stage.annotate(keys::ANNOTATION_HA_IN_SYNC, None).await;
    stage.start_after(before).await;
    stage.end();
}

/// Else a second loss would find no place kept for the only whole copy.
#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_as_another_pod_with_the_only_level_directory_puts_itself_into_the_list() {
    let mut stage = Stage::set("returned").await;
    let before = alone(&mut stage).await;
    let Record { level, .. } = stage.lease().await;
    stage.uids[before.agent] += 8;
    let members = json!([stage.member(0), stage.member(1)]).to_string();
    stage.annotate(keys::ANNOTATION_HA_MEMBERS, Some(members)).await;
    stage.start_agent(before.agent);
    let after = stage.start_after(before).await;
    writes(&stage, after, true).await;
    let own = BTreeSet::from([stage.id(before.agent)]);
    stage.until("itself in the list", async || (stage.lease().await.level_pods == own).then_some(())).await;
    assert_eq!(stage.lease().await.level, level);
    stage.start_agent(1 - before.agent);
    end(stage).await;
}

/// As volumes that were made of one snapshot have it.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_directory_is_not_level_because_of_the_number_in_it() {
    let mut stage = Stage::set("cloned").await;
    for agent in [0, 1] {
        let hidden = stage.directory.join(pod(agent)).join("state").join(HIDDEN_FOLDER);
        fs::create_dir_all(&hidden).expect("a directory");
        fs::write(hidden.join("id"), format!("{:032x}\n", 7)).expect("a file");
    }
    (stage.promote_when, stage.application) = (Some("in-sync"), COUNTER);
    stage.start_agent(0);
    let before = stage.until("a start", async || stage.starts().last().copied()).await;
    writes(&stage, before, true).await;
    stage.kill_agent(0);
    stage.start_agent(1);
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(stage.starts().last(), Some(&before), "it has nothing of what was acknowledged");
    stage.start_agent(0);
    end(stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_claims_after_an_agent_that_is_gone_leaves_it_out_by_the_same_write() {
    let mut stage = Stage::set("bereaved").await;
    let before = in_sync(&mut stage).await;
    let (survivor, known) = (1 - before.agent, stage.lease().await.version);
    stage.kill_agent(before.agent);
    let holder = Some(stage.id(survivor));
    let claim = stage.first_after(known, |record| record.lease.holder == holder).await;
    assert_eq!(claim.level_pods, BTreeSet::from([stage.id(survivor)]));
    assert!(matches!(&claim.level, Level::Only(level) if level.len() == 1), "{:?}", claim.level);

    let after = stage.start_after(before).await;
    writes(&stage, after, true).await;
    stage.start_agent(before.agent);
    end(stage).await;
}

/// Else the release of who acted alone would call level what lacks its writes.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_left_out_stays_so_once_the_other_one_has_acted_alone() {
    let mut stage = Stage::set("outlived").await;
    let before = in_sync(&mut stage).await;
    stage.kill_agent(before.agent);
    let after = stage.start_after(before).await;
    writes(&stage, after, true).await;
    let survivor = BTreeSet::from([stage.id(after.agent)]);
    let known = stage.lease().await.version;
    assert_eq!(stage.terminate_agent(after.agent).await, Some(0));
    let released = stage.first_after(known, |record| record.lease.holder.is_none()).await;
    assert_eq!(released.level_pods, survivor);
    assert!(matches!(&released.level, Level::Only(level) if level.len() == 1), "{:?}", released.level);
    stage.start_agent(before.agent);
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(stage.starts().last(), Some(&after));
    stage.end();
}

/// Two ends of a connection that a standby relays, in the middle of an answer.
fn relayed(active: &TcpListener, standby: (Ipv4Addr, u16)) -> [TcpStream; 2] {
    let mut client = TcpStream::connect(standby).expect("it relays");
    client.write_all(b"question").expect("it takes it");
    let (mut asked, _) = active.accept().expect("a connection");
    asked.read_exact(&mut [0; 8]).expect("it is relayed");
    [client, asked]
}

/// An agent waits for what it relays before it ends, and the active does not wait for it meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_leaves_closes_its_state_port_before_it_ends_what_it_relays() {
    let mut stage = Stage::set("relaying").await;
    let port = stage.relay();
    let active = in_sync(&mut stage).await;
    let standby = 1 - active.agent;
    let application =
        TcpListener::bind((stage.address(active.agent), port)).expect("the counter does not listen");
    let state_port = (stage.address(standby), stage.ports[standby] + keys::AGENT_STATE_PORT_ABOVE);
    let mut seen = 0;
    for _ in 0..ROUNDS {
        let [mut client, mut asked] = relayed(&application, (stage.address(standby), port));
        stage.ask_agent_to_end(standby);
        stage
            .until("a closed state port", async || TcpStream::connect(state_port).is_err().then_some(()))
            .await;
        let is_relayed = client.write_all(b"more").and_then(|()| asked.read_exact(&mut [0; 4])).is_ok();
        seen += usize::from(is_relayed);
        assert_eq!(stage.ended_agent(standby).await, Some(0));
        writes(&stage, active, true).await;
        let log = stage.log(active.agent);
        let words = log.lines().rfind(|line| line.contains("how many directories are level"));
        assert!(words.is_some_and(|words| words.contains("is_absent=true")), "{words:?}");
        stage.start_agent(standby);
        writes(&stage, active, false).await;
    }
    assert!(seen > 0, "no state port was closed while its agent relayed, in {ROUNDS} rounds");
    end(stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_stalls_is_left_out_of_the_lease_before_anything_is_acknowledged_without_it() {
    let mut stage = Stage::set_alone("stalled").await;
    let before = in_sync(&mut stage).await;
    let Record { level: both, level_pods, lag, .. } = stage.lease().await;
    assert!(matches!(&both, Level::Only(level) if level.len() == 2), "{both:?}");
    assert_eq!((level_pods.len(), lag), (2, Told::Nothing));

    stage.signal_agent(1 - before.agent, Signal::STOP);
    writes(&stage, before, true).await;
    let Record { level: one, level_pods, .. } = stage.lease().await;
    assert!(matches!(&one, Level::Only(level) if level.len() == 1), "{one:?}");
    assert_eq!(level_pods.len(), 1);
    let lag = stage.until("a lag in the Lease", async || stage.lease().await.lag.lag()).await;
    assert!(lag.entries > 0 && lag.bytes > 0, "{lag:?}");
    stage.signal_agent(1 - before.agent, Signal::CONT);
    writes(&stage, before, false).await;
    let Record { level, lag, .. } = stage.lease().await;
    assert_eq!((level, lag), (both, Told::Nothing));

    // Without an API server nothing may be acknowledged that the standby does not have.
    stage.signal_api_server(Signal::STOP);
    stage.signal_agent(1 - before.agent, Signal::STOP);
    let known = acknowledged(&stage).len();
    let last = stage.ended(before).await;
    let more = acknowledged(&stage).split_off(known);
    println!("ended {last:?} since 1970, {} more writes", more.len());
    assert!(more.iter().all(|write| !write.is_alone), "{more:?}");
    stage.signal_agent(1 - before.agent, Signal::CONT);
    stage.signal_api_server(Signal::CONT);
    stage.start_after(before).await;
    end(stage).await;
}
