//! Who watches a Redis pair: a writer behind the Service, and a witness that writes to each Pod directly.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::resp::{Answer, Connection, start_in};

/// Port of Redis, in Pods and in the Service.
pub(crate) const REDIS_PORT: u16 = 6379;
/// Pause after a failed attempt, and between two rounds of the witness.
const PAUSE: Duration = Duration::from_millis(5);

/// What the writer was answered.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The last value that was acknowledged by the standby, too.
    pub(crate) last: i64,
    /// Values that came after one as high had been acknowledged, with that one.
    pub(crate) lost: Vec<(i64, i64)>,
    /// When a primary answered, be it that it wants a second copy first.
    answers: Vec<Instant>,
    /// When writes were acknowledged.
    acknowledged: Vec<Instant>,
}

/// One increment.
struct Attempt {
    /// Absent if the primary wants a second copy first.
    value: Option<i64>,
    answered: Instant,
    acknowledged: Option<Instant>,
}

impl Log {
    /// How many writes were acknowledged.
    pub(crate) fn count(&self) -> usize {
        self.acknowledged.len()
    }

    pub(crate) fn is_acknowledged_after(&self, moment: Instant) -> bool {
        self.acknowledged.last().is_some_and(|last| *last > moment)
    }

    /// The longest time since this moment in which no primary answered, and in which nothing was acknowledged.
    pub(crate) fn outages(&self, since: Instant) -> [Duration; 2] {
        [&self.answers, &self.acknowledged].map(|moments| {
            let first = moments.partition_point(|moment| *moment < since).saturating_sub(1);
            moments[first..].windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default()
        })
    }

    fn note(&mut self, attempt: &Attempt) {
        let Attempt { value, answered, acknowledged } = *attempt;
        self.answers.push(answered);
        let Some(value) = value else { return };
        if value <= self.last {
            self.lost.push((value, self.last));
        }
        if let Some(moment) = acknowledged {
            self.last = value;
            self.acknowledged.push(moment);
        }
    }
}

/// One increment, and its acknowledgement by the standby; an error if there is no primary at the other end.
fn attempt(connection: &mut Connection) -> io::Result<Attempt> {
    let value = match connection.ask("INCR counter")? {
        Answer::Number(value) => Some(value),
        Answer::Refused(word) if word == "NOREPLICAS" => None,
        Answer::Refused(_) | Answer::Text(_) => return Err(io::ErrorKind::PermissionDenied.into()),
    };
    let answered = Instant::now();
    let is_acknowledged = value.is_some() && matches!(connection.ask("WAIT 1 1000"), Ok(Answer::Number(1..)));
    Ok(Attempt { value, answered, acknowledged: is_acknowledged.then(Instant::now) })
}

/// Increments a counter, one time after the other.
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
            let mut connection = None;
            while !end.load(Ordering::Relaxed) {
                let open = connection.take().map_or_else(|| Connection::open(address), Ok);
                let written = open.and_then(|mut open| attempt(&mut open).map(|attempt| (open, attempt)));
                if let Ok((_, attempt)) = &written {
                    notes.lock().unwrap().note(attempt);
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
    /// Those that took writes, in the order in which they began to.
    pub(crate) primaries: Vec<String>,
    /// Those that took a write after another one had.
    pub(crate) returned: BTreeSet<String>,
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
        if self.primaries.last().is_some_and(|last| last == run) {
            return;
        }
        if self.primaries.iter().any(|former| former == run) {
            self.returned.insert(run.to_owned());
        }
        self.primaries.push(run.to_owned());
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
