//! Fuzz target: listings, errors and answers to uploads of a far store.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_client::fuzzing::documents(bytes));
