//! Fuzz target: the XML of a request.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_s3::fuzzing::xml_document(bytes));
