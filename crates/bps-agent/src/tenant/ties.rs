//! Shows the bond with the application to the lifelines, but only while the application belongs to a tenure.
//!
//! A certificate proves that a tenure has ended: the end of a standby must not be taken for one.

use std::sync::Arc;

use bps_protocol::Epoch;
use tokio::sync::watch;

use crate::lifeline::Tenancy;
use crate::lifeline::bond::Bond;

/// The bond, and the tenure as which the lifelines know it.
#[derive(Debug)]
pub(super) struct Ties {
    bond: Option<Arc<Bond>>,
    shown: watch::Sender<Tenancy>,
}

impl Default for Ties {
    fn default() -> Self {
        Self { bond: None, shown: watch::Sender::new(None) }
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
        self.bond = None;
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
