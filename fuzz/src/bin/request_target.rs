//! Fuzz target: a request's address, query and continuation token.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_s3::fuzzing::request_target(bytes));
