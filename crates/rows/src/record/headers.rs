//! Headers of an object as stored: names that are frequent take one byte.
//!
//! Layout:     varint count, then for each: code byte (0: a name follows; else an index into `NAMES` plus one),
//!             value. Invariants: a code never changes its name; new names are added at the end.

use super::wire::{Damaged, Reader, Writer};
use crate::values::Headers;

const NAMES: [&str; 13] = [
    "content-type",
    "content-encoding",
    "content-language",
    "content-disposition",
    "cache-control",
    "expires",
    "x-amz-storage-class",
    "x-amz-checksum-type",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];

/// Maximum number of headers of an object.
const HEADERS_MAX: usize = 4096;

pub fn encode<'a>(headers: impl ExactSizeIterator<Item = (&'a str, &'a str)>, writer: &mut Writer) {
    assert!(headers.len() <= HEADERS_MAX, "no more headers are read back");
    writer.varint(headers.len() as u64);
    for (name, value) in headers {
        match NAMES.iter().position(|known| *known == name) {
            Some(index) => writer.byte(index as u8 + 1),
            None => {
                writer.byte(0);
                writer.bytes(name.as_bytes());
            }
        }
        writer.bytes(value.as_bytes());
    }
}

/// Maximum encoded size of a header.
pub fn bytes_of(name: &str, value: &str) -> usize {
    let name_bytes = if NAMES.contains(&name) { 1 } else { 4 + name.len() };
    name_bytes + 3 + value.len()
}

pub fn decode(reader: &mut Reader<'_>) -> Result<Headers, Damaged> {
    let count = reader.small::<usize>()?;
    if count > HEADERS_MAX {
        return Err(Damaged("too many headers"));
    }
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = match reader.byte()? {
            0 => reader.text()?,
            code => NAMES.get(usize::from(code) - 1).copied().ok_or(Damaged("unknown header code"))?,
        };
        headers.insert(name.to_owned(), reader.text()?.to_owned());
    }
    Ok(headers)
}
