//! Fuzz target: ranges, conditions, checksums, copy sources and metadata of a request.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_s3::fuzzing::request_headers(bytes));
