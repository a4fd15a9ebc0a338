//! The processes of a simulated machine: applications that obey or do not, what they leave behind, and hooks.
//!
//! Writes down when an application acts and when its last process has certainly ended.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use bps_agent::relay::RelaySettings;
use bps_agent::tree::{Ending, Environment, Reaped};
use bps_agent::world::Processes;
use bps_api::keys;
use rustix::process::Signal;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::turmoil::machine::{Computer, true_time};
use crate::turmoil::record::What;

/// One start of this many fails.
const STARTS_A_FAILURE: u64 = 60;
/// One application of this many does not listen to SIGTERM.
const OBEDIENT_A_STUBBORN: u64 = 4;
/// One application of this many has a process that SIGTERM does not reach.
const ALONE_A_FOLLOWED: u64 = 4;
/// Longest time that an application takes to end after SIGTERM, and that a hook takes. Unit: milliseconds.
const ENDING_MAX: u64 = 120;
/// Longest time that the kernel takes to end what was killed. Unit: milliseconds.
const KILLING_MAX: u64 = 15;

/// All processes below an agent, by number.
#[derive(Debug, Default)]
pub(crate) struct Table {
    last: u32,
    living: BTreeMap<u32, Process>,
    endings: BTreeMap<u32, Ending>,
    /// What the application acts with; none if it stands by, or if there is none.
    acting: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    is_hook: bool,
    is_doomed: bool,
}

impl Table {
    fn add(&mut self, is_hook: bool) -> u32 {
        self.last += 1;
        self.living.insert(self.last, Process { is_hook, is_doomed: false });
        self.last
    }

    /// What it acts with, if an application acts.
    pub(crate) fn acting(&self) -> Option<u64> {
        self.acting
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.living.is_empty()
    }

    /// Whether this one may be told to end; only the first time.
    fn doom(&mut self, number: u32) -> bool {
        let process = self.living.get_mut(&number);
        process.is_some_and(|process| !std::mem::replace(&mut process.is_doomed, true))
    }

    /// The tenure that is over because nothing is left of the application.
    fn over(&mut self) -> Option<u64> {
        let is_left = self.living.values().any(|process| !process.is_hook);
        self.acting.take_if(|_| !is_left)
    }
}

/// One command with what it left behind.
#[derive(Debug)]
pub(crate) struct Tree {
    computer: Computer,
    command: u32,
    is_stubborn: bool,
}

impl Tree {
    /// Starts an application or a hook.
    ///
    /// # Errors
    /// Now and then it cannot be started.
    pub(crate) fn start(
        computer: &Computer,
        command: &[OsString],
        environment: &Environment,
    ) -> io::Result<Self> {
        let is_hook = command.get(1).is_some_and(|word| word == "hook");
        if computer.draw(STARTS_A_FAILURE - 1) == 0 {
            computer.note("could not start a command");
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let is_stubborn = computer.draw(OBEDIENT_A_STUBBORN - 1) == 0;
        let is_followed = !is_hook && computer.draw(ALONE_A_FOLLOWED - 1) == 0;
        let acts = environment[keys::ENV_HA_ROLE] == keys::HA_ROLE_ACTIVE;
        let epoch = environment[keys::ENV_HA_EPOCH].parse().expect("a number");
        let mut table = computer.table();
        let number = table.add(is_hook);
        if is_followed {
            table.add(false);
        }
        // An application that stood by acts from the moment that a hook tells it to.
        let is_there = table.living.values().any(|process| !process.is_hook);
        if acts && is_there && table.acting.replace(epoch) != Some(epoch) {
            computer.write(true_time(), What::Acts(epoch));
        }
        drop(table);
        let tree = Self { computer: computer.clone(), command: number, is_stubborn };
        if is_hook {
            let code = i32::from(computer.draw(9) == 0);
            tree.end_after(number, computer.draw_milliseconds(ENDING_MAX), Ending::Exited(code));
        }
        Ok(tree)
    }

    fn end_after(&self, number: u32, after: Duration, ending: Ending) {
        // Without a runtime the machine itself is being switched off.
        let Ok(runtime) = Handle::try_current() else { return };
        let computer = self.computer.clone();
        runtime.spawn(async move {
            sleep(after).await;
            computer.end(number, ending, true_time());
        });
    }

    fn doom(&self, number: u32) {
        if self.computer.table().doom(number) {
            self.end_after(number, self.computer.draw_milliseconds(KILLING_MAX), Ending::Killed(9));
        }
    }
}

impl Processes for Tree {
    fn signal(&self, signal: Signal) -> io::Result<()> {
        if signal == Signal::TERM && !self.is_stubborn {
            let after = self.computer.draw_milliseconds(ENDING_MAX);
            self.end_after(self.command, after, Ending::Killed(signal.as_raw()));
        }
        Ok(())
    }

    fn listening(&self, _at: &RelaySettings) -> io::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    fn reap(&self) -> io::Result<Reaped> {
        let table = self.computer.table();
        Ok(Reaped { command: table.endings.get(&self.command).copied(), is_empty: table.is_empty() })
    }

    fn kill(&self) -> io::Result<usize> {
        let living: BTreeSet<u32> = self.computer.table().living.keys().copied().collect();
        for number in &living {
            self.doom(*number);
        }
        Ok(living.len())
    }

    fn kill_command(&self) -> io::Result<()> {
        self.doom(self.command);
        Ok(())
    }
}

impl Computer {
    fn end(&self, number: u32, ending: Ending, at: Duration) {
        let mut table = self.table();
        if table.living.remove(&number).is_none() {
            return;
        }
        table.endings.insert(number, ending);
        if let Some(epoch) = table.over() {
            self.write(at + self.flaw().outlives, What::Ended(epoch));
        }
        drop(table);
        self.tell_end();
    }

    /// The application ends by itself.
    pub(crate) fn end_application(&self, at: Duration) {
        let table = self.table();
        let command = table.living.iter().find(|(_, process)| !process.is_hook).map(|(number, _)| *number);
        drop(table);
        if let Some(command) = command {
            self.end(command, Ending::Exited(1), at);
        }
    }

    /// Nothing runs on this machine any more, from one moment to the next.
    pub(crate) fn cut_off(&self, at: Duration) {
        let mut table = self.table();
        table.living.clear();
        table.endings.clear();
        if let Some(epoch) = table.over() {
            self.write(at, What::Ended(epoch));
        }
    }
}
