//! Hooks, and applications that run in both roles.

use std::fs;

use bps_api::keys;

use super::journal::{Start, print_outages};
use super::stage::Stage;
use super::{ROUNDS, is_delegated};

/// Writes what it is run for.
const JOURNAL_HOOK: &str = r#"echo "$1 $HA_EPOCH $AGENT $$ $(date +%s%N) $HA_PEER" >> "$JOURNAL""#;

/// Tells the application its epoch and that it acts; an application that starts does not listen at once.
const PROMOTE_HOOK: &str = r#"
[ -e "$JOURNAL.$AGENT.broken" ] && exit 1
echo "$HA_EPOCH" > "$JOURNAL.$AGENT.epoch"
until kill -USR1 "$(cat "$JOURNAL.$AGENT.pid")"; do sleep 0.01; done
"#;

/// As a standby it runs without the lock, which is what must not be held twice.
const APPLICATION_OF_BOTH: &str = r#"
say() { echo "$1 $HA_EPOCH $AGENT $$ $(date +%s%N) $HA_PEER" >> "$JOURNAL"; }
promote() { HA_EPOCH=$(cat "$JOURNAL.$AGENT.epoch"); flock -n 9 || say two; say start; }
exec 9>> "$JOURNAL.lock"
trap promote USR1
trap 'say stop; exit 0' TERM
say "$HA_ROLE"
echo $$ > "$JOURNAL.$AGENT.pid"
while :; do sleep 5 9>&- & wait $!; done
"#;

/// Writes a hook's script; returns the hook.
fn script(stage: &Stage, name: &str, text: &str) -> String {
    let file = stage.directory.join(name);
    fs::write(&file, text).expect("a script");
    format!("sh {}", file.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_are_run_when_the_role_changes_and_the_fence_before_the_end() {
    let mut stage = Stage::set("hooks").await;
    let hook = script(&stage, "hook.sh", JOURNAL_HOOK);
    for occasion in ["active", "standby", "fence"] {
        stage.arguments.push(format!("--on-{occasion}={hook} on-{occasion}"));
    }
    stage.start_agents();
    let before = stage.settled().await;
    stage.annotate(keys::ANNOTATION_HA_SWITCH_OVER, Some(before.epoch.to_string())).await;
    let after = stage.start_after(before).await;
    stage.settled().await;

    let told = |word: &str, start: Start| {
        let lines = stage.lines(word).into_iter();
        lines.filter(|line| (line.agent, line.epoch) == (start.agent, start.epoch)).collect::<Vec<_>>()
    };
    assert_eq!([told("on-active", before).len(), told("on-active", after).len()], [1, 1]);
    assert_eq!([told("on-fence", before).len(), told("on-fence", after).len()], [1, 0]);
    assert!(told("on-fence", before)[0].at < stage.stop_of(before).expect("it was asked to end"));
    let standby: Vec<_> = stage.lines("on-standby").into_iter().map(|line| line.agent).collect();
    // At both starts, unless the first active was that too soon, and after the switchover.
    assert!([2, 3].contains(&standby.len()), "{standby:?}");
    assert_eq!(standby.last(), Some(&before.agent));
    stage.end();
}

/// Ends the application, and then takes away what clients find it by.
const ENDING_HOOK: &str = r#"
kill "$(awk -v agent="$AGENT" '$1 == "start" && $3 == agent { pid = $4 } END { print pid }' "$JOURNAL")"
sleep 0.1
echo "taken-away $HA_EPOCH $AGENT $$ $(date +%s%N) $HA_PEER" >> "$JOURNAL"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_that_ends_the_application_itself_is_done_before_anybody_else_acts() {
    let mut stage = Stage::set("ending-fence").await;
    let hook = script(&stage, "fence.sh", ENDING_HOOK);
    stage.arguments = vec![format!("--on-fence={hook}")];
    stage.start_agents();
    let before = stage.settled().await;
    stage.annotate(keys::ANNOTATION_HA_SWITCH_OVER, Some(before.epoch.to_string())).await;
    let after = stage.start_after(before).await;
    let taken_away = stage.lines("taken-away");
    assert!(
        matches!(&taken_away[..], [line] if line.agent == before.agent && line.at < after.at),
        "{taken_away:?}"
    );
    stage.settled().await;
    for agent in 0..2 {
        assert_eq!(stage.terminate_agent(agent).await, Some(0));
    }
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_runs_as_standby_is_promoted_and_ends_with_its_tenure() {
    let mut stage = Stage::set("both").await;
    stage.application = APPLICATION_OF_BOTH;
    let promote = script(&stage, "promote.sh", PROMOTE_HOOK);
    stage.arguments = vec![format!("--on-active={promote}"), "--run-in-standby".to_owned()];
    stage.start_agents();
    let (mut outages, mut delegated, mut promoted) = (Vec::new(), 0, 0);
    for _ in 0..ROUNDS {
        let before = stage.settled().await;
        let standby = stage.until("a standby", async || {
            stage.lines("standby").into_iter().rfind(|line| line.agent != before.agent)
        });
        let standby = standby.await;
        let killed = before.kill();
        let after = stage.start_after(before).await;
        outages.push(after.at.saturating_sub(killed));
        delegated += usize::from(is_delegated(before, after));
        promoted += usize::from(after.pid == standby.pid);
    }
    println!("{delegated} of {ROUNDS} were handed over directly, {promoted} were running before");
    print_outages("application killed, standby promoted", &mut outages);
    assert!(delegated > 0 && promoted > 0);

    // One that cannot be promoted does not act, and hands back.
    let before = stage.settled().await;
    fs::write(stage.directory.join(format!("journal.{}.broken", 1 - before.agent)), "").expect("a file");
    before.kill();
    let after = stage.start_after(before).await;
    assert_eq!(after.agent, before.agent);
    assert!(after.epoch > before.epoch + 1, "the other one had a tenure, too");

    assert_eq!(stage.terminate_agent(1 - after.agent).await, Some(0));
    assert_eq!(stage.terminate_agent(after.agent).await, Some(0));
    stage.end();
}
