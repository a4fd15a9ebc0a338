//! Counts the requests that may change something, as the API server does.

use http::Request;
use kube::Client;

use super::Error;
use super::metrics::Exposition;

/// Verbs that change something.
const WRITES: [&str; 6] = ["APPLY", "DELETE", "DELETECOLLECTION", "PATCH", "POST", "PUT"];
/// What the operator and the agents write, besides Leases.
const RESOURCES: [&str; 11] = [
    "backuppodsets",
    "controllerrevisions",
    "endpointslices",
    "events",
    "hagroups",
    "pods",
    "rolebindings",
    "roles",
    "secrets",
    "services",
    "statefulsets",
];
/// Leases are replaced as a whole by nodes and by whoever leads, many times a minute; pairs patch, make and delete them.
const OF_LEADERS: &str = "PUT";

/// How many there were since the API server started, of whomever.
///
/// # Errors
/// `Request`.
pub async fn writes(client: &Client) -> Result<f64, Error> {
    let request = Request::get("/metrics").body(Vec::new()).expect("a constant request");
    let text = client.request_text(request).await;
    let text = text.map_err(Error::request("read", "the API server's metrics"))?;
    Ok(Exposition::from(text).sum("apiserver_request_total", is_counted))
}

fn is_counted(labels: &str) -> bool {
    let has = |name: &str, word: &str| labels.contains(&format!("{name}=\"{word}\""));
    let is_write = |verb: &&str| has("verb", verb);
    let is_of_pair = has("resource", "leases") && !is_write(&OF_LEADERS);
    WRITES.iter().any(is_write) && (is_of_pair || RESOURCES.iter().any(|resource| has("resource", resource)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_pairs_count_and_those_of_nodes_and_leaders_do_not() {
        let labels = |resource: &str, verb: &str| {
            format!(
                "code=\"200\",resource=\"{resource}\",scope=\"resource\",subresource=\"\",verb=\"{verb}\"}}"
            )
        };
        for (resource, verb, expected) in [
            ("leases", "PATCH", true),
            ("leases", "PUT", false),
            ("leases", "GET", false),
            ("secrets", "APPLY", true),
            ("roles", "APPLY", true),
            ("pods", "WATCH", false),
            ("nodes", "PATCH", false),
        ] {
            assert_eq!(is_counted(&labels(resource, verb)), expected, "{verb} {resource}");
        }
    }
}
