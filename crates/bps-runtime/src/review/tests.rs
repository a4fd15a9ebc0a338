//! Tests of reviews against a fake API server that counts what it is asked.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

/// What the fake was asked: path and body of each request.
pub(crate) type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Knows `reader` and `stranger`; only `reader` may read; `broken` breaks it.
pub(crate) fn api_server() -> (Client, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let service = service_fn(move |request: Request<Body>| {
        let log = log.clone();
        async move {
            let (head, body) = request.into_parts();
            let mut review: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
            let path = head.uri.path().to_owned();
            log.lock().unwrap().push((path.clone(), review.clone()));
            let token = review["spec"]["token"].as_str().unwrap_or_default().to_owned();
            let code =
                if token == "broken" { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::CREATED };
            review["status"] = if path.ends_with("/tokenreviews") {
                let user =
                    json!({"username": token, "uid": "7", "groups": ["scrapers"], "extra": {"k": ["v"]}});
                let is_known = token == "reader" || token == "stranger";
                if is_known { json!({"authenticated": true, "user": user}) } else { json!({}) }
            } else {
                json!({"allowed": review["spec"]["user"] == "reader"})
            };
            let answer = Response::builder().status(code).body(Body::from(review.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    (Client::new(service, "default"), asked)
}

fn count(asked: &Asked) -> usize {
    asked.lock().unwrap().len()
}

#[tokio::test]
async fn the_questions_are_those_of_controller_runtime() {
    let (client, asked) = api_server();

    assert_eq!(Reviewer::new(client).review("reader").await.unwrap(), Verdict::Allowed);

    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].0, "/apis/authentication.k8s.io/v1/tokenreviews");
    assert_eq!(asked[0].1["spec"], json!({"token": "reader"}));
    assert_eq!(asked[1].0, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
    let expected = json!({
        "user": "reader", "uid": "7", "groups": ["scrapers"], "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    });
    assert_eq!(asked[1].1["spec"], expected);
}

#[tokio::test(start_paused = true)]
async fn verdicts_are_kept_for_their_time_and_no_longer() {
    let (client, asked) = api_server();
    let reviewer = Reviewer::new(client);
    // token, verdict, requests per question, time kept
    let table = [
        ("reader", Verdict::Allowed, 2, ALLOWED_MAX),
        ("stranger", Verdict::Forbidden, 2, REFUSED_MAX),
        ("nobody", Verdict::Unknown, 1, REFUSED_MAX),
    ];
    for (token, verdict, requests, kept) in table {
        let before = count(&asked);
        assert_eq!(reviewer.review(token).await.unwrap(), verdict);
        tokio::time::advance(kept.checked_sub(Duration::from_millis(1)).unwrap()).await;
        assert_eq!(reviewer.review(token).await.unwrap(), verdict);
        assert_eq!(count(&asked) - before, requests, "{token} was kept");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(reviewer.review(token).await.unwrap(), verdict);
        assert_eq!(count(&asked) - before, 2 * requests, "{token} was asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_wrong_tokens_neither_grows_memory_nor_pushes_out_a_good_one() {
    let (client, asked) = api_server();
    let reviewer = Reviewer::new(client);
    reviewer.review("reader").await.unwrap();
    for number in 0..3 * DECISIONS_MAX {
        assert_eq!(reviewer.review(&format!("guess-{number}")).await.unwrap(), Verdict::Unknown);
    }
    assert_eq!(reviewer.decisions.lock().unwrap().len(), DECISIONS_MAX);
    let before = count(&asked);
    assert_eq!(reviewer.review("reader").await.unwrap(), Verdict::Allowed);
    assert_eq!(count(&asked), before);
}

#[tokio::test(start_paused = true)]
async fn errors_are_not_kept_and_do_not_quote_the_token() {
    let (client, asked) = api_server();
    let reviewer = Reviewer::new(client);
    for _ in 0..2 {
        let error = reviewer.review("broken").await.unwrap_err();
        assert_eq!(error.to_string(), "review the bearer of a token");
    }
    assert_eq!(count(&asked), 2);
    assert!(reviewer.decisions.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_silent_api_server_is_given_up_after_its_time() {
    let silent = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let reviewer = Reviewer::new(Client::new(silent, "default"));
    let start = Instant::now();
    assert!(matches!(reviewer.review("reader").await, Err(Error::NoAnswer)));
    assert_eq!(start.elapsed(), REVIEW_MAX);
}
