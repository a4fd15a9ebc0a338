//! Sends tickets to cold gates.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bps_api::keys::GATE_PORT;
use bps_core::manifests::GateSettings;
use bps_core::model::{Outcome, PodRef, Refusal};
use bps_observe::Observation;
use bps_runtime::error::chain;
use bps_wakeup::client;
use bps_wakeup::protocol::{self, SignedTicket, TICKET_LIFETIME_SECONDS, Ticket};
use bps_wakeup::uid::Uid;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::Answer;
use crate::tickets::keys::{KeyRing, parse_annotation};

/// Time for one ticket until its answer: an accepted one takes about a millisecond, and another is sent later.
const TICKET_DEADLINE: Duration = Duration::from_secs(1);

/// What cold Pods are made with and woken by.
#[derive(Clone, Debug)]
pub struct GateKit {
    /// Keys that sign tickets.
    pub ring: KeyRing,
    /// Image and public keys of new gates.
    pub settings: GateSettings,
}

/// Hands a ticket to a gate and brings its answer, all within a second or so.
pub type TicketSender = Arc<
    dyn Fn(SocketAddr, SignedTicket) -> BoxFuture<'static, Result<protocol::Answer, client::Error>>
        + Send
        + Sync,
>;

/// Sends tickets over TCP.
pub fn send_by_tcp() -> TicketSender {
    Arc::new(|address, ticket| async move { client::wake(address, &ticket, TICKET_DEADLINE).await }.boxed())
}

pub(super) async fn hand_over(send: &TicketSender, ticket: SignedTicket, address: IpAddr) -> Answer {
    match send(SocketAddr::new(address, GATE_PORT), ticket).await {
        Ok(protocol::Answer::Accepted) => Answer { outcome: Outcome::Done, message: None, written: None },
        Ok(protocol::Answer::Refused(refusal)) => {
            Answer::failed(Refusal::GateRefused, format!("the gate answered {}", refusal.as_str()))
        }
        Err(error) => Answer::failed(Refusal::GateRefused, chain(&error)),
    }
}

/// A ticket for this Pod, or the answer that no key is left for it.
pub(super) fn ticket(
    kit: &GateKit,
    observation: &Observation,
    pod: &PodRef,
    now: Timestamp,
) -> Result<SignedTicket, Answer> {
    signed(kit, observation, pod, now).ok_or_else(|| {
        Answer::failed(Refusal::GateRefused, format!("no key is left that pod {} accepts", pod.name))
    })
}

fn signed(kit: &GateKit, observation: &Observation, pod: &PodRef, now: Timestamp) -> Option<SignedTicket> {
    let known = parse_annotation(observation.wake_keys.get(&pod.uid)?).ok()?;
    let key = kit.ring.signing_key_for(&known)?;
    let ticket = Ticket {
        pod: Uid::parse(&pod.uid.0).ok()?,
        set: Uid::parse(observation.set.metadata.uid.as_deref()?).ok()?,
        epoch: u64::try_from(now.as_millisecond()).ok()?,
        expiry: u64::try_from(now.as_second()).ok()? + TICKET_LIFETIME_SECONDS,
        key: key.id(),
    };
    Some(ticket.sign(key))
}
