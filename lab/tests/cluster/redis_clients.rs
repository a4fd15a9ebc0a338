//! Who watches a Redis pair: a writer behind the Service, and a witness that writes to each Pod directly.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::history::{Attempt, Log, Turns};
use crate::resp::{Answer, Connection, start_in};

/// Port of Redis, in Pods and in the Service.
pub(crate) const REDIS_PORT: u16 = 6379;
/// Key of one bit for each write.
const WRITTEN: &str = "written";
/// Pause after a failed attempt, and between two rounds of the witness.
const PAUSE: Duration = Duration::from_millis(5);

/// One write, and its acknowledgement by the standby; an error if there is no primary at the other end.
fn attempt(connection: &mut Connection, number: u32) -> io::Result<Attempt> {
    let is_written = match connection.ask(&format!("SETBIT {WRITTEN} {number} 1"))? {
        Answer::Number(_) => true,
        Answer::Refused(word) if word == "NOREPLICAS" => false,
        Answer::Refused(_) | Answer::Text(_) => return Err(io::ErrorKind::PermissionDenied.into()),
    };
    let answered = Instant::now();
    let is_acknowledged = is_written && matches!(connection.ask("WAIT 1 1000"), Ok(Answer::Number(1..)));
    Ok(Attempt { number, answered, acknowledged: is_acknowledged.then(Instant::now) })
}

/// Which of these writes a Redis has.
pub(crate) fn kept(
    connection: &mut Connection,
    numbers: impl Iterator<Item = u32>,
) -> io::Result<BTreeSet<u32>> {
    let mut kept = BTreeSet::new();
    for number in numbers {
        if connection.ask(&format!("GETBIT {WRITTEN} {number}"))? == Answer::Number(1) {
            kept.insert(number);
        }
    }
    Ok(kept)
}

/// Writes one number after the other.
pub(crate) struct Writer {
    pub(crate) log: Arc<Mutex<Log>>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writer {
    pub(crate) fn start(network: PathBuf, service: IpAddr) -> Self {
        let (log, is_over) = (Arc::<Mutex<Log>>::default(), Arc::<AtomicBool>::default());
        let (notes, end) = (Arc::clone(&log), Arc::clone(&is_over));
        let address = SocketAddr::new(service, REDIS_PORT);
        let thread = start_in(network, move || {
            let (mut connection, mut number) = (None, 0);
            while !end.load(Ordering::Relaxed) {
                let open = connection.take().map_or_else(|| Connection::open(address), Ok);
                let written =
                    open.and_then(|mut open| attempt(&mut open, number).map(|attempt| (open, attempt)));
                number += 1;
                if let Ok((_, attempt)) = &written {
                    notes.lock().unwrap().note(*attempt);
                }
                let is_done = written.as_ref().is_ok_and(|(_, attempt)| attempt.acknowledged.is_some());
                connection = written.ok().map(|(open, _)| open);
                if !is_done {
                    sleep(PAUSE);
                }
            }
        });
        Self { log, is_over, thread }
    }

    pub(crate) fn stop(self) -> Log {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

/// What the witness saw. A Redis that was started again is another one.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    /// Those that took writes.
    pub(crate) primaries: Turns,
    /// How many writes were taken, and how many refused by a standby.
    pub(crate) taken: usize,
    pub(crate) refused: usize,
}

impl Sight {
    fn note(&mut self, answer: &Answer, run: &str) {
        let acts = match answer {
            Answer::Text(_) | Answer::Number(_) => true,
            Answer::Refused(word) => word == "NOREPLICAS",
        };
        if !acts {
            self.refused += usize::from(*answer == Answer::Refused("READONLY".to_owned()));
            return;
        }
        self.taken += 1;
        self.primaries.note(run);
    }
}

/// Writes to each Pod directly, one after the other.
pub(crate) struct Witness {
    /// Addresses of the Pods that there are.
    pub(crate) pods: Arc<Mutex<BTreeSet<IpAddr>>>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Sight>,
}

impl Witness {
    pub(crate) fn start(network: PathBuf) -> Self {
        let (pods, is_over) = (Arc::<Mutex<BTreeSet<IpAddr>>>::default(), Arc::<AtomicBool>::default());
        let (known, end) = (Arc::clone(&pods), Arc::clone(&is_over));
        let thread = start_in(network, move || {
            let (mut sight, mut open) = (Sight::default(), BTreeMap::new());
            while !end.load(Ordering::Relaxed) {
                let present = known.lock().unwrap().clone();
                for address in present {
                    let visited = open.remove(&address).map_or_else(|| meet(address), Ok);
                    let Ok((mut connection, run)) = visited else { continue };
                    let Ok(answer) = connection.ask("SET witness seen") else { continue };
                    sight.note(&answer, &run);
                    open.insert(address, (connection, run));
                }
                sleep(PAUSE);
            }
            sight
        });
        Self { pods, is_over, thread }
    }

    pub(crate) fn stop(self) -> Sight {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A connection to a Redis, and which one it is.
fn meet(address: IpAddr) -> io::Result<(Connection, String)> {
    let mut connection = Connection::open(SocketAddr::new(address, REDIS_PORT))?;
    let Answer::Text(text) = connection.ask("INFO server")? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let run = text.lines().find_map(|line| line.strip_prefix("run_id:"));
    run.map(|run| (connection, run.to_owned())).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
