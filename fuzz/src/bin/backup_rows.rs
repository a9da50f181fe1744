//! Fuzz target: the rows of a backup.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_volume::fuzzing::backup_rows(bytes));
