//! Fuzz target: see `key` in `bps_wakeup::fuzzing`.
#![no_main]

use bps_wakeup::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::key(bytes));
