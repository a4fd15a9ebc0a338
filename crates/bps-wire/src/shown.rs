//! The epoch that an object shows: the slice of a pair that of the active which it leads to, a Pod that of its last tenure.

use std::collections::BTreeMap;

use bps_api::keys::ANNOTATION_HA_EPOCH;
use bps_protocol::Epoch;

/// Text that is not an epoch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ANNOTATION_HA_EPOCH}: expected a decimal number, found {found:?}")]
pub struct NotAnEpoch {
    found: String,
}

/// Reads the annotation; `None` if there is none.
///
/// # Errors
/// Names the annotation and what was expected instead of its text.
pub fn read(annotations: &BTreeMap<String, String>) -> Result<Option<Epoch>, NotAnEpoch> {
    let Some(text) = annotations.get(ANNOTATION_HA_EPOCH) else { return Ok(None) };
    let number: u64 = text.parse().map_err(|_| NotAnEpoch { found: text.clone() })?;
    Ok(Some(Epoch::from(number)))
}

/// Value of the annotation.
pub fn text(epoch: Epoch) -> String {
    u64::from(epoch).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(ANNOTATION_HA_EPOCH.to_owned(), text.to_owned())])
    }

    #[test]
    fn an_epoch_is_read_as_it_was_written() {
        let epoch = Epoch { term: 3, sequence: 7 };
        assert_eq!(read(&annotations(&text(epoch))), Ok(Some(epoch)));
        assert_eq!(read(&BTreeMap::new()), Ok(None));
    }

    #[test]
    fn other_text_is_refused_with_what_is_expected() {
        for text in ["", "new", "-1", "3.7"] {
            let error = read(&annotations(text)).expect_err(text).to_string();
            assert_eq!(error, format!("{ANNOTATION_HA_EPOCH}: expected a decimal number, found {text:?}"));
        }
    }
}
