//! Fuzz target: what another process of the volume asks a store, and its answer about a segment.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_cluster::fuzzing::store_question(bytes));
