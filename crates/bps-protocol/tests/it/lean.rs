//! A search for arenas that are too large to keep every world that is still to be looked at, and how each was reached: it goes
//! deep first and keeps fingerprints. So it says which world breaks an invariant, and not how it came about.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use ahash::RandomState;
use stateright::{Model as _, Property};

use crate::model::Search;
use crate::world::World;

/// Sets of fingerprints, so that threads seldom want the same one, and only one is copied when it grows.
const SHARDS: usize = 256;
/// After how many worlds it says that it goes on.
const NEWS_EACH: usize = 20_000_000;

/// What a lean search found.
pub(crate) struct Found {
    pub(crate) worlds: usize,
    pub(crate) time: Duration,
    pub(crate) broken: Option<(&'static str, World)>,
}

/// Takes a fingerprint for its own hash, which it is.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Fingerprints = HashSet<u64, BuildHasherDefault<AsItIs>>;

/// Worlds for threads that have none left.
#[derive(Default)]
struct Pool {
    worlds: Vec<World>,
    idle: usize,
}

struct Hunt<'a> {
    search: &'a Search,
    invariants: Vec<Property<Search>>,
    /// The hash function that stateright's own searches use.
    hashing: RandomState,
    threads: usize,
    known: Vec<Mutex<Fingerprints>>,
    worlds: AtomicUsize,
    pool: Mutex<Pool>,
    /// Somebody waits for worlds.
    is_wanted: AtomicBool,
    offered: Condvar,
    broken: Mutex<Option<(&'static str, World)>>,
    is_over: AtomicBool,
}

/// Looks at every world that can be reached, until an invariant is broken.
pub(crate) fn run(search: &Search, threads: usize) -> Found {
    let began = Instant::now();
    let hunt = Hunt {
        search,
        invariants: search.properties(),
        hashing: RandomState::with_seeds(1, 2, 3, 4),
        threads,
        known: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
        worlds: AtomicUsize::new(0),
        pool: Mutex::default(),
        is_wanted: AtomicBool::new(false),
        offered: Condvar::new(),
        broken: Mutex::new(None),
        is_over: AtomicBool::new(false),
    };
    let start: Vec<World> = search.init_states().into_iter().filter(|world| hunt.is_new(world)).collect();
    hunt.pool.lock().expect("nobody panics").worlds = start;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| hunt.work());
        }
    });
    Found {
        worlds: hunt.worlds.into_inner(),
        time: began.elapsed(),
        broken: hunt.broken.into_inner().expect("nobody panics"),
    }
}

impl Hunt<'_> {
    fn work(&self) {
        let mut open = Vec::new();
        let mut steps = Vec::new();
        while let Some(world) = open.pop().or_else(|| self.take(&mut open)) {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            self.judge(&world);
            self.search.actions(&world, &mut steps);
            let next = steps.drain(..).filter_map(|step| self.search.next_state(&world, step));
            open.extend(next.filter(|next| self.is_new(next)));
            if self.is_wanted.load(Ordering::Relaxed) && open.len() > 1 {
                self.give(&mut open);
            }
        }
    }

    fn judge(&self, world: &World) {
        let broken = self.invariants.iter().find(|it| !(it.condition)(self.search, world));
        if let Some(invariant) = broken {
            self.broken.lock().expect("nobody panics").get_or_insert((invariant.name, world.clone()));
            self.end();
        }
    }

    /// Wakes whoever waits, who then ends.
    fn end(&self) {
        let _pool = self.pool.lock().expect("nobody panics");
        self.is_over.store(true, Ordering::Relaxed);
        self.offered.notify_all();
    }

    /// Whether nobody has met this world, who will not meet it again.
    fn is_new(&self, world: &World) -> bool {
        let fingerprint = self.hashing.hash_one(world);
        // The low bits choose the place in a set.
        let shard = usize::try_from(fingerprint >> 56).expect("a byte") % SHARDS;
        let is_new = self.known[shard].lock().expect("nobody panics").insert(fingerprint);
        if is_new && self.worlds.fetch_add(1, Ordering::Relaxed) % NEWS_EACH == NEWS_EACH - 1 {
            eprintln!("... {} worlds", self.worlds.load(Ordering::Relaxed));
        }
        is_new
    }

    /// The older half of what one thread has, as it leads to more than the newer one.
    fn give(&self, open: &mut Vec<World>) {
        let half = open.len() / 2;
        let mut pool = self.pool.lock().expect("nobody panics");
        pool.worlds.extend(open.drain(..half));
        self.is_wanted.store(false, Ordering::Relaxed);
        self.offered.notify_all();
    }

    /// One world to go on with, and the rest of what there is; `None` once nobody has any.
    fn take(&self, open: &mut Vec<World>) -> Option<World> {
        let mut pool = self.pool.lock().expect("nobody panics");
        pool.idle += 1;
        loop {
            if self.is_over.load(Ordering::Relaxed) || (pool.worlds.is_empty() && pool.idle == self.threads) {
                self.is_over.store(true, Ordering::Relaxed);
                self.offered.notify_all();
                return None;
            }
            if let Some(world) = pool.worlds.pop() {
                open.append(&mut pool.worlds);
                pool.idle -= 1;
                return Some(world);
            }
            self.is_wanted.store(true, Ordering::Relaxed);
            pool = self.offered.wait(pool).expect("nobody panics");
        }
    }
}
