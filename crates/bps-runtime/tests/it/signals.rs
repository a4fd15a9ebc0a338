//! Real signals to a real process: this test is alone in its file, because signals reach the whole process.

use std::process::Command;
use std::time::Duration;

use bps_runtime::shutdown::{Shutdown, Signals};
use bps_runtime::tasks::{Error, Tasks};

fn send(signal: &str) {
    let pid = std::process::id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().expect("kill is installed").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_signal_asks_tasks_to_stop_and_the_second_aborts_them() {
    let shutdown = Shutdown::new();
    let signals = Signals::install().expect("handlers are allowed");
    let mut tasks = Tasks::new();
    let asked = shutdown.clone();
    tasks.spawn("stubborn", async move {
        asked.requested().await;
        send("INT");
        std::future::pending().await
    });

    send("TERM");
    let stopped = tokio::time::timeout(Duration::from_secs(60), tasks.run(&shutdown, signals)).await;

    let outcome = stopped.expect("ends long before a minute");
    assert!(matches!(outcome, Err(Error::Aborted { signal: "SIGINT" })), "{outcome:?}");
}
