//! Fuzz target: a request's Version 2 signature, in its header or its query.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_s3::fuzzing::signature_version_2(bytes));
