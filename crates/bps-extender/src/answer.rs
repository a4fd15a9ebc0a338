//! Turns a request of kube-scheduler into scores.
//!
//! Source of the messages: `k8s.io/kube-scheduler/extender/v1`, 1.36. Its types have no names for JSON, so that the fields have those
//! of Go.

use axum::extract::rejection::BytesRejection;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

use super::balance::{Deviation, SCORE_MAX, balance};
use super::ties::ranks;
use super::view::NodeSums;

/// Highest score that kube-scheduler documents for extenders (`MaxExtenderPriority`). It multiplies each by 10, so that this one
/// weighs what the highest score of one of its own plugins does.
const EXTENDER_SCORE_MAX: u8 = 10;

/// Rules by which nodes are scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scoring {
    /// The reading of the standard deviation.
    pub deviation: Deviation,
    /// Decides, with the names of Pod and node, which of several equal nodes is chosen.
    pub seed: u64,
    /// Name of the profile of the scheduler in which nothing else scores: there an answer may have any range.
    pub alone_in: String,
}

/// A request of the scheduler.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Prioritize {
    /// The Pod to be placed.
    pub(super) pod: Pod,
    /// Names of the nodes on which it fits; missing if the scheduler is not told that this program knows the nodes.
    #[serde(default)]
    pub(super) node_names: Option<Vec<String>>,
}

/// The score of one node.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HostScore {
    pub(super) host: String,
    pub(super) score: i64,
}

/// Reasons for which a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    /// It was cut off, or is larger than what is read.
    #[error("take in the scheduler's request")]
    Take(#[source] BytesRejection),
    /// It is no request of kube-scheduler.
    #[error("read the scheduler's request")]
    Read(#[source] serde_json::Error),
    /// It has nodes in place of their names.
    #[error("the request has no names of nodes; set nodeCacheCapable: true for this extender")]
    Nameless,
}

impl Prioritize {
    /// Reads a request.
    pub(super) fn read(body: &[u8]) -> Result<Self, Unanswered> {
        let request: Self = serde_json::from_slice(body).map_err(Unanswered::Read)?;
        if request.node_names.is_some() { Ok(request) } else { Err(Unanswered::Nameless) }
    }
}

impl Scoring {
    /// Returns a score for each node of the request.
    ///
    /// At equal totals a node with a score of an extender, 0 included, wins against every node without one (kube-scheduler 1.35 and
    /// later). So no node is left out.
    pub(super) fn answer(&self, request: &Prioritize, view: &NodeSums) -> Vec<HostScore> {
        let nodes = request.node_names.as_deref().unwrap_or_default();
        let needs = view.needs(&request.pod);
        let of_node = |node: &String| {
            // One that no watch has shown yet is the last choice.
            view.fractions(node, &needs).map_or(0, |fractions| balance(&fractions, self.deviation))
        };
        let scores: Vec<u8> = nodes.iter().map(of_node).collect();

        let profile = request.pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        let scores = if profile == Some(self.alone_in.as_str()) {
            self.untied(&request.pod, nodes, &scores)
        } else {
            scores.into_iter().map(|score| i64::from(rounded(score))).collect()
        };
        nodes.iter().cloned().zip(scores).map(|(host, score)| HostScore { host, score }).collect()
    }

    /// Scores of which no two are equal: the rank of a node among all decides between those with the same score.
    fn untied(&self, pod: &Pod, nodes: &[String], scores: &[u8]) -> Vec<i64> {
        let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        let untied = |(score, rank): (&u8, usize)| {
            i64::try_from(usize::from(*score) * nodes.len() + rank).unwrap_or(i64::MAX)
        };
        scores.iter().zip(ranks(self.seed, &name, nodes)).map(untied).collect()
    }
}

/// A score in the range that weighs like one plugin of the scheduler, rounded to the nearest.
fn rounded(score: u8) -> u8 {
    let step = SCORE_MAX / EXTENDER_SCORE_MAX;
    (score + step / 2) / step
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    use super::*;

    fn scoring() -> Scoring {
        Scoring { deviation: Deviation::Population, seed: 1, alone_in: "bps-rbra".into() }
    }

    fn view() -> NodeSums {
        let mut view =
            NodeSums::new(["cpu", "memory", "ephemeral-storage"].map(|name| name.parse().unwrap()).to_vec());
        // For Pods of 1 and 1 GiB and 1 GiB: even, a little uneven, and like the first.
        let shapes =
            [("even", "4", "4Gi", "4Gi"), ("uneven", "4", "8Gi", "8Gi"), ("other", "8", "8Gi", "8Gi")];
        for (name, cpu, memory, storage) in shapes {
            let allocatable = json!({"cpu": cpu, "memory": memory, "ephemeral-storage": storage});
            let node = json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}});
            view.see_node(&serde_json::from_value::<Node>(node).unwrap());
        }
        view
    }

    fn request(scheduler: &str) -> Value {
        let requests = json!({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"});
        let spec = json!({"schedulerName": scheduler, "containers": [{"name": "web", "resources": {"requests": requests}}]});
        json!({
            "Pod": {"metadata": {"name": "web-0", "namespace": "default"}, "spec": spec},
            "Nodes": null, "NodeNames": ["even", "unknown", "uneven", "other"],
        })
    }

    fn scores(scheduler: &str) -> Vec<i64> {
        let request = Prioritize::read(request(scheduler).to_string().as_bytes()).unwrap();
        let answer = scoring().answer(&request, &view());
        let hosts: Vec<&str> = answer.iter().map(|of| of.host.as_str()).collect();
        assert_eq!(hosts, ["even", "unknown", "uneven", "other"], "each node has a score");
        answer.iter().map(|of| of.score).collect()
    }

    #[test]
    fn beside_other_plugins_a_score_is_within_the_documented_range() {
        // 64.6 of 100 for the uneven one.
        assert_eq!(scores("bps-scheduler"), [10, 0, 6, 10]);
    }

    #[test]
    fn alone_no_two_scores_are_equal_and_the_finer_ones_keep_their_order() {
        let alone = scores("bps-rbra");
        let points: Vec<i64> = alone.iter().map(|score| score / 4).collect();
        assert_eq!(points, [100, 0, 64, 100]);
        assert_ne!(alone[0], alone[3]);
    }

    #[test]
    fn an_answer_is_written_as_the_scheduler_reads_it() {
        let score = HostScore { host: "n1".into(), score: 7 };
        assert_eq!(serde_json::to_value([score]).unwrap(), json!([{"Host": "n1", "Score": 7}]));
    }

    #[test]
    fn a_request_that_cannot_be_read_says_what_to_set() {
        let mut whole = request("bps-rbra");
        whole["NodeNames"] = Value::Null;
        let refusal = Prioritize::read(whole.to_string().as_bytes()).unwrap_err();
        assert!(refusal.to_string().contains("set nodeCacheCapable: true"), "{refusal}");
        assert!(matches!(Prioritize::read(b"{}"), Err(Unanswered::Read(_))));
    }
}
