//! The record of a takeover as its active writes it into the Lease, for the operator and for people.
//!
//! ```text
//! {"epoch":4294967297,"cause":"ApplicationEnded","detected":0,"fenced":310,"lease":1250,"promoted":2410,"published":21770}
//! ```
//!
//! Spans in microseconds; what is not known yet is left out. No agent reads it.

use std::time::Duration;

use bps_protocol::{Cause, Epoch, TakeoverRecord};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Wire {
    epoch: u64,
    cause: String,
    detected: u32,
    fenced: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    promoted: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    published: Option<u32>,
}

/// The text of the annotation; `None` only if it cannot be put into words.
pub fn text(record: &TakeoverRecord) -> Option<String> {
    let TakeoverRecord { epoch, cause, detected, fenced, granted, promoted, published } = *record;
    let wire = Wire {
        epoch: epoch.into(),
        cause: cause.as_str().to_owned(),
        detected: microseconds(detected),
        fenced: microseconds(fenced),
        lease: granted.map(microseconds),
        promoted: promoted.map(microseconds),
        published: published.map(microseconds),
    };
    serde_json::to_string(&wire).ok()
}

/// Reads the annotation; `None`: it says nothing, as a later version or a person may have written it.
pub fn read(text: &str) -> Option<TakeoverRecord> {
    let Wire { epoch, cause, detected, fenced, lease, promoted, published } =
        serde_json::from_str(text).ok()?;
    let span = |microseconds: u32| Duration::from_micros(microseconds.into());
    Some(TakeoverRecord {
        epoch: Epoch::from(epoch),
        cause: Cause::parse(&cause)?,
        detected: span(detected),
        fenced: span(fenced),
        granted: lease.map(span),
        promoted: promoted.map(span),
        published: published.map(span),
    })
}

fn microseconds(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_is_what_the_document_shows() {
        let span = Duration::from_micros;
        let record = TakeoverRecord {
            epoch: Epoch { term: 1, sequence: 1 },
            cause: Cause::ApplicationEnded,
            detected: span(0),
            fenced: span(310),
            granted: Some(span(1_250)),
            promoted: None,
            published: None,
        };
        let expected =
            r#"{"epoch":4294967297,"cause":"ApplicationEnded","detected":0,"fenced":310,"lease":1250}"#;
        assert_eq!(text(&record).as_deref(), Some(expected));
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(
            (epoch, cause) in (any::<u64>(), 0..10_u64),
            (detected, fenced) in any::<(u32, u32)>(),
            rest in any::<[Option<u32>; 3]>(),
        ) {
            let span = |microseconds: u32| Duration::from_micros(microseconds.into());
            let [granted, promoted, published] = rest.map(|phase| phase.map(span));
            let (epoch, cause) = (Epoch::from(epoch), Cause::numbered(cause).unwrap());
            let (detected, fenced) = (span(detected), span(fenced));
            let record = TakeoverRecord { epoch, cause, detected, fenced, granted, promoted, published };
            prop_assert_eq!(read(&text(&record).unwrap()), Some(record));
        }

        #[test]
        fn any_other_text_says_nothing(text in ".{0,80}") {
            prop_assert_eq!(read(&text), None);
        }
    }
}
