//! Sends tickets to cold gates.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use jiff::Timestamp;

use super::Answer;
use crate::api::keys::GATE_PORT;
use crate::manifests::GateSettings;
use crate::model::{Outcome, PodRef, Refusal};
use crate::observe::Observation;
use crate::wakeup::client;
use crate::wakeup::keys::{KeyRing, parse_annotation};
use crate::wakeup::protocol::{self, SignedTicket, TICKET_LIFETIME_SECONDS, Ticket};
use crate::wakeup::uid::Uid;

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

pub(super) async fn wake(
    kit: &GateKit,
    observation: &Observation,
    (pod, address): (&PodRef, IpAddr),
    now: Timestamp,
) -> Answer {
    let Some(ticket) = ticket(kit, observation, pod, now) else {
        return Answer::failed(Refusal::GateRefused, format!("no key is left that pod {} accepts", pod.name));
    };
    match client::wake(SocketAddr::new(address, GATE_PORT), &ticket, TICKET_DEADLINE).await {
        Ok(protocol::Answer::Accepted) => Answer { outcome: Outcome::Done, message: None, written: None },
        Ok(protocol::Answer::Refused(refusal)) => {
            Answer::failed(Refusal::GateRefused, format!("the gate answered {}", refusal.as_str()))
        }
        Err(error) => Answer::failed(Refusal::GateRefused, error.to_string()),
    }
}

fn ticket(kit: &GateKit, observation: &Observation, pod: &PodRef, now: Timestamp) -> Option<SignedTicket> {
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
