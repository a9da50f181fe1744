//! Fuzz target: the keys that a change in PostgreSQL names.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_postgres::fuzzing::feed_keys(bytes));
