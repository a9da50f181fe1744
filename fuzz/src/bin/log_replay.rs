//! Fuzz target: a log of two files, replayed over a small tree.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_meta::fuzzing::log_replay(bytes));
