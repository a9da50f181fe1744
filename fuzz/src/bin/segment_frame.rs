//! Fuzz target: headers, end marks and footers of segment files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| margay_segment::fuzzing::segment_frame(bytes));
