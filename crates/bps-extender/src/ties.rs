//! Breaks ties between nodes with the same score, in the same way each time.
//!
//! The paper chooses one of them at random. kube-scheduler's own choice cannot be repeated: it takes the nodes in the order in which
//! its goroutines found them, or draws from a generator without a seed (1.36).

use std::cmp::Ordering;

/// Offset and prime of the 64-bit FNV-1a hash. Source: <http://www.isthe.com/chongo/tech/comp/fnv/>.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the rank of each node for a Pod, from 0 to their number less 1, in the order of `nodes`; the highest is to be chosen.
pub(super) fn ranks(seed: u64, pod: &str, nodes: &[String]) -> Vec<usize> {
    let hashes: Vec<u64> = nodes.iter().map(|node| mixed(hash(&format!("{seed}/{pod}/{node}")))).collect();
    let order = |one: &usize, other: &usize| -> Ordering {
        (hashes[*one], &nodes[*one]).cmp(&(hashes[*other], &nodes[*other]))
    };

    let mut ascending: Vec<usize> = (0..nodes.len()).collect();
    ascending.sort_unstable_by(order);
    let mut ranks = vec![0; nodes.len()];
    for (rank, node) in ascending.into_iter().enumerate() {
        ranks[node] = rank;
    }
    ranks
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// Carries each bit to all others: names that differ in their last letter alone have hashes with the same leading bits, so that
/// their order would depend on that letter. Source: finaliser of `MurmurHash3`, 64 bits.
fn mixed(mut hash: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn nodes(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("n{number}")).collect()
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // Source: the test vectors of the same page.
        assert_eq!(
            [hash(""), hash("a"), hash("foobar")],
            [FNV_OFFSET, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]
        );
    }

    #[test]
    fn each_node_has_a_rank_of_its_own_whatever_the_order_in_which_they_are_listed() {
        let nodes = nodes(50);
        let forwards: BTreeMap<&String, usize> =
            nodes.iter().zip(ranks(7, "default/web-0", &nodes)).collect();
        let reversed: Vec<String> = nodes.iter().rev().cloned().collect();
        let backwards: BTreeMap<&String, usize> =
            reversed.iter().zip(ranks(7, "default/web-0", &reversed)).collect();
        assert_eq!(forwards, backwards);

        let mut sorted: Vec<usize> = forwards.into_values().collect();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_rank_is_spread_over_the_nodes_and_depends_on_the_seed() {
        let nodes = nodes(4);
        let first = |seed: u64, pod: usize| {
            let ranks = ranks(seed, &format!("default/web-{pod}"), &nodes);
            ranks.iter().position(|rank| *rank == 3).unwrap()
        };
        let mut chosen = [0; 4];
        for pod in 0..1_000 {
            chosen[first(1, pod)] += 1;
        }
        assert!(chosen.iter().all(|count| (200..300).contains(count)), "{chosen:?}");
        let same = (0..1_000).filter(|pod| first(1, *pod) == first(2, *pod)).count();
        assert!((200..300).contains(&same), "{same} of 1,000 alike by another seed");
    }
}
