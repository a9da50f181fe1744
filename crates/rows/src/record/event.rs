//! A queued event.
//!
//! Layout:     1, kind, time, bucket text, key text, size, 16 bytes ETag digest, parts, version text, rule text
//! Invariants: E1 it contains everything that a message needs, since the object may be deleted before it is sent.

use super::wire::{Damaged, Reader, Writer};
use crate::event::{Event, EventKind};
use crate::values::ETag;

const LAYOUT: u8 = 1;

/// An event, and the notification rule that matched.
pub fn encode(event: &Event, rule: &str) -> Vec<u8> {
    let mut writer = Writer::new(128);
    writer.byte(LAYOUT);
    writer.byte(event.kind as u8);
    writer.time(event.at);
    writer.bytes(event.bucket.as_bytes());
    writer.bytes(event.key.as_bytes());
    writer.varint(event.size);
    writer.raw(&event.etag.digest);
    writer.varint(event.etag.parts.into());
    writer.bytes(event.version.as_bytes());
    writer.bytes(rule.as_bytes());
    writer.finish()
}

pub fn decode(value: &[u8]) -> Result<(Event, String), Damaged> {
    let mut reader = Reader::new(value);
    reader.layout(LAYOUT)?;
    let kind = reader.byte()?;
    let kind = EventKind::ALL.into_iter().find(|known| *known as u8 == kind).ok_or(Damaged("an unknown event"))?;
    let event = Event {
        kind,
        at: reader.time()?,
        bucket: reader.text()?.to_owned(),
        key: reader.text()?.to_owned(),
        size: reader.varint()?,
        etag: ETag { digest: reader.array()?, parts: reader.small()? },
        version: reader.text()?.to_owned(),
    };
    let rule = reader.text()?.to_owned();
    reader.end()?;
    Ok((event, rule))
}
