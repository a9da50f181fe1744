//! One commit as bytes in the log.
//!
//! Why:        replay must tell a whole record from a torn or misplaced one without trusting anything.
//! Layout:     see docs/format/log.md; all integers little-endian.
//!               0  crc32c of bytes 4..32 and the body, continued from the crc of (segment id, offset, nonce)
//!               4  body bytes (u32)     8  payload bytes (u32)    12  crc32c of the payload (u32)
//!              16  sequence number (u64)                          24  writes in the body (u32)   28  durable before (u32)
//!              32  body: per write a tag byte, key length (u16), key, then by tag: put: value length (u32), value;
//!                  delete: nothing; add: i64; max: u64; a counter that is set is a put
//!                  payload, then zeros up to a multiple of 8
//! Invariants: R1 a record read at another place, or after a torn write, does not decode.
//!             R2 what a record says was durable before it was durable before its first byte was written.
//! Not here:   files and order of records (log, replay).

use super::log_header::LogId;
use crate::{Cursor, Write};

pub(super) const HEADER_BYTES: usize = 32;
/// Alignment of records, in bytes.
pub(super) const ALIGN_BYTES: usize = 8;
/// Maximum body size accepted by a reader, in bytes.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;

/// Maximum size of a record, in bytes.
pub(super) const RECORD_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX + crate::PAYLOAD_BYTES_MAX + ALIGN_BYTES;

const TAG_PUT: u8 = 1;
const TAG_DELETE: u8 = 2;
const TAG_ADD: u8 = 3;
const TAG_MAX: u8 = 4;
/// Body of the mark that a clean stop writes: no commit.
const END_BODY: &[u8; 8] = b"the end\n";

pub(super) fn body_bytes(writes: &[Write]) -> usize {
    writes
        .iter()
        .map(|write| {
            3 + write.key().len()
                + match write {
                    Write::Put { value, .. } => 4 + value.len(),
                    Write::Delete { .. } => 0,
                    Write::Set { value, .. } => 4 + value.len(),
                    Write::Add { .. } | Write::Max { .. } => 8,
                }
        })
        .sum()
}

/// Size of the record in the log, in bytes.
pub(super) fn record_bytes(writes: &[Write], payload: usize) -> usize {
    (HEADER_BYTES + body_bytes(writes) + payload).next_multiple_of(ALIGN_BYTES)
}

pub(super) fn seed(log: LogId, offset: u64) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&log.segment.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    let crc = crc32c::crc32c(&place);
    if log.nonce == 0 { crc } else { crc32c::crc32c_append(crc, &log.nonce.to_le_bytes()) }
}

