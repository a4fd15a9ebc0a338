//! The claims that wait, those that are held, and those that were: starts each as soon as its lane allows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::{Id, JoinSet};

use crate::bench::Bench;
use crate::claims::{self, Claim, Ended};
use crate::lanes::{self, Lane, Need};
use crate::report::Held;

/// See the module.
pub(crate) struct Hall {
    opened: Instant,
    /// With the namespace of each.
    waiting: Vec<(Arc<Claim>, String)>,
    running: BTreeMap<Id, Running>,
    tasks: JoinSet<Ended>,
    /// Those that were held, in the order of their ends.
    pub(crate) held: Vec<Held>,
}

/// A claim that is held at the moment.
struct Running {
    claim: Arc<Claim>,
    namespace: String,
    began: Instant,
    /// Those that were held beside it until now.
    beside: Vec<&'static str>,
}

/// A claim that was held, and what is needed to tell of it.
pub(crate) struct HeldIn {
    pub(crate) claim: Held,
    pub(crate) namespace: String,
    /// Names of the claims that were held beside it for a while.
    pub(crate) beside: Vec<&'static str>,
    pub(crate) notes: Vec<String>,
}

impl Hall {
    /// Each of the claims waits to be held so often.
    pub(crate) fn new(chosen: Vec<Claim>, rounds: usize) -> Self {
        let chosen: Vec<_> = chosen.into_iter().map(Arc::new).collect();
        let all = chosen.iter().cycle().take(chosen.len() * rounds).cloned();
        let named = |(index, claim)| (claim, format!("claim-{}", index + 1));
        Self {
            opened: Instant::now(),
            waiting: all.enumerate().map(named).collect(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            held: Vec::new(),
        }
    }

    /// How many claims wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Starts all claims that may be held now; whether any is held.
    pub(crate) fn start(&mut self, bench: &Arc<Bench>) -> bool {
        while let Some(next) = self.next() {
            let (claim, namespace) = self.waiting.remove(next);
            let beside = self.running.values().map(|running| running.claim.name).collect();
            for running in self.running.values_mut() {
                running.beside.push(claim.name);
            }
            let held = {
                let (bench, claim, namespace) = (Arc::clone(bench), Arc::clone(&claim), namespace.clone());
                async move { claims::hold(&bench, &claim, &namespace).await }
            };
            let id = self.tasks.spawn(held).id();
            self.running.insert(id, Running { claim, namespace, began: Instant::now(), beside });
        }
        !self.running.is_empty()
    }

    fn next(&self) -> Option<usize> {
        let waiting: Vec<Need> = self.waiting.iter().map(|(claim, _)| claim.need).collect();
        let running: Vec<Lane> = self.running.values().map(|running| running.claim.need.lane).collect();
        lanes::next(&waiting, &running)
    }

    /// Waits until one of the claims that are held has ended.
    pub(crate) async fn ended(&mut self) -> HeldIn {
        let ended = self.tasks.join_next_with_id().await.expect("a claim is held");
        let (id, Ended { problem, notes }) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                let problem = Some(format!("the claim could not be held: {error}"));
                (error.id(), Ended { problem, notes: Vec::new() })
            }
        };
        let Running { claim, namespace, began, beside } = self.running.remove(&id).expect("it was started");
        let since = |instant: Instant| instant.duration_since(self.opened);
        let (began, ended) = (since(began), since(Instant::now()));
        let claim = Held { name: claim.name, lane: claim.need.lane, began, ended, problem };
        HeldIn { claim, namespace, beside, notes }
    }
}
