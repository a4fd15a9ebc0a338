//! Last lines that the application wrote before it ended, for a Pod whose template permits to report them.
//!
//! An application writes to the container's log directly. Once it crash-loops, the agent reads its output, copies it to the log
//! at once, and keeps the end of it. A kubelet does the same for a container with the
//! `terminationMessagePolicy` `FallbackToLogsOnError`, but sees no end of an application under an agent.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bps_wire::crash_loop::{LINE_CHARS_MAX, LINES_MAX, is_shown};
use rustix::stdio::{dup2_stderr, dup2_stdout};
use tracing::warn;

/// Variable by which the agent tells the launcher its descriptors for output and errors; the application does not get it.
pub const OUTPUT: &str = "BPS_OUTPUT";

/// So much of the end is kept. Unit: bytes. 4,096: three long lines, and what is between them.
const KEPT_MAX: usize = 4_096;

/// Shown instead of what is no letter, digit or sign of ASCII: texts of others must not look like something else.
const REPLACEMENT: char = '?';

type Tail = Arc<Mutex<VecDeque<u8>>>;

/// See the module.
#[derive(Debug, Default)]
pub struct LastLines {
    tail: Tail,
    /// Where the run writes. Open here until it is over, so that its launcher finds them.
    ends: Option<[PipeWriter; 2]>,
}

impl LastLines {
    /// Routes the output of the next run through this process; returns the value of [`OUTPUT`] for its launcher.
    ///
    /// # Errors
    /// No pipe or thread could be made.
    pub fn follow(&mut self) -> io::Result<String> {
        self.tail = Tail::default();
        let output = passed_on("output", io::stdout(), self.tail.clone())?;
        let errors = passed_on("errors", io::stderr(), self.tail.clone())?;
        let text = format!("{},{}", output.as_raw_fd(), errors.as_raw_fd());
        self.ends = Some([output, errors]);
        Ok(text)
    }

    /// The run is over: nothing of it is left that could write.
    pub fn is_over(&mut self) {
        self.ends = None;
    }

    /// The last lines of the last run that was led through here, the oldest first.
    pub fn told(&self) -> Vec<String> {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        lines(tail.make_contiguous())
    }
}

/// Makes a pipe, and copies its content to `to` until all writers have closed it.
fn passed_on(name: &str, to: impl Write + Send + 'static, tail: Tail) -> io::Result<PipeWriter> {
    let (from, end) = io::pipe()?;
    // One that blocks, as a container's log may for a while, must not keep the agent waiting.
    thread::Builder::new().name(name.to_owned()).spawn(move || pass_on(from, to, &tail))?;
    Ok(end)
}

fn pass_on(mut from: PipeReader, mut to: impl Write, tail: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; KEPT_MAX];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "Could not read what the application writes");
                return;
            }
        };
        let written = buffer.get(..read).unwrap_or_default();
        keep(&mut tail.lock().unwrap_or_else(PoisonError::into_inner), written);
        // A log that is closed must not end the application.
        to.write_all(written).and_then(|()| to.flush()).ok();
    }
}

fn keep(tail: &mut VecDeque<u8>, written: &[u8]) {
    tail.extend(written);
    let surplus = tail.len().saturating_sub(KEPT_MAX);
    tail.drain(..surplus);
}

/// The last lines of a text that are not empty, as they may be shown.
fn lines(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let shown = |line: &str| without_colours(line).trim().chars().take(LINE_CHARS_MAX).collect::<String>();
    let mut lines: Vec<String> =
        text.lines().rev().map(shown).filter(|line| !line.is_empty()).take(LINES_MAX).collect();
    lines.reverse();
    lines
}

/// A line without sequences for a terminal, and without characters that could be taken for others.
fn without_colours(line: &str) -> String {
    let mut shown = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' && letters.next_if_eq(&'[').is_some() {
            // Its last character is the first one from `@` to `~` (ECMA-48).
            letters.by_ref().find(|letter| ('@'..='~').contains(letter));
        } else if letter == '\t' {
            shown.push(' ');
        } else if is_shown(letter) {
            shown.push(letter);
        } else if !letter.is_control() {
            shown.push(REPLACEMENT);
        }
    }
    shown
}

/// Has the launcher write where the agent reads. `text` is what the agent gave it, `agent` the process of that.
///
/// # Errors
/// They may not be opened; output and errors are then those of the agent, as without this.
pub fn take_over(agent: i32, text: &str) -> io::Result<()> {
    let (output, errors) = text.split_once(',').ok_or(io::ErrorKind::InvalidInput)?;
    let open = |number: &str| {
        let number: u32 = number.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
        File::options().write(true).open(format!("/proc/{agent}/fd/{number}"))
    };
    let [output, errors] = [open(output)?, open(errors)?];
    dup2_stdout(output)?;
    Ok(dup2_stderr(errors)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is passed on.
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl Write for Log {
        fn write(&mut self, written: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(written);
            Ok(written.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_last_lines_that_are_not_empty_are_shown_without_what_could_deceive() {
        let text =
            "first\n\nsecond\tpart\n\u{1b}[31mFATAL\u{1b}[0m: caf\u{e9} \u{202e}gone\r\n\u{7}third \n\n";
        assert_eq!(lines(text.as_bytes()), ["second part", "FATAL: caf\u{e9} ?gone", "third"]);
        assert_eq!(lines(b"no end of line"), ["no end of line"]);
        assert_eq!(lines(b"\n \n"), [""; 0]);
        assert_eq!(lines(&[b'x'; 4_096]), ["x".repeat(LINE_CHARS_MAX)]);
        assert_eq!(lines(b"\xff\xfe"), ["??"]);
    }

    #[test]
    fn the_end_is_kept_and_all_is_passed_on() {
        let tail = Tail::default();
        let passed = Arc::new(Mutex::new(Vec::new()));
        let (from, mut end) = io::pipe().unwrap();
        let thread = thread::spawn({
            let (tail, log) = (tail.clone(), Log(passed.clone()));
            move || pass_on(from, log, &tail)
        });
        let text: Vec<u8> = (0..2_000).flat_map(|line| format!("line {line}\n").into_bytes()).collect();
        end.write_all(&text).unwrap();
        drop(end);
        thread.join().unwrap();
        assert_eq!(*passed.lock().unwrap(), text);
        let kept = tail.lock().unwrap().make_contiguous().to_vec();
        assert_eq!(kept, text[text.len() - KEPT_MAX..]);
        assert_eq!(lines(&kept), ["line 1997", "line 1998", "line 1999"]);
    }

    #[test]
    fn numbers_that_make_no_sense_leave_the_output_as_it_is() {
        let own = i32::try_from(std::process::id()).unwrap();
        for text in ["", "1", "1,x", "-1,2", "4000000000,2"] {
            assert!(take_over(own, text).is_err(), "{text}");
        }
    }
}
