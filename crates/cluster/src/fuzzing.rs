//! Entry points of the fuzz targets: questions and answers of other processes as arbitrary bytes.

use margay_segment::SegmentId;

use crate::question::{Question, WRITE_BYTES_MAX, decode_mended, decode_state, encode_mended, encode_state};

/// A question that is understood is written again as the same bytes, and asks for no more than one question may.
pub fn store_question(bytes: &[u8]) {
    if let Some(question) = Question::decode(bytes) {
        assert_eq!(question.encode(), bytes, "a question has one form");
        assert!(question.what.bytes_behind() <= WRITE_BYTES_MAX, "the body is bounded by it");
    }
    if let Some((bad, left)) = decode_mended(bytes) {
        assert_eq!(encode_mended(bad, left), bytes, "it has one form");
    }
    if let Some(info) = decode_state(SegmentId(1), bytes) {
        let again = decode_state(SegmentId(1), &encode_state(&info));
        assert!(again.is_some_and(|again| (again.kind, again.len, again.open) == (info.kind, info.len, info.open)));
    }
}

/// Seeds that are real encodings: target, name, bytes.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let names =
        ["read", "verify", "state", "write", "write-pack", "seal", "remove", "punch", "file", "file-state", "mend"];
    let encoded = crate::question::examples().into_iter().map(crate::question::Question::encode);
    names.into_iter().zip(encoded).map(|(name, bytes)| ("store_question", name, bytes)).collect()
}
