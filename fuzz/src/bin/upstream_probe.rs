//! Fuzz target: answers of a far store to the probe of what it honours.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_upstream::fuzzing::probe(bytes));
