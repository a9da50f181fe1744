//! Fuzz target: the log of a load.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_bench::fuzzing::load_log(bytes));
