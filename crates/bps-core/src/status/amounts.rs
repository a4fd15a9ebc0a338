//! How often it is told how much of the replicated state standbys lack.
//!
//! Each active tells that every 10 s while it changes, and one object tells it of up to 1,000 pairs: each change for itself would
//! have that whole object written a hundred times a second.

use std::time::Duration;

use bps_api::{HAGroupStatus, PairStatus};

/// How often amounts alone are told. 10 s: as often as an active tells them of its pair.
pub const AMOUNTS_EVERY: Duration = Duration::from_secs(10);

/// Whether two statuses differ, and only in how much standbys lack: not in whether they lack something, or why.
pub fn differ_in_amounts_alone(one: &HAGroupStatus, other: &HAGroupStatus) -> bool {
    let is_similar = |(one, other): (&PairStatus, &PairStatus)| {
        let mut same = other.clone();
        if let (Some(lag), Some(told)) = (&mut same.lag, &one.lag) {
            (lag.entries, lag.bytes) = (told.entries, told.bytes);
        }
        *one == same
    };
    let are_pairs_similar =
        one.pairs.len() == other.pairs.len() && one.pairs.iter().zip(&other.pairs).all(is_similar);
    one != other
        && are_pairs_similar
        && HAGroupStatus { pairs: Vec::new(), ..one.clone() }
            == HAGroupStatus { pairs: Vec::new(), ..other.clone() }
}

#[cfg(test)]
mod tests {
    use bps_api::StateLag;
    use serde_json::json;

    use super::*;

    fn status(entries: i64, reason: Option<&str>) -> HAGroupStatus {
        let lag = json!({"entries": entries, "bytes": 10 * entries, "since": "2026-01-01T00:00:00Z", "reason": reason});
        let lag: Option<StateLag> = (entries > 0).then(|| serde_json::from_value(lag).expect("a lag"));
        let pair =
            |number: u32, lag| PairStatus { name: format!("web-{number}"), lag, ..PairStatus::default() };
        HAGroupStatus { pairs: vec![pair(0, None), pair(1, lag)], ..HAGroupStatus::default() }
    }

    #[test]
    fn amounts_are_all_that_may_wait() {
        let before = status(7, None);
        assert!(differ_in_amounts_alone(&before, &status(9, None)));
        let silent = HAGroupStatus { state: "StandbySilent".to_owned(), ..status(9, None) };
        let fewer = HAGroupStatus { pairs: status(9, None).pairs[..1].to_vec(), ..HAGroupStatus::default() };
        let mut others = status(9, None);
        others.pairs[0].active = "web-7".to_owned();
        for after in [before.clone(), status(0, None), status(7, Some("StandbyFull")), silent, fewer, others]
        {
            assert!(!differ_in_amounts_alone(&before, &after), "{after:?}");
        }
    }
}
