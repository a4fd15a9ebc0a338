//! Errors as text, for what has no field for a cause.

use std::error::Error;

/// The error with everything that caused it, on one line.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (**error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Link(&'static str, #[source] Option<Box<Link>>);

    #[test]
    fn every_cause_stands_behind_what_it_caused() {
        let error = Link(
            "read the keys",
            Some(Box::new(Link("open the file", Some(Box::new(Link("no room", None)))))),
        );
        assert_eq!(chain(&error), "read the keys: open the file: no room");
        assert_eq!(chain(&Link("no room", None)), "no room");
    }
}
