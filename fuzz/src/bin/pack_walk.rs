//! Fuzz target: a pack, walked for its runs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_segment::fuzzing::pack_walk(bytes));
