//! Fuzz target: a dump.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_volume::fuzzing::dump(bytes));
