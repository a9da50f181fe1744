//! Fuzz target: the key of a row.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_volume::fuzzing::row_key(bytes));
