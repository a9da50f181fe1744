//! Which stores have the bytes of an object, and which copies are missing.
//!
//! Why:        the answer is the same from the rows of a running server, of a directory at rest and of a database.
//! Not here:   the rows (margay-volume), output (`cli`).

use margay_meta::Engine;
use margay_segment::{Kind, StoreNumber, segment_name};
use margay_volume::{
    CopiesRecord, Error, KnownStore, ObjectSegment, SegmentState, known_stores, object_places, read_copies,
};
use serde_json::{Value, json};

/// Of the current object with this key.
pub fn find(engine: &dyn Engine, bucket: &str, name: &str) -> Result<Value, Error> {
    let places = object_places(engine, bucket, name)?;
    let (copies, stores) = (read_copies(engine)?, known_stores(engine)?);
    // Of a volume of one server there is one store, which no other process opens.
    let known = engine.is_shared().then_some(stores.as_slice());
    let segments: Vec<Value> = places.segments.iter().map(|segment| show(segment, &copies, known)).collect();
    Ok(json!({
        "bucket": bucket,
        "key": name,
        "bytes": places.size,
        "bytes_in_row": places.in_row,
        "copies": copies.copies,
        "segments": segments,
    }))
}

fn show(segment: &ObjectSegment, copies: &CopiesRecord, known: Option<&[KnownStore]>) -> Value {
    let record = segment.record.as_ref().filter(|record| record.state != SegmentState::Removed);
    let holders = match (record, &segment.record) {
        (Some(record), _) => record.stores.clone(),
        // Who has no row yet is where it was made.
        (None, None) => vec![segment.id.made_by()],
        (None, Some(_)) => Vec::new(),
    };
    let left = copies.count(holders.iter().copied().filter(|store| !copies.detached.contains(store)));
    let kind = record.map_or(Kind::Log, |record| record.kind);
    let stores: Vec<Value> = holders.iter().map(|store| show_store(*store, copies, known)).collect();
    json!({
        "segment": segment.id.0,
        "file": segment.record.as_ref().map(|_| segment_name(segment.id, kind)),
        "bytes": segment.bytes,
        "stores": stores,
        "missing_copies": usize::from(copies.copies).saturating_sub(left),
        "lost": left == 0,
    })
}

fn show_store(store: StoreNumber, copies: &CopiesRecord, known: Option<&[KnownStore]>) -> Value {
    let Some(known) = known else { return json!({ "store": store.0, "state": "here" }) };
    let known = known.iter().find(|known| known.number == store);
    let address = known.and_then(|known| known.address.clone());
    let state = match (copies.detached.contains(&store), &address) {
        (true, _) => "detached",
        _ if copies.is_pool(store) => "pool",
        (false, Some(_)) => "running",
        (false, None) => "not running",
    };
    let address = address.or_else(|| copies.pools.get(&store).map(|pool| format!("s3://{}", pool.bucket)));
    json!({ "store": store.0, "state": state, "address": address, "host": known.map(|known| known.host.clone()) })
}
