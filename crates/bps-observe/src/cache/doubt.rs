//! Lists that show so much less than is known that they are repeated before they are believed.
//!
//! An API server may answer so after a restore, or from a cache that it is still filling.

use super::{Cache, Kind};
use crate::store::Scope;

/// Least number of Pods whose common end a single list is not believed.
///
/// Source: fault case T035, an API server that answers with an empty list after a restore. A smaller cluster of Pods
/// may well end between two lists.
const DOUBTED_LOSS_MIN: usize = 10;

impl Cache {
    /// Whether a list that shows no Pod at all is to be repeated before it is believed; if so, it is dropped.
    pub(super) fn doubts_pods(&mut self, scope: &Scope) -> bool {
        let is_doubtful = self.pods.shows_nothing_of(scope) >= DOUBTED_LOSS_MIN;
        let is_doubted = self.doubts((Kind::Pods, scope), is_doubtful);
        if is_doubted {
            self.pods.drop_list(scope);
        }
        is_doubted
    }

    /// Whether a complete list is not believed yet: if it is doubtful and the one before it was believed.
    pub(super) fn doubts(&mut self, (kind, scope): (Kind, &Scope), is_doubtful: bool) -> bool {
        let list = (kind, scope.clone());
        if is_doubtful && self.doubted.insert(list.clone()) {
            return true;
        }
        self.doubted.remove(&list);
        false
    }
}
