//! Fuzz target: the JSON of a policy.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_iam::fuzzing::policy(bytes));
