//! Output of an application in a crash loop: the agent copies it to the log and keeps its end.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bps_agent::last_lines::{LastLines, OUTPUT};

/// Longest wait for something that takes milliseconds; only a hang lasts as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a script as the agent runs its application, led through this process.
fn run(last_lines: &mut LastLines, script: &str) {
    let output = last_lines.follow().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_bps-agent"))
        .args(["launch", &std::process::id().to_string(), "--", "sh", "-c", script])
        .env(OUTPUT, output)
        .status()
        .unwrap();
    last_lines.is_over();
    assert!(status.success(), "{script}");
}

/// Waits until so many lines are told.
fn told(last_lines: &LastLines, count: usize) -> Vec<String> {
    let began = Instant::now();
    loop {
        let told = last_lines.told();
        if told.len() == count {
            return told;
        }
        assert!(began.elapsed() < PATIENCE, "{told:?}");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_an_application_wrote_last_is_told_of_its_last_run_only() {
    let mut last_lines = LastLines::default();
    // It does not know of it.
    run(&mut last_lines, r#"test -z "$BPS_OUTPUT" && echo output && echo errors >&2"#);
    let both: BTreeSet<String> = told(&last_lines, 2).into_iter().collect();
    assert_eq!(both, ["errors", "output"].map(str::to_owned).into());

    run(&mut last_lines, "seq 20000; echo end");
    let began = Instant::now();
    while told(&last_lines, 3) != ["19999", "20000", "end"] {
        assert!(began.elapsed() < PATIENCE, "{:?}", last_lines.told());
    }
}
