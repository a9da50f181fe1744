//! Fuzz target: a statement of S3 Select.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_select::fuzzing::statement(bytes));
