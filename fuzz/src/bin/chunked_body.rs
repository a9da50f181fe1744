//! Fuzz target: an aws-chunked body.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_s3::fuzzing::chunked_body(bytes));
