//! Who gets the metrics of an agent, and what they say.

use axum::body::Body;
use axum::http::Request;
use bps_protocol::{AgentId, Epoch, Incarnation};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::*;

async fn ask(metrics: &AgentMetrics, key_file: &Path, authorization: Option<&str>) -> (u16, bool, String) {
    let mut request = Request::get("/metrics");
    if let Some(authorization) = authorization {
        request = request.header("Authorization", authorization);
    }
    let request = request.body(Body::empty()).unwrap();
    let answer = router(vec![metrics.clone()], key_file).oneshot(request).await.unwrap();
    let (status, is_asked) = (
        answer.status().as_u16(),
        answer.headers().get("www-authenticate").is_some_and(|how| how == "Bearer"),
    );
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, is_asked, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn only_who_has_the_token_gets_anything_and_without_a_file_nobody_does() {
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("keys");
    let metrics = AgentMetrics::default();
    let refused = |answer: (u16, bool, String)| answer == (401, true, String::new());
    assert_eq!(ask(&metrics, &key_file, Some("Bearer ")).await.0, 404);
    let token_file = directory.path().join("metrics-token");
    std::fs::write(&token_file, "\n").unwrap();
    for guess in [None, Some("Bearer "), Some("Bearer x")] {
        assert!(refused(ask(&metrics, &key_file, guess).await), "{guess:?} for an empty token");
    }
    std::fs::write(&token_file, "abcdef\n").unwrap();
    for guess in [None, Some("abcdef"), Some("Basic abcdef"), Some("Bearer abcde"), Some("Bearer abcdefg")] {
        assert!(refused(ask(&metrics, &key_file, guess).await), "{guess:?}");
    }
    let (status, is_asked, text) = ask(&metrics, &key_file, Some("Bearer abcdef")).await;
    assert_eq!((status, is_asked), (200, false));
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn the_metrics_say_what_the_agent_is_and_did() {
    let metrics = AgentMetrics::default();
    let before = Agent::new(AgentId(1), Incarnation(1));
    let epoch = Epoch { term: 3, sequence: 2 };
    let after = Agent { role: Role::Active, epoch, ..before };
    let now = clock::now();
    metrics.follow(now, &Event::Timer, (&before, &after));
    metrics.took_over(Cause::LeaseExpired);
    let promise = bps_protocol::Promise { request: bps_protocol::PromiseRequest { epoch, sent: now } };
    let promised = Event::Received { from: AgentId(2), message: Message::Promise(promise) };
    metrics.follow(now, &promised, (&after, &after));
    let handed_over = Agent { role: Role::HandedOver, ..after };
    metrics.follow(now, &Event::Timer, (&after, &handed_over));
    metrics.show_lifeline(Watching::Confirmed);
    metrics.late_wakes.inc();
    metrics.lease_writes.inc();
    metrics.show_lag(Some((3, 70, now)));
    metrics.show_blocked(Some(LagReason::StandbyFull));
    let text = metrics.text(now + std::time::Duration::from_secs(4)).unwrap();
    let mut samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    samples.sort_unstable();
    let expected = r#"
backuppodset_agent_application_starts_total 0
backuppodset_agent_epoch_sequence 2
backuppodset_agent_epoch_term 3
backuppodset_agent_handovers_total 1
backuppodset_agent_hook_failures_total 0
backuppodset_agent_late_wakes_total 1
backuppodset_agent_lease_writes_total 1
backuppodset_agent_lifeline_confirmed 1
backuppodset_agent_lifeline_proxied 0
backuppodset_agent_log_lines_dropped_total 0
backuppodset_agent_overtaken_total 0
backuppodset_agent_promise_age_seconds 4
backuppodset_agent_publish_retries_total 0
backuppodset_agent_role{role="active"} 0
backuppodset_agent_role{role="ended"} 0
backuppodset_agent_role{role="handed-over"} 1
backuppodset_agent_role{role="lapsed"} 0
backuppodset_agent_role{role="standby"} 0
backuppodset_agent_role{role="stopping"} 0
backuppodset_agent_state_blocked{reason="ActiveDiskFails"} 0
backuppodset_agent_state_blocked{reason="StandbyDiskFails"} 0
backuppodset_agent_state_blocked{reason="StandbyFull"} 1
backuppodset_agent_state_blocked{reason="Unreplicable"} 0
backuppodset_agent_state_lag_bytes 70
backuppodset_agent_state_lag_entries 3
backuppodset_agent_state_lag_seconds 4
backuppodset_agent_takeovers_total{reason="LeaseExpired"} 1
"#;
    assert_eq!(samples, expected.trim().lines().collect::<Vec<_>>());
}

#[test]
fn samples_of_several_seats_stand_beside_each_other_and_say_which_seat_they_are_of() {
    let seats = [0, 1].map(|number| AgentMetrics::of_seat(SeatNumber(number)));
    seats[1].late_wakes.inc();
    let now = clock::now();
    let texts: Vec<_> = seats.iter().map(|seat| seat.text(now).unwrap()).collect();
    let text = merged(texts.clone());
    let lines = |text: &str, word: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
    };
    let expected = [
        "# HELP backuppodset_agent_late_wakes How often it was given no processor time for half a second or more.",
        "# TYPE backuppodset_agent_late_wakes counter",
        r#"backuppodset_agent_late_wakes_total{seat="0"} 0"#,
        r#"backuppodset_agent_late_wakes_total{seat="1"} 1"#,
    ];
    assert_eq!(lines(&text, "late_wakes"), expected);
    assert_eq!(lines(&text, "log_lines_dropped_total"), ["backuppodset_agent_log_lines_dropped_total 0"]);
    let samples = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(samples(&text), texts.iter().map(|text| samples(text)).sum::<usize>());
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
}

#[test]
fn a_seat_says_which_pair_it_has_and_an_agent_with_one_seat_says_nothing_of_that() {
    let told = |metrics: &AgentMetrics| -> Vec<String> {
        let text = metrics.text(clock::now()).unwrap();
        text.lines()
            .filter(|line| line.starts_with("backuppodset_agent_seat_pair{"))
            .map(str::to_owned)
            .collect()
    };
    let seat = AgentMetrics::of_seat(SeatNumber(1));
    assert_eq!(told(&seat), Vec::<String>::new());
    for pair in ["web-0", "web-3"] {
        seat.show_pair(Some(pair));
        assert_eq!(told(&seat), [format!(r#"backuppodset_agent_seat_pair{{seat="1",pair="{pair}"}} 1"#)]);
    }
    seat.show_pair(None);
    assert_eq!(told(&seat), Vec::<String>::new());

    let one = AgentMetrics::default();
    one.show_pair(Some("web-0"));
    assert_eq!(told(&one), Vec::<String>::new());
}
