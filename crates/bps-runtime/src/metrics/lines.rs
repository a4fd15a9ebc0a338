//! Log lines that were never written.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;

use crate::telemetry::lines_dropped;

/// Counts them for the whole process, under this name.
#[derive(Clone, Copy, Debug)]
pub struct DroppedLines(pub &'static str);

impl Collector for DroppedLines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let dropped = ConstCounter::new(lines_dropped());
        let help = "Log lines that were dropped because nobody read those before";
        dropped.encode(encoder.encode_descriptor(self.0, help, None, dropped.metric_type())?)
    }
}
