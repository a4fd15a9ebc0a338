//! Shows the bond with the application to the lifelines, but only while the application belongs to a tenure.
//!
//! A certificate proves that a tenure has ended: the end of a standby must not be taken for one.

use std::sync::{Arc, Weak};

use bps_protocol::Epoch;
use tokio::sync::watch;

use crate::lifeline::Tenancy;
use crate::lifeline::bond::Bond;

/// The bond, and the tenure as which the lifelines know it.
#[derive(Debug)]
pub(super) struct Ties {
    bond: Option<Arc<Bond>>,
    /// The bond of the tenure with this epoch whose application has ended.
    former: Option<(Epoch, Weak<Bond>)>,
    shown: watch::Sender<Tenancy>,
}

impl Default for Ties {
    fn default() -> Self {
        Self { bond: None, former: None, shown: watch::Sender::new(None) }
    }
}

impl Ties {
    /// The bond of a tenure, as it changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<Tenancy> {
        self.shown.subscribe()
    }

    /// Keeps the bond of an application that was just started; without one there is no certificate of it.
    pub(super) fn tie(&mut self, bond: Option<Bond>) {
        self.bond = bond.map(Arc::new);
    }

    /// Forgets the bond of an application that has ended. Call [`Ties::show`] then, unless its tenure had
    /// passed to the peer.
    pub(super) fn untie(&mut self) {
        let epoch = self.shown.borrow().as_ref().map(|(epoch, _)| *epoch);
        self.former = epoch.zip(self.bond.take()).map(|(epoch, bond)| (epoch, Arc::downgrade(&bond)));
    }

    /// Whether an application may be started in this tenure. If an earlier one has ended in it, its lifeline must be void first: else
    /// the end of that lifeline, and then of this process, would prove that the tenure has ended, while the new application lives.
    pub(super) fn may_tie(&self, tenure: Option<Epoch>) -> bool {
        // The listener says that it is void before it drops its last copy.
        let is_void = |bond: &Weak<Bond>| bond.strong_count() == 0;
        self.former.as_ref().is_none_or(|(epoch, bond)| Some(*epoch) != tenure || is_void(bond))
    }

    /// Shows the bond as that of the tenure with this epoch; `None`: there is no tenure, and no bond is
    /// shown.
    pub(super) fn show(&self, tenure: Option<Epoch>) {
        self.shown.send_replace(tenure.zip(self.bond.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tenure_gets_another_application_only_once_the_lifeline_of_the_former_one_is_void() {
        let epoch = Epoch { term: 1, sequence: 0 };
        let mut ties = Ties::default();
        let mut bonds = ties.subscribe();
        assert!(ties.may_tie(Some(epoch)), "it is the first one");
        let (bond, _inherited) = Bond::new().unwrap();
        ties.tie(Some(bond));
        ties.show(Some(epoch));
        let heard = bonds.borrow_and_update().clone();

        ties.untie();
        ties.show(None);
        let later = Epoch { term: 2, ..epoch };
        assert_eq!([Some(epoch), Some(later), None].map(|tenure| ties.may_tie(tenure)), [false, true, true]);
        drop(heard);
        assert!(ties.may_tie(Some(epoch)));

        // A standby has no lifeline.
        let (bond, _inherited) = Bond::new().unwrap();
        ties.tie(Some(bond));
        ties.untie();
        assert!(ties.may_tie(Some(epoch)));
    }

    #[tokio::test]
    async fn a_bond_is_shown_in_a_tenure_only_and_with_its_epoch() {
        let epoch = Epoch { term: 1, sequence: 0 };
        let mut ties = Ties::default();
        let bonds = ties.subscribe();
        let shown = || bonds.borrow().as_ref().map(|(epoch, _)| *epoch);
        ties.show(Some(epoch));
        assert_eq!(shown(), None, "there is no bond");

        let (bond, _inherited) = Bond::new().unwrap();
        ties.tie(Some(bond));
        ties.show(None);
        assert_eq!(shown(), None, "a standby");
        ties.show(Some(epoch));
        assert_eq!(shown(), Some(epoch));
        ties.untie();
        ties.show(Some(epoch));
        assert_eq!(shown(), None);
    }
}
