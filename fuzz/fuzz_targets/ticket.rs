//! Fuzz target: see `ticket` in `bps_wakeup::fuzzing`.
#![no_main]

use bps_wakeup::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::ticket(bytes));
