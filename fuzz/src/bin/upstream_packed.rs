//! Fuzz target: attributes of a far object in one header, and encoded words.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_upstream::fuzzing::packed_attributes(bytes));
