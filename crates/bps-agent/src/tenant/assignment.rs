//! Decides whether the application belongs to a tenure or is a standby, whether it may run, and its
//! environment.
//!
//! Pure.

use std::net::IpAddr;

use bps_api::keys;
use bps_protocol::Epoch;

use super::Posture;
use crate::hook::Occasion;
use crate::tree::Environment;

/// The part of the application in its pair.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    posture: Posture,
    /// The pair that the agent belongs to, or did last.
    pair: Option<String>,
    /// From the beginning of a tenure until nothing of its application is left.
    is_tenure: bool,
    /// The application stays ended as standby.
    is_retired: bool,
    /// The application must not be started yet.
    is_held_back: bool,
}

impl Assignment {
    /// Joins this pair.
    pub(super) fn join(&mut self, pair: String) {
        self.pair = Some(pair);
    }

    /// Begins a tenure.
    pub(super) fn begin(&mut self, posture: Posture) {
        (self.posture, self.is_tenure, self.is_retired) = (posture, true, false);
    }

    /// Begins a tenure that is over already.
    pub(super) fn miss(&mut self, posture: Posture) {
        (self.posture, self.is_tenure) = (posture, true);
    }

    /// Makes the application a standby; no tenure may be under way.
    pub(super) fn stand_by(&mut self, posture: Posture) {
        self.posture = posture;
    }

    /// Notes the address of the other Pod. Returns whether it is a new one that a standby has to follow.
    pub(super) fn follow(&mut self, peer: Option<IpAddr>) -> bool {
        !self.is_tenure && peer.is_some() && std::mem::replace(&mut self.posture.peer, peer) != peer
    }

    /// Ends the tenure: it has passed to the peer, or no process of it is left. Returns whether there was
    /// one.
    pub(super) fn end_tenure(&mut self) -> bool {
        std::mem::take(&mut self.is_tenure)
    }

    /// The epoch of the tenure, if there is one.
    pub(super) fn tenure(&self) -> Option<Epoch> {
        self.is_tenure.then_some(self.posture.epoch)
    }

    /// Whether there is a tenure.
    pub(super) fn is_tenure(&self) -> bool {
        self.is_tenure
    }

    /// The epoch of the last tenure, or for a standby the highest that was known.
    pub(super) fn epoch(&self) -> Epoch {
        self.posture.epoch
    }
}

/// Whether the application may run.
impl Assignment {
    /// Keeps the application from running as standby until [`Assignment::enlist`] or the next tenure. Returns
    /// whether it has to be ended: not in a tenure, which goes on, and not if it was ended before.
    pub(super) fn retire(&mut self) -> bool {
        !std::mem::replace(&mut self.is_retired, true) && !self.is_tenure
    }

    /// Lets the application run as standby again.
    pub(super) fn enlist(&mut self) {
        self.is_retired = false;
    }

    /// Whether the application stays ended as standby.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired
    }

    /// Sets whether the application must not be started yet.
    pub(super) fn hold_back(&mut self, is_held_back: bool) {
        self.is_held_back = is_held_back;
    }

    /// Whether the application must not be started yet.
    pub(super) fn is_held_back(&self) -> bool {
        self.is_held_back
    }
}

/// The environment.
impl Assignment {
    /// The occasion of a start.
    pub(super) fn occasion(&self) -> Occasion {
        if self.is_tenure { Occasion::Active } else { Occasion::Standby }
    }

    /// Variables that tell the application or a hook about the pair.
    pub(super) fn environment(&self, occasion: Occasion) -> Environment {
        let Posture { epoch, peer } = self.posture;
        let role = match occasion {
            Occasion::Active => keys::HA_ROLE_ACTIVE,
            Occasion::Standby | Occasion::Fence => keys::HA_ROLE_STANDBY,
        };
        let mut environment = Environment::from([
            (keys::ENV_HA_EPOCH, u64::from(epoch).to_string()),
            (keys::ENV_HA_ROLE, role.to_owned()),
        ]);
        environment.extend(self.pair.clone().map(|pair| (keys::ENV_HA_PAIR, pair)));
        environment.extend(peer.map(|peer| (keys::ENV_HA_PEER, peer.to_string())));
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch { term: 1, sequence: 0 };

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn posture(last: u8) -> Posture {
        Posture { epoch: EPOCH, peer: Some(address(last)) }
    }

    #[test]
    fn a_tenure_lasts_until_it_is_ended_and_is_ended_once() {
        let mut assignment = Assignment::default();
        let seen = |assignment: &Assignment| (assignment.tenure(), assignment.occasion());
        assert_eq!(seen(&assignment), (None, Occasion::Standby));
        for begin in [Assignment::begin, Assignment::miss] {
            begin(&mut assignment, posture(1));
            assert_eq!(seen(&assignment), (Some(EPOCH), Occasion::Active));
            assert_eq!([assignment.end_tenure(), assignment.end_tenure()], [true, false]);
            assert_eq!((seen(&assignment), assignment.epoch()), ((None, Occasion::Standby), EPOCH));
        }
    }

    #[test]
    fn only_a_standby_that_was_not_told_before_ends_because_it_retires() {
        let mut assignment = Assignment::default();
        assert_eq!([assignment.retire(), assignment.retire()], [true, false]);
        assignment.enlist();
        assert!(!assignment.is_retired() && assignment.retire());
        assignment.begin(posture(1));
        assert!(!assignment.is_retired(), "it is needed");
        assert!(!assignment.retire() && assignment.is_retired(), "once its tenure has ended");
    }

    #[test]
    fn a_standby_is_told_each_new_address_of_its_peer_once() {
        let mut assignment = Assignment::default();
        assignment.stand_by(posture(1));
        let told = [Some(1), Some(2), Some(2), None].map(|last| assignment.follow(last.map(address)));
        assert_eq!(told, [false, true, false, false]);
        assignment.begin(posture(2));
        assert!(!assignment.follow(Some(address(3))));
        assert_eq!(assignment.posture, posture(2), "the next posture brings what has changed in a tenure");
    }

    #[test]
    fn an_application_is_told_what_is_known_of_its_pair() {
        let mut assignment = Assignment::default();
        let told = |assignment: &Assignment, occasion| {
            let environment = assignment.environment(occasion);
            let texts = environment.into_iter().map(|(name, text)| format!("{name}={text}"));
            texts.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told(&assignment, Occasion::Standby), "HA_EPOCH=0 HA_ROLE=standby");
        assignment.join("web-0".to_owned());
        assignment.begin(posture(1));
        let beginning = "HA_EPOCH=4294967296 HA_PAIR=web-0 HA_PEER=192.0.2.1";
        for (occasion, role) in [(Occasion::Active, "active"), (Occasion::Fence, "standby")] {
            assert_eq!(told(&assignment, occasion), format!("{beginning} HA_ROLE={role}"));
        }
    }
}
