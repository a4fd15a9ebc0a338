//! Asks whether the admission policies that limit this operator do so.
//!
//! It may patch Secrets, and a patch that changes nothing shows what is in one. A policy stops that for all Secrets but those of groups,
//! and names the operator by namespace and ServiceAccount: with another namespace in one of them only, it limits nobody. That shows in no
//! other way, so it is tried: a Secret that no policy should let through is created without being kept.

use std::time::Duration;

use bps_runtime::metrics::sets::SetMetrics;
use bps_runtime::shutdown::Shutdown;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tracing::{error, warn};

/// How often it is asked: policies change with installations, which restart the operator as a rule.
const ASK_PERIOD: Duration = Duration::from_secs(3600);

/// How soon it is asked again after bad news or none: while something is being installed, policies come late.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Name of the Secret that is never made.
const SECRET_NEVER_MADE: &str = "bps-is-limited";

/// What the policy says when it refuses, as in `deploy/base/admission.yaml`.
const POLICY_WORDS: &str = "the operator may write the Secrets of groups";

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limits {
    /// The API server refuses what the operator may not do.
    InForce,
    /// It would have taken it.
    Missing,
}

/// Asks until shutdown; says so in the log and a metric while the policies are missing.
pub(super) async fn watch_over(client: Client, namespace: String, metrics: SetMetrics, shutdown: Shutdown) {
    loop {
        let pause = match ask(&client, &namespace).await {
            Ok(Limits::InForce) => {
                metrics.set_unlimited(false);
                ASK_PERIOD
            }
            Ok(Limits::Missing) => {
                metrics.set_unlimited(true);
                error!(
                    namespace,
                    "No admission policy limits which Secrets this operator may write, so its token could read all of them: install \
                     the policies with this namespace and ServiceAccount in them, as the chart does"
                );
                ASK_AGAIN
            }
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "Could not ask for the limits of the operator"
                );
                ASK_AGAIN
            }
        };
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Whether the API server would refuse a Secret that is none of the operator's.
///
/// # Errors
/// It did not say.
pub(super) async fn ask(client: &Client, namespace: &str) -> Result<Limits, kube::Error> {
    let metadata = ObjectMeta { name: Some(SECRET_NEVER_MADE.to_owned()), ..ObjectMeta::default() };
    let secret = Secret { metadata, ..Secret::default() };
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    match Api::namespaced(client.clone(), namespace).create(&parameters, &secret).await {
        Ok(Secret { .. }) => Ok(Limits::Missing),
        Err(kube::Error::Api(status)) if status.message.contains(POLICY_WORDS) => Ok(Limits::InForce),
        // Whatever else refused it says nothing of that policy.
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use bps_testkit::mock_api::{pair, status};
    use serde_json::json;

    use super::*;

    async fn answered(code: u16) -> (Option<Limits>, Option<String>) {
        let (client, server) = pair();
        let (log, serving) = server.serve(move |seen| match code {
            201 => (201, seen.body.clone()),
            422 => {
                (422, status(422, "Invalid", &format!("denied request: {POLICY_WORDS}, and its own, only")))
            }
            _ => (code, status(code, "Forbidden", "exceeded quota: secrets")),
        });
        let found = ask(&client, "ops").await.ok();
        let path = log.lock().unwrap().first().map(|seen| format!("{}?{}", seen.path, seen.query));
        serving.abort();
        (found, path)
    }

    #[tokio::test]
    async fn a_secret_that_the_server_would_take_shows_that_nothing_limits_the_operator() {
        let (found, path) = answered(201).await;
        assert_eq!(found, Some(Limits::Missing));
        let path = path.unwrap_or_default();
        assert!(path.contains("/namespaces/ops/secrets") && path.contains("dryRun=All"), "{path}");
        assert_eq!(answered(422).await.0, Some(Limits::InForce));
        for code in [403, 500] {
            assert_eq!(answered(code).await.0, None, "{code}: who knows");
        }
    }

    #[test]
    fn the_policies_say_what_is_looked_for() {
        for file in ["deploy/base/admission.yaml", "deploy/chart/templates/admission.yaml"] {
            let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
            assert!(std::fs::read_to_string(path).unwrap().contains(POLICY_WORDS), "{file}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_asked_again_until_the_policies_are_there() {
        let (client, server) = pair();
        let mut asked = 0;
        let (log, serving) = server.serve(move |_| {
            asked += 1;
            match asked {
                1 => (500, status(500, "InternalError", "etcd is away")),
                2 => (201, json!({"metadata": {"name": SECRET_NEVER_MADE}})),
                _ => (422, status(422, "Invalid", POLICY_WORDS)),
            }
        });
        let shutdown = Shutdown::new();
        let metrics = bps_runtime::metrics::Metrics::new("1.2.3");
        let shown = |metrics: &bps_runtime::metrics::Metrics| {
            metrics.encode().unwrap().lines().any(|line| line == "backuppodset_unlimited 1")
        };
        let watching = watch_over(client, "ops".into(), metrics.sets.clone(), shutdown.clone());
        let watching = tokio::spawn(watching);
        let mut was_shown = false;
        while log.lock().unwrap().len() < 3 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            was_shown |= shown(&metrics);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(was_shown && !shown(&metrics), "shown while it was so");
        tokio::time::sleep(ASK_PERIOD / 2).await;
        assert_eq!(log.lock().unwrap().len(), 3, "then once an hour");
        watching.abort();
        serving.abort();
    }
}
