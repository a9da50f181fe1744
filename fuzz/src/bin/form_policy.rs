//! Fuzz target: the policy of a browser's form.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_s3::fuzzing::form_policy(bytes));
