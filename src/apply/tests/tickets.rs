//! Tickets: whom they name, who signs them, and what the gate's answer comes to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bps_api::keys;
use bps_core::model::{Action, Outcome, PodName, PodRef, Refusal, Uid};
use bps_observe::{Cache, Observation, SetKey, Watched, observe};
use bps_testkit::mock_api::pair;
use bps_wakeup::client::Error;
use bps_wakeup::protocol::{Answer, Identity, Refusal as GateRefusal, SignedTicket};
use bps_wakeup::uid::Uid as TicketUid;
use futures::FutureExt as _;
use serde_json::json;

use super::take;
use crate::apply::testing::{NOW, SET_UID, clock, gate_kit, pod, ring, set, slim};
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

/// The set with a Pod whose gate knows these keys.
fn with_keys(ids: &str) -> Observation {
    let mut cache = Cache::default();
    set(&json!({})).seen(&mut cache, NOW);
    let mut cold = pod("web-0", ("hot", 17));
    cold["metadata"]["annotations"][keys::ANNOTATION_WAKE_KEYS] = json!(ids);
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
