//! Fuzz target: what a signed token of an identity provider claims.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_s3::fuzzing::identity_claims(bytes));
