//! The nodes and Pods of the experiments.
//!
//! The paper gives sizes for its first cluster only. Those of the others are chosen so that the numbers of Pods on the nodes, which
//! the factors of its spread scores give away (84, 41 and 9 on three nodes), are those of nodes in proportion: 4, 20 and 40 cores, and
//! 4, 8, 16, 32 and 40. Eight nodes have about 46 times 4 cores in all.

use super::figures::{PodShape, Room};

/// Nodes, and Pods that are put onto them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experiment {
    /// What the table says of it.
    pub name: &'static str,
    /// The nodes.
    pub nodes: &'static [Room],
    /// Number of Pods.
    pub pods: usize,
    /// Their shapes in turn.
    pub shapes: &'static [PodShape],
    /// Spread scores of the paper, if it has this experiment.
    pub paper: Option<PaperScores>,
}

/// A row of the paper's table 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaperScores {
    /// Of the scheduler of its time.
    pub default: f64,
    /// Of the refined score.
    pub rbra: f64,
}

/// Memory and storage for each core of a node of the paper. Unit: GB.
const MEMORY_PER_CORE: u64 = 8;
const STORAGE_PER_CORE: u64 = 100;

const fn node(cores: u64) -> Room {
    Room { cpu: cores * 1_000, memory: cores * MEMORY_PER_CORE, storage: cores * STORAGE_PER_CORE }
}

/// The Pod of the paper's section 4.1.
const PAPER_POD: PodShape = PodShape { cpu: 300, memory: 1, storage: 10 };
/// A smaller one: 20 of them fit onto 4 cores, as many as the paper's smallest node has in the best case of its table.
const SMALL_POD: PodShape = PodShape { cpu: 200, memory: 1, storage: 10 };
/// Each takes much of another resource.
const MIXED_PODS: [PodShape; 4] = [
    PodShape { cpu: 800, memory: 1, storage: 10 },
    PodShape { cpu: 100, memory: 5, storage: 10 },
    PodShape { cpu: 100, memory: 1, storage: 60 },
    PodShape { cpu: 250, memory: 2, storage: 25 },
];

const THREE: [Room; 3] = [node(4), node(20), node(40)];
const FIVE: [Room; 5] = [node(4), node(8), node(16), node(32), node(40)];
const EIGHT: [Room; 8] = [node(4), node(8), node(16), node(20), node(24), node(32), node(40), node(40)];
/// Of the same total, but each has more of another resource. Fewer Pods are put onto them: of 382 one may find no node.
const UNEQUAL: [Room; 8] = [
    Room { cpu: 16_000, memory: 64, storage: 3_200 },
    Room { cpu: 16_000, memory: 256, storage: 800 },
    Room { cpu: 48_000, memory: 64, storage: 800 },
    node(16),
    node(24),
    node(24),
    node(20),
    node(20),
];

/// All of them.
pub const CLUSTERS: [Experiment; 6] = [
    Experiment {
        name: "2 nodes (4.1)",
        nodes: &[node(4), node(40)],
        pods: 33,
        shapes: &[PAPER_POD],
        paper: None,
    },
    Experiment {
        name: "3 nodes",
        nodes: &THREE,
        pods: 134,
        shapes: &[SMALL_POD],
        paper: Some(PaperScores { default: 30_996.0, rbra: 64_260.0 }),
    },
    Experiment {
        name: "5 nodes",
        nodes: &FIVE,
        pods: 206,
        shapes: &[SMALL_POD],
        paper: Some(PaperScores { default: 26_911_170.0, rbra: 51_705_024.0 }),
    },
    Experiment {
        name: "8 nodes",
        nodes: &EIGHT,
        pods: 382,
        shapes: &[SMALL_POD],
        paper: Some(PaperScores { default: 618_271_898_400.0, rbra: 2_653_862_215_680.0 }),
    },
    Experiment { name: "8 nodes, mixed Pods", nodes: &EIGHT, pods: 382, shapes: &MIXED_PODS, paper: None },
    Experiment {
        name: "8 unequal nodes, mixed Pods",
        nodes: &UNEQUAL,
        pods: 340,
        shapes: &MIXED_PODS,
        paper: None,
    },
];
