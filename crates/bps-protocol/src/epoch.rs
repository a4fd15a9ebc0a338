//! Orders tenures: the epoch is the fencing token that every output of an application carries.

use std::fmt;

/// Rank of a tenure, compared lexicographically.
///
/// A takeover through the Lease raises `term`, a delegation that bypasses it raises `sequence`. So a takeover outranks
/// every delegation of earlier terms, even those that were never written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// Raised by every takeover through the Lease; 0 before the first.
    pub term: u32,
    /// Raised by every delegation within a term.
    pub sequence: u32,
}

impl Epoch {
    /// Epoch of a takeover on a Lease with this epoch; `None` when all terms are used up.
    pub fn takeover(self) -> Option<Self> {
        Some(Self { term: self.term.checked_add(1)?, sequence: 0 })
    }

    /// Whether the tenure began by a delegation, from an agent that lived.
    pub fn is_delegated(self) -> bool {
        self.sequence > 0
    }

    /// Epoch that the holder of this one delegates; `None` when all sequence numbers are used up.
    pub fn delegation(self) -> Option<Self> {
        Some(Self { sequence: self.sequence.checked_add(1)?, ..self })
    }
}

/// The form on the wire: the order of the numbers is the order of the epochs.
impl From<Epoch> for u64 {
    fn from(epoch: Epoch) -> Self {
        Self::from(epoch.term) << 32 | Self::from(epoch.sequence)
    }
}

impl From<u64> for Epoch {
    fn from(wire: u64) -> Self {
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits are left");
        Self { term: half(wire >> 32), sequence: half(wire) }
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.term, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_keeps_every_epoch_and_their_order() {
        let epochs = [(0, 0), (0, u32::MAX), (1, 0), (1, 1), (u32::MAX, 0), (u32::MAX, u32::MAX)]
            .map(|(term, sequence)| Epoch { term, sequence });
        assert!(epochs.is_sorted());
        assert!(epochs.map(u64::from).is_sorted());
        assert_eq!(epochs.map(u64::from).map(Epoch::from), epochs);
    }

    #[test]
    fn numbers_that_are_used_up_give_no_epoch() {
        let last = Epoch { term: u32::MAX, sequence: u32::MAX };
        assert_eq!((last.takeover(), last.delegation()), (None, None));
    }

    #[test]
    fn a_delegation_is_known_by_its_epoch_and_a_takeover_is_none() {
        let takeover = Epoch { term: 1, sequence: 7 }.takeover();
        let both = [takeover, takeover.and_then(Epoch::delegation)];
        assert_eq!(both.map(|epoch| epoch.map(Epoch::is_delegated)), [Some(false), Some(true)]);
    }
}
