#!/bin/sh
# kube-runtime 5.0.0: Store::wait_until_ready wakes one task only.
#
# Guess: two tasks that wait for the first list of one reflector store both go on once the list is complete.
# Seen: one of them does, the one that began to wait last; the other one waits for ever. A later call returns at once. The store
# keeps a futures oneshot receiver behind a mutex (src/utils/delayed_init.rs), which remembers one waker; each task that begins to
# wait takes the place of the one before. The tests of that file poll their futures by hand and need no waker.
# What to do: let one task wait and tell the others, for example by a tokio watch channel; or poll again with a timer.
#
# Needs cargo and a network on which it finds crates. Exit status 0: it is still so.
set -eu

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir "$directory/src"
cat >"$directory/Cargo.toml" <<'END'
[package]
name = "waiters"
version = "0.0.0"
edition = "2024"

[dependencies]
kube-runtime = "=5.0.0"
k8s-openapi = { version = "0.29.0", features = ["latest"] }
tokio = { version = "1", features = ["macros", "rt-multi-thread", "time"] }

[workspace]
END
cat >"$directory/src/main.rs" <<'END'
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::{reflector, watcher::Event};
use tokio::time::{sleep, timeout};

#[tokio::main]
async fn main() {
    let (store, mut writer) = reflector::store::<ConfigMap>();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let waited = store.clone();
        waiters.push(tokio::spawn(async move { waited.wait_until_ready().await.is_ok() }));
        sleep(Duration::from_millis(200)).await;
    }
    writer.apply_watcher_event(&Event::Init);
    writer.apply_watcher_event(&Event::InitDone);
    sleep(Duration::from_secs(5)).await;
    let told: Vec<bool> = waiters.iter().map(|waiter| waiter.is_finished()).collect();
    let later = timeout(Duration::from_secs(1), store.wait_until_ready()).await.is_ok();
    println!("went on within 5 s: {told:?}; a later call returns: {later}");
    std::process::exit(0);
}
END
expected='went on within 5 s: [false, false, true]; a later call returns: true'
seen=$(cargo run --quiet --manifest-path "$directory/Cargo.toml")
echo "kube-runtime 5.0.0: $seen"
[ "$seen" = "$expected" ] || {
  echo "changed; before: $expected" >&2
  exit 1
}
