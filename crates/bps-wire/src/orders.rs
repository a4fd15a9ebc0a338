//! What people and the operator ask of the members of a pair, by annotations of its Lease.
//!
//! No part of what the protocol compares and swaps: an agent that writes the Lease leaves them as they are.

use std::collections::{BTreeMap, BTreeSet};

use bps_api::{HandoverOrder, keys};
use bps_protocol::{AgentId, Epoch};

use super::uid::parse_uid;

/// What one version of the Lease asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// The tenure that shall end by a handover; it means nothing to any other one.
    pub switch_over: Option<Epoch>,
    /// Who shall not act.
    pub fenced: BTreeSet<AgentId>,
    /// Whether the application may outlast a planned handover.
    pub handover: HandoverOrder,
    /// Annotations of which something cannot be read, and therefore asks nothing.
    pub unreadable: BTreeSet<&'static str>,
}

impl Orders {
    /// Reads them. Any text is fine.
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let mut orders = Self::default();
        if let Some(text) = annotations.get(keys::ANNOTATION_HA_SWITCH_OVER) {
            match text.parse::<u64>() {
                Ok(epoch) => orders.switch_over = Some(Epoch::from(epoch)),
                Err(_) => drop(orders.unreadable.insert(keys::ANNOTATION_HA_SWITCH_OVER)),
            }
        }
        if let Some(text) = annotations.get(keys::ANNOTATION_HA_HANDOVER) {
            match HandoverOrder::parse(text) {
                Some(handover) => orders.handover = handover,
                None => drop(orders.unreadable.insert(keys::ANNOTATION_HA_HANDOVER)),
            }
        }
        let fenced = annotations.get(keys::ANNOTATION_HA_FENCED).map_or("", String::as_str);
        for uid in fenced.split(',').map(str::trim).filter(|uid| !uid.is_empty()) {
            match parse_uid(uid) {
                Ok(uid) => drop(orders.fenced.insert(AgentId(uid))),
                Err(_) => drop(orders.unreadable.insert(keys::ANNOTATION_HA_FENCED)),
            }
        }
        orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::uid::format_uid;

    fn read(switch_over: &str, fenced: &str) -> Orders {
        let annotation = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Orders::read(&BTreeMap::from([
            annotation(keys::ANNOTATION_HA_SWITCH_OVER, switch_over),
            annotation(keys::ANNOTATION_HA_FENCED, fenced),
        ]))
    }

    #[test]
    fn a_tenure_and_a_list_of_uids_are_orders() {
        let fenced = format!("{}, {}", format_uid(1), format_uid(2));
        let expected = Orders {
            switch_over: Some(Epoch { term: 1, sequence: 2 }),
            fenced: BTreeSet::from([AgentId(1), AgentId(2)]),
            handover: HandoverOrder::BreakBeforeMake,
            unreadable: BTreeSet::new(),
        };
        assert_eq!(read("4294967298", &fenced), expected);
        assert_eq!(Orders::read(&BTreeMap::new()), Orders::default());
        assert_eq!(read("1", "").fenced, BTreeSet::new());
    }

    #[test]
    fn an_application_may_outlast_a_handover_only_if_that_is_said_in_so_many_words() {
        let read = |word: &str| {
            Orders::read(&BTreeMap::from([(keys::ANNOTATION_HA_HANDOVER.to_owned(), word.to_owned())]))
        };
        let said = Orders { handover: HandoverOrder::MakeBeforeBreak, ..Orders::default() };
        assert_eq!(read("MakeBeforeBreak"), said);
        assert_eq!(read("BreakBeforeMake"), Orders::default());
        let unreadable = BTreeSet::from([keys::ANNOTATION_HA_HANDOVER]);
        assert_eq!(read("make-before-break"), Orders { unreadable, ..Orders::default() });
    }

    #[test]
    fn what_cannot_be_read_asks_nothing_and_spoils_nothing_else() {
        let orders = read("now", &format!("web-0,{}", format_uid(2)));
        let expected = Orders {
            switch_over: None,
            fenced: BTreeSet::from([AgentId(2)]),
            handover: HandoverOrder::BreakBeforeMake,
            unreadable: BTreeSet::from([keys::ANNOTATION_HA_SWITCH_OVER, keys::ANNOTATION_HA_FENCED]),
        };
        assert_eq!(orders, expected);
    }
}
