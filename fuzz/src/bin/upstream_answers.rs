//! Fuzz target: answers of a far store to each request of a mount.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_client::fuzzing::answers(bytes));
