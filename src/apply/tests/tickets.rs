//! Tickets: whom they name, who signs them, and what the gate's answer comes to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bps_api::keys;
use bps_core::model::{Action, Outcome, PodName, PodRef, Refusal, Role, Uid};
use bps_observe::{Cache, Observation, SetKey, Watched, observe};
use bps_testkit::mock_api::pair;
use bps_wakeup::client::Error;
use bps_wakeup::protocol::{Answer, Identity, Refusal as GateRefusal, SignedTicket, TICKET_TEXT_BYTES};
use bps_wakeup::uid::Uid as TicketUid;
use futures::FutureExt as _;
use serde_json::{Value, json};

use super::{pod_ref, take};
use crate::apply::testing::{NOW, SET_UID, applier, clock, gate_kit, pod, ring, set, slim};
use crate::apply::{Applier, TicketSender};

type Sent = Arc<Mutex<Vec<(SocketAddr, SignedTicket)>>>;

/// A sender that keeps what it is given and brings this answer.
fn sender(answer: fn() -> Result<Answer, Error>) -> (TicketSender, Sent) {
    let sent = Sent::default();
    let log = Arc::clone(&sent);
    let deliver: TicketSender = Arc::new(move |address, ticket| {
        log.lock().unwrap().push((address, ticket));
        async move { answer() }.boxed()
    });
    (deliver, sent)
}

/// The set with a Pod whose gate knows these keys, and whose annotations have a ticket.
fn with_keys(ids: &str) -> Observation {
    with_annotations(&json!({(keys::ANNOTATION_WAKE_KEYS): ids, (keys::ANNOTATION_TICKET): "00"}))
}

fn with_annotations(annotations: &Value) -> Observation {
    let mut cache = Cache::default();
    set(&json!({})).seen(&mut cache, NOW);
    let mut cold = pod("web-0", ("hot", 17));
    for (name, value) in annotations.as_object().expect("annotations") {
        cold["metadata"]["annotations"][name] = value.clone();
    }
    slim(&cold).seen(&mut cache, NOW);
    let key = SetKey { namespace: "shop".into(), name: "web".into() };
    observe(&cache, &key, NOW).expect("the set is there")
}

async fn wake(
    seen: &Observation,
    answer: fn() -> Result<Answer, Error>,
) -> (Outcome, Option<String>, Vec<(SocketAddr, SignedTicket)>) {
    let (client, _server) = pair();
    let (deliver, sent) = sender(answer);
    let applier = Applier::new(client, (clock(), deliver), gate_kit());
    let pod =
        PodRef { name: PodName("web-0".into()), uid: Uid("uid-web-0".into()), resource_version: "17".into() };
    let tried = take(&applier, seen, &Action::Wake { pod, address: [198, 18, 0, 1].into() }).await;
    assert!(tried.written.is_none());
    let sent = sent.lock().unwrap().clone();
    (tried.result.outcome, tried.result.message, sent)
}

#[tokio::test]
async fn a_ticket_names_pod_and_set_and_is_signed_by_a_key_that_the_gate_knows() {
    for key in [ring().current, ring().next] {
        let seen = with_keys(&format!("0000000000000000,{}", key.id()));
        let (outcome, message, sent) = wake(&seen, || Ok(Answer::Accepted)).await;
        assert_eq!((outcome, message), (Outcome::Done, None));
        let [(address, ticket)] = sent.as_slice() else { panic!("{} tickets", sent.len()) };
        assert_eq!(*address, SocketAddr::from(([198, 18, 0, 1], 20_000)));
        let gate = Identity {
            pod: TicketUid::parse("uid-web-0").unwrap(),
            set: TicketUid::parse(SET_UID).unwrap(),
            keys: &[key.public()],
        };
        let now = u64::try_from(NOW.as_second()).unwrap();
        assert_eq!(ticket.verify(&gate, now), Ok(()));
        assert_eq!(ticket.ticket.epoch, now * 1000);
    }
}

