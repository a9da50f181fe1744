//! Fuzz target: headers of a far object, as attributes of a file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_upstream::fuzzing::object_headers(bytes));
