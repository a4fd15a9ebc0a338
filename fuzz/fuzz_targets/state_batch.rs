//! Fuzz target: see `batch` in `state_entries.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../state_entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::batch(bytes));
