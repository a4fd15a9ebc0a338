//! A seeded troublemaker: deletes, relabels and plants Pods of others, a bounded number of times.

use serde_json::json;

use crate::simulation::{
    actors::ActorStep,
    kinds::PODS,
    oracle::SET_LABEL,
    store::DeleteOptions,
    world::{Actor, Key, World},
};

/// `SplitMix64`: enough for choosing victims, and the same on every machine.
pub struct Random(pub u64);

impl Random {
    /// The next number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bound = u64::try_from(bound).expect("fits");
        usize::try_from((z ^ (z >> 31)) % bound).expect("below a usize")
    }
}

/// Makes `left` strikes, one a step.
pub struct Monkey {
    pub random: Random,
    pub left: u32,
}

impl ActorStep for Monkey {
    fn step(&mut self, world: &mut World) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let victims: Vec<(Key, _)> =
            world.objects(&PODS, "").map(|(key, pod)| (key.clone(), pod.clone())).collect();
        if victims.is_empty() {
            return false;
        }
        let (key, pod) = &victims[self.random.below(victims.len())];
        match self.random.below(3) {
            0 => world.delete(Actor::Monkey, key, &DeleteOptions::default()).is_ok(),
            1 => world.edit(Actor::Monkey, key, |pod| {
                pod["metadata"]["annotations"]["monkey.example.com/was"] = json!("here");
            }),
            _ => {
                let name = format!("stranger-{}", self.left);
                let labels = json!({SET_LABEL: pod["metadata"]["labels"][SET_LABEL]});
                let spec = json!({"containers": [{"name": "app", "image": "stranger"}]});
                let body = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
                world.create(Actor::Monkey, &Key::pod(&name), body).is_ok()
            }
        }
    }
}
