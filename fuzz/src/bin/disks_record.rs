//! Fuzz target: the list of disks, and the mark of one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_disks::fuzzing::record(bytes));
