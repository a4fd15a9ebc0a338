//! Fuzz target: see `batch` in `bps_agent::fuzzing`.
#![no_main]

use bps_agent::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::batch(bytes));