/// Writes into the record at the beginning of `bytes`, located at `offset`, that the log was durable up to `durable`.
pub(super) fn claim(bytes: &mut [u8], log: LogId, offset: u64, durable: u64) {
    let durable = u32::try_from(durable / ALIGN_BYTES as u64).expect("log files are shorter than 32 GiB");
    bytes[28..32].copy_from_slice(&durable.to_le_bytes());
    let body = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")) as usize;
    let crc = crc32c::crc32c_append(seed(log, offset), &bytes[4..HEADER_BYTES + body]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

/// The mark of a clean stop after `last`, located at `offset`: everything before it is durable.
pub(super) fn end_mark(log: LogId, offset: u64, last: Cursor) -> Vec<u8> {
    let mut mark = vec![0; HEADER_BYTES];
    mark[4..8].copy_from_slice(&(END_BODY.len() as u32).to_le_bytes());
    mark[16..24].copy_from_slice(&last.0.max(1).to_le_bytes());
    mark.extend_from_slice(END_BODY);
    claim(&mut mark, log, offset, offset);
    mark
}

/// Appends the record, whose location will be `offset` of the log.
pub(super) fn encode(out: &mut Vec<u8>, log: LogId, offset: u64, seq: Cursor, writes: &[Write], payload: &[u8]) {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    for write in writes {
        let tag = match write {
            Write::Put { .. } | Write::Set { .. } => TAG_PUT,
            Write::Delete { .. } => TAG_DELETE,
            Write::Add { .. } => TAG_ADD,
            Write::Max { .. } => TAG_MAX,
        };
        let key = write.key();
        out.push(tag);
        out.extend_from_slice(&u16::try_from(key.len()).expect("keys are limited before").to_le_bytes());
        out.extend_from_slice(key);
        let mut put = |value: &[u8]| {
            out.extend_from_slice(&u32::try_from(value.len()).expect("values are limited before").to_le_bytes());
            out.extend_from_slice(value);
        };
        match write {
            Write::Put { value, .. } => put(value),
            Write::Set { value, .. } => put(value),
            Write::Delete { .. } => {}
            Write::Add { delta, .. } => out.extend_from_slice(&delta.to_le_bytes()),
            Write::Max { at_least, .. } => out.extend_from_slice(&at_least.to_le_bytes()),
        }
    }
    let body = out.len() - start - HEADER_BYTES;
    assert!(body <= BODY_BYTES_MAX, "a batch is limited before it is encoded");
    let header = &mut out[start..start + HEADER_BYTES];
    header[4..8].copy_from_slice(&(body as u32).to_le_bytes());
    header[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[12..16].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    header[16..24].copy_from_slice(&seq.0.to_le_bytes());
    header[24..28].copy_from_slice(&(writes.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(seed(log, offset), &out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(payload);
    let padded = start + (out.len() - start).next_multiple_of(ALIGN_BYTES);
    out.resize(padded, 0);
}

/// A complete record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub seq: Cursor,
    pub writes: Vec<Write>,
    /// Offset of the payload in its segment; meaningless if `payload_len` is 0.
    pub payload_offset: u64,
    pub payload_len: u32,
    pub payload_crc: u32,
    /// The file was durable up to here before this record was written; 0 if unknown.
    pub durable: u64,
    /// The mark of a clean stop, not a commit.
    pub is_end: bool,
    /// Distance from the begin of this record to the next, in bytes.
    pub len: usize,
}

/// The length of the record according to its header at the beginning of `bytes`; not verified.
pub(super) fn needed(bytes: &[u8]) -> Option<usize> {
    let mut header = Reader(bytes.get(4..12)?);
    let body = u32::from_le_bytes(header.array()?) as usize;
    let payload = u32::from_le_bytes(header.array()?) as usize;
    let plausible = body > 0 && body <= BODY_BYTES_MAX && payload <= crate::PAYLOAD_BYTES_MAX;
    plausible.then(|| (HEADER_BYTES + body + payload).next_multiple_of(ALIGN_BYTES))
}

/// Whether a possible record at `offset` says that the file was durable beyond `broken`; not verified.
pub(super) fn may_claim(bytes: &[u8], offset: u64, broken: u64) -> bool {
    let Some(header) = bytes.get(..HEADER_BYTES) else { return false };
    let claimed = u32::from_le_bytes(header[28..32].try_into().expect("four bytes"));
    let claimed = u64::from(claimed) * ALIGN_BYTES as u64;
    claimed > broken && claimed <= offset && needed(header).is_some()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}

/// Decodes the record at `offset` of the log from the beginning of `bytes`; `None` if there is none, or it is
/// incomplete.
pub(super) fn decode(bytes: &[u8], log: LogId, offset: u64) -> Option<Record> {
    let mut header = Reader(bytes.get(..HEADER_BYTES)?);
    let crc = u32::from_le_bytes(header.array()?);
    let body_len = u32::from_le_bytes(header.array()?) as usize;
    let payload_len = u32::from_le_bytes(header.array()?);
    let payload_crc = u32::from_le_bytes(header.array()?);
    let seq = u64::from_le_bytes(header.array()?);
    let count = u32::from_le_bytes(header.array()?) as usize;
    let durable = u64::from(u32::from_le_bytes(header.array()?)) * ALIGN_BYTES as u64;
    if seq == 0 || body_len > BODY_BYTES_MAX {
        return None;
    }
    let body_end = HEADER_BYTES + body_len;
    let checked = bytes.get(4..body_end)?;
    if crc32c::crc32c_append(seed(log, offset), checked) != crc {
        return None;
    }
    let payload = bytes.get(body_end..body_end + payload_len as usize)?;
    if crc32c::crc32c(payload) != payload_crc {
        return None;
    }
    let body = &bytes[HEADER_BYTES..body_end];
    let is_end = count == 0 && body == END_BODY;
    let writes = if is_end { Vec::new() } else { decode_body(body, count)? };
    let payload_end = body_end + payload_len as usize;
    let len = payload_end.next_multiple_of(ALIGN_BYTES);
    // No checksum covers the padding, and it carries no data; damage of it is reported all the same.
    if bytes.get(payload_end..len)?.iter().any(|byte| *byte != 0) {
        return None;
    }
    Some(Record {
        seq: Cursor(seq),
        writes,
        payload_offset: offset + body_end as u64,
        payload_len,
        payload_crc,
        durable,
        is_end,
        len,
    })
}

fn decode_body(body: &[u8], count: usize) -> Option<Vec<Write>> {
    let mut body = Reader(body);
    // An untrusted count must not determine an allocation.
    let mut writes = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        let tag = body.take(1)?[0];
        let key_len = u16::from_le_bytes(body.array()?);
        let key = body.take(key_len.into())?.to_vec();
        writes.push(match tag {
            TAG_PUT => {
                let len = u32::from_le_bytes(body.array()?) as usize;
                Write::Put { key, value: body.take(len)?.to_vec() }
            }
            TAG_DELETE => Write::Delete { key },
            TAG_ADD => Write::Add { key, delta: i64::from_le_bytes(body.array()?) },
            TAG_MAX => Write::Max { key, at_least: u64::from_le_bytes(body.array()?) },
            _ => return None,
        });
    }
    body.0.is_empty().then_some(writes)
}
