//! Counts what a Pod requests, as kube-scheduler does.

use std::collections::BTreeMap;

use bps_api::quantity::thousandths;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Amounts by name of the resource. Unit: thousandths of that of the resource.
pub type Amounts = BTreeMap<String, u64>;

/// The resource that each Pod takes one of.
const PODS: &str = "pods";

/// Whether a Pod has ended: its node does not hold anything for it any more.
pub fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns the amounts that the scheduler counts of a Pod.
///
/// These are the requests of its containers together, or of one init container with the sidecars before it if that is more. Requests of
/// the Pod as a whole replace them, and its overhead is added. A container that is being resized counts with the most of what it asks
/// for, is promised and has. Source: Kubernetes, "Init containers", "Pod Overhead", and `PodRequests` of k8s.io/component-helpers 0.36,
/// to which `tests/rbra` holds this.
///
/// Two things are not counted alike. Each amount is rounded up to a thousandth, in the scheduler the sum of a Pod. A resize of the
/// requests of a Pod as a whole (1.36) counts with what it asks for: the Pods of the API version that is used here do not have its
/// status.
pub fn requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::from([(PODS.to_owned(), 1_000)]) };
    let mut together = of_containers(pod, spec);
    together.extend(asked(spec.resources.as_ref()).into_iter().filter(|(name, _)| is_of_pod(name)));
    add(&mut together, &amounts(spec.overhead.as_ref()));
    add(&mut together, &Amounts::from([(PODS.to_owned(), 1_000)]));
    together
}

/// Reads quantities; what cannot be read is left out.
pub fn amounts(quantities: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let read = |(name, quantity): (&String, &Quantity)| Some((name.clone(), thousandths(&quantity.0)?));
    quantities.into_iter().flatten().filter_map(read).collect()
}

/// Adds amounts to a sum.
pub fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let known = sum.entry(name.clone()).or_default();
        *known = known.saturating_add(*amount);
    }
}

/// Whether a Pod may request a resource as a whole.
fn is_of_pod(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

fn of_containers(pod: &Pod, spec: &PodSpec) -> Amounts {
    let mut together = Amounts::new();
    let mut most = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut together, &of_container(pod, container));
        } else {
            let mut beside = together.clone();
            add(&mut beside, &asked(container.resources.as_ref()));
            raise(&mut most, &beside);
        }
    }
    for container in &spec.containers {
        add(&mut together, &of_container(pod, container));
    }
    raise(&mut together, &most);
    together
}

fn of_container(pod: &Pod, container: &Container) -> Amounts {
    let wanted = asked(container.resources.as_ref());
    let Some(status) = status_of(pod, &container.name) else { return wanted };
    // Without what it has, what it is promised says nothing.
    let Some(has) = &status.resources else { return wanted };
    let mut most = amounts(has.requests.as_ref());
    raise(&mut most, &amounts(status.allocated_resources.as_ref()));
    // What the node has refused for good is not going to be used.
    if !is_resize_infeasible(pod) {
        raise(&mut most, &wanted);
    }
    most
}

fn status_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    status.container_statuses.iter().flatten().chain(init).find(|status| status.name == name)
}

fn is_resize_infeasible(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let pending = conditions.into_iter().find(|condition| condition.type_ == "PodResizePending");
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

/// What is requested; a limit without a request is one.
fn asked(resources: Option<&ResourceRequirements>) -> Amounts {
    let Some(resources) = resources else { return Amounts::new() };
    let mut asked = amounts(resources.limits.as_ref());
    asked.extend(amounts(resources.requests.as_ref()));
    asked
}

fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let known = most.entry(name.clone()).or_default();
        *known = (*known).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn requested(spec: Value, status: Value) -> Amounts {
        let pod = json!({"metadata": {"name": "web"}, "spec": spec, "status": status});
        requests(&serde_json::from_value(pod).expect("a Pod"))
    }

    fn cpu(amount: &str) -> Value {
        json!({"requests": {"cpu": amount}})
    }

    #[test]
    fn a_pod_requests_what_the_scheduler_counts() {
        let spec = json!({
            "initContainers": [
                {"name": "first", "resources": cpu("900m")},
                {"name": "sidecar", "restartPolicy": "Always", "resources": cpu("200m")},
                {"name": "second", "resources": cpu("800m")},
            ],
            "containers": [
                {"name": "web", "resources": cpu("300m")},
                {"name": "log", "resources": {"limits": {"cpu": "100m", "memory": "1Ki"}}},
            ],
            "overhead": {"cpu": "10m"},
        });
        // The second init container beside the sidecar is more than the containers beside it.
        let expected = [("cpu", 1_010), ("memory", 1_024_000), ("pods", 1_000)];
        assert_eq!(
            requested(spec, json!({})),
            expected.map(|(name, amount)| (name.to_owned(), amount)).into()
        );

        let whole =
            json!({"resources": cpu("50m"), "containers": [{"name": "web", "resources": cpu("300m")}]});
        assert_eq!(requested(whole, json!({}))["cpu"], 50);
    }

    #[test]
    fn a_container_that_is_being_resized_counts_with_the_most_of_what_it_may_use() {
        let of = |wanted: &str, promised: &str, has: &str, reason: &str| {
            let status = json!({"name": "web", "allocatedResources": {"cpu": promised}, "resources": cpu(has),
                                "ready": true, "restartCount": 0, "image": "", "imageID": ""});
            let pending = json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
            let spec = json!({"containers": [{"name": "web", "resources": cpu(wanted)}]});
            requested(spec, json!({"containerStatuses": [status], "conditions": pending}))["cpu"]
        };
        assert_eq!(of("100m", "200m", "300m", "Deferred"), 300);
        assert_eq!(of("100m", "400m", "300m", "Deferred"), 400);
        assert_eq!(of("500m", "200m", "300m", "Deferred"), 500);
        assert_eq!(of("500m", "200m", "300m", "Infeasible"), 300);
    }
}
