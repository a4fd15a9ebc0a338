//! One measured request, and its line of CSV.
//!
//! Decides nothing about outages; see `outage`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// First line of a file of samples.
pub const CSV_HEADER: &str = "start_ns,end_ns,outcome,pod";

/// How one request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Status 200 with the name of a Pod.
    Ok,
    /// The connection was refused: nobody listens, or a Service without endpoints rejected it.
    Refused,
    /// The connection was accepted and then cut before a whole answer.
    Reset,
    /// No whole answer within the deadline.
    Timeout,
    /// No route to the address, or the network refused the packet.
    Unreachable,
    /// A whole answer, but not status 200 with a Pod's name.
    Malformed,
}

impl Outcome {
    /// The word in the CSV file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Refused => "refused",
            Outcome::Reset => "reset",
            Outcome::Timeout => "timeout",
            Outcome::Unreachable => "unreachable",
            Outcome::Malformed => "malformed",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Outcome {
    type Err = ParseSampleError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        [
            Outcome::Ok,
            Outcome::Refused,
            Outcome::Reset,
            Outcome::Timeout,
            Outcome::Unreachable,
            Outcome::Malformed,
        ]
        .into_iter()
        .find(|outcome| outcome.as_str() == word)
        .ok_or(ParseSampleError)
    }
}

/// A line that is not a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a line of the form {CSV_HEADER}")]
pub struct ParseSampleError;

/// One request of the load client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// When the client began to connect. Unit: nanoseconds of `CLOCK_REALTIME`.
    pub start_ns: u64,
    /// When the outcome was known. Unit: nanoseconds of `CLOCK_REALTIME`.
    pub end_ns: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The Pod that answered; empty unless the outcome is [`Outcome::Ok`].
    pub pod: String,
}

impl Sample {
    /// Whether the request was answered.
    pub fn is_ok(&self) -> bool {
        self.outcome == Outcome::Ok
    }

    /// From the start of the request until its end.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(self.start_ns))
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{},{},{},{}", self.start_ns, self.end_ns, self.outcome, self.pod)
    }
}

impl FromStr for Sample {
    type Err = ParseSampleError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut fields = line.trim_end().split(',');
        let mut next = || fields.next().ok_or(ParseSampleError);
        let sample = Sample {
            start_ns: next()?.parse().map_err(|_| ParseSampleError)?,
            end_ns: next()?.parse().map_err(|_| ParseSampleError)?,
            outcome: next()?.parse()?,
            pod: next()?.to_owned(),
        };
        if fields.next().is_some() { Err(ParseSampleError) } else { Ok(sample) }
    }
}

/// Reads a file that the client wrote; the header, empty lines and the summary (`#`) are skipped.
///
/// # Errors
/// [`ParseSampleError`] at the first other line that is not a sample.
pub fn parse_csv(text: &str) -> Result<Vec<Sample>, ParseSampleError> {
    text.lines()
        .filter(|line| !line.is_empty() && *line != CSV_HEADER && !line.starts_with('#'))
        .map(str::parse)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_samples_reads_back_as_it_was_written() {
        let samples = vec![
            Sample { start_ns: 1, end_ns: 2, outcome: Outcome::Ok, pod: "web-1".to_owned() },
            Sample { start_ns: 3, end_ns: 4, outcome: Outcome::Unreachable, pod: String::new() },
        ];
        let text = format!("{CSV_HEADER}\n{}\n{}\n# requests=2\n", samples[0], samples[1]);
        assert_eq!(parse_csv(&text), Ok(samples));
    }

    #[test]
    fn a_line_with_an_unknown_outcome_or_a_wrong_number_of_fields_is_refused() {
        for line in ["1,2,fine,web-1", "1,2,ok", "1,2,ok,web-1,5", "x,2,ok,web-1"] {
            assert_eq!(parse_csv(line), Err(ParseSampleError), "{line}");
        }
    }
}
