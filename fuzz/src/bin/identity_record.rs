//! Fuzz target: a stored record of users, groups, roles, policies, keys.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_iam::fuzzing::identity_record(bytes));
