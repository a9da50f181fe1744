//! Encodes events in AWS's event stream encoding (`vnd.amazon.eventstream`).
//!
//! Layout: length 4, length of headers 4, CRC-32 of these 4 | headers | payload | CRC-32 of all before 4; big-endian. A
//!         header is: length of its name 1, name, 7 for text, length of the text 2, text.

use bytes::{BufMut as _, BytesMut};
use crc_fast::CrcAlgorithm;

use crate::error::S3Error;
use crate::xml::write::Writer;

/// Maximum payload of one event, in bytes.
const PAYLOAD_BYTES_MAX: usize = 128 << 10;
const TEXT: u8 = 7;

/// Progress so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Bytes of the object that were read.
    pub scanned: u64,
    /// As `scanned`, decompressed.
    pub processed: u64,
    /// Bytes of the result.
    pub returned: u64,
}

pub(super) fn records(out: &mut BytesMut, bytes: &[u8]) {
    for payload in bytes.chunks(PAYLOAD_BYTES_MAX) {
        event(out, &[(":event-type", "Records"), (":content-type", "application/octet-stream")], payload);
    }
}

/// Keeps the connection alive while nothing is found.
pub(super) fn continuation(out: &mut BytesMut) {
    event(out, &[(":event-type", "Cont")], b"");
}

pub(super) fn progress(out: &mut BytesMut, counts: Counts) {
    event(out, &[(":event-type", "Progress"), (":content-type", "text/xml")], &document("Progress", counts));
}

pub(super) fn stats(out: &mut BytesMut, counts: Counts) {
    event(out, &[(":event-type", "Stats"), (":content-type", "text/xml")], &document("Stats", counts));
}

/// Without this event the response is incomplete.
pub(super) fn end(out: &mut BytesMut) {
    event(out, &[(":event-type", "End")], b"");
}

/// Reports an error after the response has begun.
pub(super) fn failure(out: &mut BytesMut, error: &S3Error) {
    tracing::debug!(%error, "a selection ended early");
    let text: String = error.message.chars().take(1024).collect();
    message(out, &[(":error-code", error.code.name()), (":error-message", &text), (":message-type", "error")], b"");
}

fn event(out: &mut BytesMut, headers: &[(&str, &str)], payload: &[u8]) {
    let mut all = vec![(":message-type", "event")];
    all.extend_from_slice(headers);
    message(out, &all, payload);
}

fn message(out: &mut BytesMut, headers: &[(&str, &str)], payload: &[u8]) {
    let start = out.len();
    let headers_len: usize = headers.iter().map(|(name, text)| 4 + name.len() + text.len()).sum();
    let len = 12 + headers_len + payload.len() + 4;
    let short = |len: usize| u32::try_from(len).expect("payload and headers are bounded");
    out.put_u32(short(len));
    out.put_u32(short(headers_len));
    out.put_u32(crc(&out[start..]));
    for (name, text) in headers {
        out.put_u8(u8::try_from(name.len()).expect("names of headers are short"));
        out.put_slice(name.as_bytes());
        out.put_u8(TEXT);
        out.put_u16(u16::try_from(text.len()).expect("texts of headers are cut"));
        out.put_slice(text.as_bytes());
    }
    out.put_slice(payload);
    out.put_u32(crc(&out[start..]));
}

fn crc(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes);
    u32::try_from(crc).expect("a CRC-32 has 32 bits")
}

fn document(name: &str, counts: Counts) -> BytesMut {
    let mut out = BytesMut::with_capacity(256);
    let mut writer = Writer::new(&mut out);
    writer.document();
    writer.open(name);
    writer.number("BytesScanned", counts.scanned);
    writer.number("BytesProcessed", counts.processed);
    writer.number("BytesReturned", counts.returned);
    writer.close(name);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_event_is_as_aws_writes_it() {
        let mut out = BytesMut::new();
        end(&mut out);
        // The example of the reference of SelectObjectContent.
        let head = [0, 0, 0, 0x38, 0, 0, 0, 0x28, 0xc1, 0xc6, 0x84, 0xd4];
        assert_eq!(out[..12], head);
        assert_eq!(out[12..].iter().position(|byte| *byte == b'e'), Some(3));
        assert_eq!(out.len(), 0x38);
        assert_eq!(out[0x34..], [0xcf, 0x97, 0xd3, 0x92]);
    }

    #[test]
    fn long_results_are_several_events() {
        let mut out = BytesMut::new();
        records(&mut out, &vec![b'x'; PAYLOAD_BYTES_MAX + 1]);
        let first = u32::from_be_bytes(out[..4].try_into().unwrap()) as usize;
        let second = u32::from_be_bytes(out[first..first + 4].try_into().unwrap()) as usize;
        assert_eq!(first + second, out.len());
        assert_eq!(first - second, PAYLOAD_BYTES_MAX - 1);
    }
}
