//! Fuzz target: an object that a statement of S3 Select runs over.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_select::fuzzing::object(bytes));
