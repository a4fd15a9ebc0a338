//! What it was measured on: date, machine, versions, command line.

use std::fs;

use jiff::Zoned;
use kube::Client;

/// A few lines for the head of the table.
pub async fn describe(client: &Client) -> String {
    let version = client.apiserver_version().await.map_or_else(|_| "unknown".to_owned(), |it| it.git_version);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    let gigabytes = memory.trim_end_matches(" kB").parse::<f64>().map_or(0.0, |kilobytes| kilobytes / 1e6);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let words: Vec<_> = std::env::args().skip(1).collect();
    format!(
        "{}\n{cores} cores ({model}), {gigabytes:.1} GB, Linux {}, Kubernetes {version}, load {load} at the \
         start\nlab {}",
        Zoned::now().strftime("%Y-%m-%d %H:%M %Z"),
        kernel.trim(),
        words.join(" ")
    )
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
