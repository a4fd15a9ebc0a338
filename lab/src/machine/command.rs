//! Runs a program to its end, within a time limit, and keeps what it printed.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Error;

/// How long `ip`, `nft`, `ctr` and the like may take. Unit: seconds. Source: importing a 100 MB image on a
/// busy machine with 2 cores takes about 10 s; everything else ends within 0.1 s.
pub const COMMAND_SECONDS_MAX: u64 = 120;

/// How much of a failed program's standard error goes into the message. Unit: bytes.
const STDERR_BYTES_MAX: usize = 2_000;

/// Runs `program` with `arguments` and returns its standard output.
///
/// # Errors
/// `Start`, `Refuse` on a non-zero exit, `Overdue` after [`COMMAND_SECONDS_MAX`] (the program is killed).
pub fn run<I, S>(program: &str, arguments: I) -> Result<String, Error>
where
    I: IntoIterator<Item = S>,
    S: AsRef<std::ffi::OsStr>,
{
    let mut command = Command::new(program);
    command.args(arguments);
    run_command(command, Duration::from_secs(COMMAND_SECONDS_MAX))
}

/// Runs a prepared command and returns its standard output.
///
/// # Errors
/// `Start`, `Refuse` on a non-zero exit, `Overdue` after `limit` (the program is killed).
pub fn run_command(mut command: Command, limit: Duration) -> Result<String, Error> {
    let line = describe(&command);
    let deadline = Instant::now() + limit;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Start { command: line.clone(), source })?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    if !ends_before(&child, deadline) {
        // The kill can only miss a program that has ended by itself in the meantime.
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::Overdue { what: format!("`{line}`"), seconds: limit.as_secs() });
    }
    let status = child.wait().map_err(|source| Error::Start { command: line.clone(), source })?;
    if !status.success() {
        return Err(Error::Refuse { command: line, status, stderr: tail(&join(stderr), STDERR_BYTES_MAX) });
    }
    Ok(join(stdout))
}

/// The last `bytes_max` bytes of a text, cut at a character.
pub fn tail(text: &str, bytes_max: usize) -> String {
    let text = text.trim_end();
    let start = (text.len().saturating_sub(bytes_max)..=text.len())
        .find(|index| text.is_char_boundary(*index))
        .unwrap_or(text.len());
    text[start..].to_owned()
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(std::ffi::OsStr::to_string_lossy));
    words.join(" ")
}

fn collect<R: Read + Send + 'static>(stream: Option<R>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // A read error here means that the program is gone, which its exit status tells better.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn join(thread: JoinHandle<String>) -> String {
    thread.join().expect("reading a pipe does not panic")
}

fn ends_before(child: &Child, deadline: Instant) -> bool {
    let Ok(pidfd) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return true;
    };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("a limit in seconds fits a timespec");
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusing_program_is_reported_with_its_own_words() {
        let error = run("sh", ["-c", "echo out; echo no such bridge >&2; exit 3"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`sh -c echo out; echo no such bridge >&2; exit 3` ended with exit status: 3: no such bridge"
        );
    }

    #[test]
    fn a_program_past_its_limit_is_killed() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let error = run_command(command, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, Error::Overdue { .. }), "{error}");
    }

    #[test]
    fn the_tail_of_a_text_is_cut_at_a_character() {
        assert_eq!(tail("aé", 1), "");
        assert_eq!(tail("aé", 2), "é");
        assert_eq!(tail("aé\n", 9), "aé");
    }
}
