//! How many Pods of a workload a rollout may delete at once. Pure.

use serde_json::Value;

use super::warning::InjectWarning;

/// `maxUnavailable` of a Deployment that names none. Unit: percent. Source: the API reference of Kubernetes.
const DEPLOYMENT_DEFAULT: u64 = 25;

/// How many of so many Pods may be unavailable.
enum Bound {
    /// So many.
    Pods(u64),
    /// So many percent.
    Percent(u64),
}

impl Bound {
    /// A count, or a percentage as in `25%`; `None` if it is neither.
    fn read(value: &Value) -> Option<Self> {
        let percent = |text: &str| text.strip_suffix('%')?.parse().ok().map(Self::Percent);
        value.as_u64().map(Self::Pods).or_else(|| value.as_str().and_then(percent))
    }

    /// Whether it lets two of the Pods be unavailable; so does a percentage of an unknown number. Kubernetes rounds up or down.
    fn permits_two(&self, replicas: Option<u64>, rounds_up: bool) -> bool {
        match (self, replicas) {
            (Self::Pods(pods), _) => *pods > 1,
            (Self::Percent(_), None) => true,
            (Self::Percent(percent), Some(replicas)) => {
                let hundredths = percent.saturating_mul(replicas);
                let pods = if rounds_up { hundredths.div_ceil(100) } else { hundredths / 100 };
                pods > 1
            }
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Pods(pods) => pods.to_string(),
            Self::Percent(percent) => format!("{percent}%"),
        }
    }
}

/// Warns of a rollout that may delete both Pods of a pair at once. `spec` is that of a workload; `kind` its kind.
pub(super) fn rollout_warning(kind: &str, spec: &Value) -> Option<InjectWarning> {
    let replicas = spec["replicas"].as_u64();
    let (strategy, bound, rounds_up, replicas) = match kind {
        "Deployment" => {
            let strategy = &spec["strategy"];
            if strategy["type"] == "Recreate" {
                return Some(InjectWarning::SeveralAtOnce { by: "strategy.type: Recreate".to_owned() });
            }
            let bound = Bound::read(&strategy["rollingUpdate"]["maxUnavailable"]);
            let bound = bound.unwrap_or(Bound::Percent(DEPLOYMENT_DEFAULT));
            ("strategy", bound, false, Some(replicas.unwrap_or(1)))
        }
        "StatefulSet" | "DaemonSet" => {
            let bound = Bound::read(&spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"])?;
            // The nodes decide how many Pods a DaemonSet has.
            let replicas = (kind == "StatefulSet").then(|| replicas.unwrap_or(1));
            ("updateStrategy", bound, true, replicas)
        }
        _ => return None,
    };
    let by = || format!("{strategy}.rollingUpdate.maxUnavailable: {}", bound.words());
    bound.permits_two(replicas, rounds_up).then(|| InjectWarning::SeveralAtOnce { by: by() })
}
