//! Fuzz target: when a certificate ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_listener::fuzzing::certificate(bytes));