#[tokio::test]
async fn a_gate_that_refuses_or_is_silent_is_told_in_its_words() {
    let seen = with_keys(&ring().current.id().to_string());
    let (outcome, message, _) = wake(&seen, || Ok(Answer::Refused(GateRefusal::ALL[0]))).await;
    let expected = format!("the gate answered {}", GateRefusal::ALL[0].as_str());
    assert_eq!((outcome, message), (Outcome::Failed(Refusal::GateRefused), Some(expected)));
    let silent = || {
        let address = SocketAddr::from(([198, 18, 0, 1], 20_000));
        Err(Error::TimedOut { address, deadline: Duration::from_secs(1) })
    };
    let (outcome, message, _) = wake(&seen, silent).await;
    assert_eq!(outcome, Outcome::Failed(Refusal::GateRefused));
    assert_eq!(message, Some(silent().unwrap_err().to_string()));
    let cut = || {
        let address = SocketAddr::from(([198, 18, 0, 1], 20_000));
        Err(Error::Talk { address, source: std::io::Error::from(std::io::ErrorKind::ConnectionReset) })
    };
    let (_, message, _) = wake(&seen, cut).await;
    assert_eq!(message.as_deref(), Some("talk to 198.18.0.1:20000: connection reset"));
}

#[tokio::test]
async fn without_a_key_that_the_gate_knows_nothing_is_sent() {
    for ids in ["0000000000000000", "", "x"] {
        let (outcome, message, sent) = wake(&with_keys(ids), || Ok(Answer::Accepted)).await;
        assert_eq!(outcome, Outcome::Failed(Refusal::GateRefused));
        assert_eq!(message.as_deref(), Some("no key is left that pod web-0 accepts"));
        assert_eq!(sent.len(), 0, "{ids:?}");
    }
}

/// The gate that the ticket in this annotation opens, signed with the present key.
fn opens_its_gate(text: &Value) -> bool {
    let text: &[u8; TICKET_TEXT_BYTES] =
        text.as_str().and_then(|text| text.as_bytes().try_into().ok()).expect("a ticket");
    let gate = Identity {
        pod: TicketUid::parse("uid-web-0").unwrap(),
        set: TicketUid::parse(SET_UID).unwrap(),
        keys: &[ring().current.public()],
    };
    SignedTicket::from_text(text).is_some_and(|ticket| ticket.verify_at_any_time(&gate).is_ok())
}

#[tokio::test]
async fn a_cold_pod_gets_its_ticket_in_the_patch_that_changes_its_role_and_no_other_pod_does() {
    let known = json!({(keys::ANNOTATION_WAKE_KEYS): ring().current.id().to_string()});
    for (from, annotations, is_posted) in
        [(Role::Cold, &known, true), (Role::Hot, &known, false), (Role::Cold, &json!({}), false)]
    {
        let (client, server) = pair();
        let (log, serving) = server.serve(|_| (200, pod("web-0", ("primary", 18))));
        let action = Action::Convert { pod: pod_ref("web-0", 17), from, to: Role::Primary };
        let tried = take(&applier(&client), &with_annotations(annotations), &action).await;
        serving.abort();
        assert_eq!(tried.result.outcome, Outcome::Done);
        let log = log.lock().unwrap();
        let [patch] = &log[..] else { panic!("{log:?}") };
        let ticket = &patch.body["metadata"]["annotations"][keys::ANNOTATION_TICKET];
        assert_eq!(!ticket.is_null() && opens_its_gate(ticket), is_posted, "{from}: {ticket}");
    }
}

#[tokio::test]
async fn a_pod_whose_role_somebody_else_wrote_gets_its_ticket_with_the_first_one_that_is_sent() {
    let known = json!({(keys::ANNOTATION_WAKE_KEYS): ring().current.id().to_string()});
    let (client, server) = pair();
    let (log, serving) = server.serve(|_| (200, pod("web-0", ("primary", 18))));
    let (deliver, _) = sender(|| Ok(Answer::Refused(GateRefusal::Busy)));
    let applier = Applier::new(client, (clock(), deliver), gate_kit());
    let action = Action::Wake { pod: pod_ref("web-0", 17), address: [198, 18, 0, 1].into() };
    let tried = take(&applier, &with_annotations(&known), &action).await;
    serving.abort();
    assert_eq!(tried.result.outcome, Outcome::Failed(Refusal::GateRefused), "what the gate said");
    assert!(tried.written.is_some());
    let log = log.lock().unwrap();
    let [patch] = &log[..] else { panic!("{log:?}") };
    assert_eq!((patch.method.as_str(), &patch.body["metadata"]["resourceVersion"]), ("PATCH", &json!("17")));
    assert!(opens_its_gate(&patch.body["metadata"]["annotations"][keys::ANNOTATION_TICKET]));
}
