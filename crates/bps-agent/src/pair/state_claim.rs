//! Keeps which state directories a claim of the role calls in sync, and how its release takes that back.
//!
//! Pure. Each copy of a claim has the same text, even if the own directory has changed since the first copy.

use bps_protocol::{AgentId, Epoch, Write};
use bps_wire::level::Level;

use crate::replicate::notes::level_annotations;
use crate::store::Annotations;

/// The claim of the present tenure, or the claim that is under way.
#[derive(Debug, Default)]
pub(super) struct StateClaim {
    number: u64,
    epoch: Epoch,
    says: Annotations,
    /// Annotations of its release, as long as no application may have begun.
    undo: Annotations,
}

impl StateClaim {
    /// A claim by this write with these annotations; `before` is what the Lease said until then.
    pub(super) fn new(write: &Write, before: &Level, says: Option<Annotations>) -> Self {
        let (number, epoch) = (write.number, write.lease.epoch);
        let pods = write.lease.members.map(|member| Some(member).filter(|id| *id != AgentId::NOBODY));
        let undo = match (before, &says) {
            (Level::Only(before), Some(_)) => level_annotations(before, pods),
            (Level::Only(_) | Level::Unsaid | Level::Unreadable, _) => Annotations::new(),
        };
        Self { number, epoch, says: says.unwrap_or_default(), undo }
    }

    /// Whether this write is a copy of the claim.
    pub(super) fn is_of(&self, write: &Write) -> bool {
        self.number == write.number
    }

    /// The same claim after a former one; `base` is the epoch in the Lease. If it resumes a tenure that
    /// lapsed before its application began, its release takes back the former claim.
    pub(super) fn after(self, former: Self, base: Option<Epoch>) -> Self {
        let is_resumed = self.undo.is_empty() && base == Some(former.epoch);
        if is_resumed { Self { undo: former.undo, ..self } } else { self }
    }

    /// Notes that the application may begin: from then on the release takes nothing back.
    pub(super) fn finalize(&mut self) {
        self.undo.clear();
    }

    /// Annotations of this write: those of the claim, those of its release, or none.
    pub(super) fn says_in(&self, write: &Write) -> Annotations {
        if self.is_of(write) {
            self.says.clone()
        } else if write.lease.epoch == self.epoch && write.lease.holder.is_none() {
            self.undo.clone()
        } else {
            Annotations::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use bps_protocol::{Hold, Lease, Version};
    use bps_wire::level::DirectoryId;

    use super::*;

    #[test]
    fn each_copy_of_a_claim_says_the_same_and_only_its_release_takes_that_back() {
        let [own, other] = [1, 2].map(DirectoryId);
        let lease = Lease {
            epoch: Epoch { term: 4, sequence: 0 },
            holder: Some(AgentId(7)),
            members: [AgentId(7), AgentId(8)],
            pending: None,
            hold: Hold::Api,
            writes: 3,
        };
        let write = |number, lease| Write { number, base: Version(9), lease };
        let says = level_annotations(&[own].into(), [Some(AgentId(7)), None]);
        let before = Level::Only([own, other].into());
        let mut claim = StateClaim::new(&write(5, lease), &before, Some(says.clone()));
        let release = |number, lease| write(number, Lease { holder: None, ..lease });
        let undone = level_annotations(&[own, other].into(), [Some(AgentId(7)), Some(AgentId(8))]);
        assert_eq!(claim.says_in(&write(5, lease)), says);
        assert_eq!(claim.says_in(&release(6, lease)), undone);
        let delegated = Lease { epoch: Epoch { sequence: 1, ..lease.epoch }, ..lease };
        for other in [write(6, lease), release(7, delegated)] {
            assert_eq!(claim.says_in(&other), Annotations::new(), "{other:?}");
        }
        // The application was started.
        claim.finalize();
        assert_eq!(claim.says_in(&release(6, lease)), Annotations::new());
        let silent = || StateClaim::new(&write(8, lease), &before, None);
        assert_eq!(silent().says_in(&release(9, lease)), Annotations::new(), "it left no agent out");

        // A tenure that lapsed before it began anything is resumed by another claim.
        let epoch = Epoch { term: 3, sequence: 0 };
        let lapsed = || StateClaim::new(&write(7, Lease { epoch, ..lease }), &before, Some(says.clone()));
        let said = |base| silent().after(lapsed(), base).says_in(&release(9, lease));
        assert_eq!(
            [said(Some(epoch)), said(Some(lease.epoch)), said(None)],
            [undone, Annotations::new(), Annotations::new()]
        );
    }
}
