//! Fuzz target: a record of the log.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_meta::fuzzing::log_record(bytes));
