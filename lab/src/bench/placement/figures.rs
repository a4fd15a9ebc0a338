//! What a placement is worth.
//!
//! Pure.

use crate::hollow::NodeShape;

/// A Pod's requests, in the units of [`Room`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodShape {
    /// Unit: thousandths of a processor.
    pub cpu: u64,
    /// Unit: GB.
    pub memory: u64,
    /// Unit: GB.
    pub storage: u64,
}

/// What can be allocated of a node, in the same units.
pub type Room = PodShape;

impl PodShape {
    /// A node of this size, with room for more Pods than any trial makes.
    pub fn as_node(&self) -> NodeShape {
        NodeShape {
            cpu: format!("{}m", self.cpu),
            memory: format!("{}G", self.memory),
            ephemeral_storage: format!("{}G", self.storage),
            pods: PODS_MAX,
        }
    }
}

/// Pods for which a node has room besides its resources; above every trial's.
const PODS_MAX: usize = 1_000;

/// Where the Pods of one trial went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The nodes.
    pub nodes: Vec<Room>,
    /// Index of a node and shape of each Pod, in the order in which they were made.
    pub pods: Vec<Placed>,
}

/// One Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Index of its node.
    pub node: usize,
    /// What it requests.
    pub shape: PodShape,
}

/// The paper's measures, and what they leave out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Product of the numbers of Pods on the nodes (equation 14).
    pub spread: f64,
    /// The same of the most even split, whether it fits or not.
    pub best_spread: f64,
    /// Standard deviation of the numbers of Pods (equation 15).
    pub count_deviation: f64,
    /// Requested CPU of the fullest node. Unit: percent of what it has.
    pub fullest_percent: f64,
    /// Standard deviation of the requested CPU of the nodes. Unit: percentage points.
    pub use_deviation: f64,
    /// How many further Pods of [`BIG`] would find a node.
    pub big_pods: u64,
}

/// A Pod that shows how scattered what is left is: half of the smallest node of the paper's clusters.
pub const BIG: PodShape = PodShape { cpu: 2_000, memory: 16, storage: 200 };

impl Placement {
    /// Number of Pods on each node.
    pub fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.nodes.len()];
        for placed in &self.pods {
            counts[placed.node] += 1;
        }
        counts
    }

    /// Computes all figures.
    #[allow(clippy::cast_precision_loss, reason = "amounts of a few nodes")]
    pub fn figures(&self) -> Figures {
        let counts: Vec<f64> = self.counts().into_iter().map(f64::from).collect();
        let left = self.left();
        let used = |(node, left): (&Room, &Room)| 100.0 * (node.cpu - left.cpu) as f64 / node.cpu as f64;
        let used: Vec<f64> = self.nodes.iter().zip(&left).map(used).collect();
        let big_on = |left: &Room| {
            [left.cpu / BIG.cpu, left.memory / BIG.memory, left.storage / BIG.storage].into_iter().min()
        };
        Figures {
            spread: counts.iter().product(),
            best_spread: best_spread(self.pods.len(), self.nodes.len()),
            count_deviation: deviation(&counts),
            fullest_percent: used.iter().copied().fold(0.0, f64::max),
            use_deviation: deviation(&used),
            big_pods: left.iter().filter_map(big_on).sum(),
        }
    }

    /// What is left of each node.
    fn left(&self) -> Vec<Room> {
        let mut left = self.nodes.clone();
        for Placed { node, shape } in &self.pods {
            let room = &mut left[*node];
            room.cpu = room.cpu.saturating_sub(shape.cpu);
            room.memory = room.memory.saturating_sub(shape.memory);
            room.storage = room.storage.saturating_sub(shape.storage);
        }
        left
    }
}

/// Product of the most even split of Pods over nodes.
#[allow(clippy::cast_precision_loss, reason = "a few hundred Pods")]
fn best_spread(pods: usize, nodes: usize) -> f64 {
    let (each, more) = (pods / nodes, pods % nodes);
    (0..nodes).map(|node| (each + usize::from(node < more)) as f64).product()
}

#[allow(clippy::cast_precision_loss, reason = "a few nodes")]
fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_formulas() {
        let node = |cores: u64| Room { cpu: cores * 1_000, memory: cores * 8, storage: cores * 100 };
        let shape = PodShape { cpu: 1_000, memory: 4, storage: 10 };
        let placed = |node| Placed { node, shape };
        let pods = [0, 1, 1, 1, 1, 1].map(placed).to_vec();
        let figures = Placement { nodes: vec![node(4), node(10)], pods }.figures();
        let expected = Figures {
            spread: 5.0,
            best_spread: 9.0,
            count_deviation: 2.0,
            fullest_percent: 50.0,
            use_deviation: 12.5,
            // 3 CPUs are left on the first, 5 on the second.
            big_pods: 3,
        };
        assert_eq!(figures, expected);
    }

    #[test]
    fn the_best_spread_is_that_of_the_papers_table() {
        // Source: the optimum of 134, 206 and 382 Pods on 3, 5 and 8 nodes, computed from equation 14.
        let best = [(134, 3), (206, 5), (382, 8)].map(|(pods, nodes)| best_spread(pods, nodes).to_string());
        assert_eq!(best, ["89100", "118681962", "27017374334976"]);
    }
}
