//! Fuzz target: tokens and keys of an identity provider, and tags of sessions.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_s3::fuzzing::identity_token(bytes));
