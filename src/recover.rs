//! Checks each copy of what an object uses, and lets the stores fetch what they lack from those that have it.
//!
//! Why:        an operator who is told of one object that cannot be read wants it right now, and to know what was wrong.
//! Invariants: R1 what is reported at the end is what was verified after the last change.
//! Not here:   fetching (margay-cluster), copies that are missing because there are too few stores (its upkeep).

use std::ops::AddAssign;

use margay_cluster::Ordered;
use margay_segment::{Extent, Run, SegmentError, SegmentId, StoreNumber};
use margay_volume::{CopiesRecord, Error, ObjectSegment, SegmentState, object_places, read_copies};
use serde_json::{Value, json};

use crate::wiring::Storage;

/// Of the runs of one segment at one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    damaged: u64,
    missing: u64,
    /// Nothing is known of these.
    unreached: u64,
}

impl Found {
    fn is_bad(self) -> bool {
        self.damaged + self.missing > 0
    }

    fn word(self) -> &'static str {
        match self {
            Found { unreached: 1.., .. } => "not reached",
            Found { missing: 1.., .. } => "missing",
            Found { damaged: 1.., .. } => "damaged",
            Found { .. } => "good",
        }
    }
}

impl AddAssign<&Result<(), SegmentError>> for Found {
    fn add_assign(&mut self, verified: &Result<(), SegmentError>) {
        match verified {
            Ok(()) => {}
            Err(SegmentError::Corrupt { .. }) => self.damaged += 1,
            Err(SegmentError::Missing(_)) => self.missing += 1,
            // No answer, or an error that says nothing of the bytes.
            Err(_) => self.unreached += 1,
        }
    }
}

/// Of the current object with this key. Blocks this thread.
pub fn object(storage: &Storage, bucket: &str, name: &str) -> Result<Value, Error> {
    let engine = storage.rows.engine();
    let (places, copies) = (object_places(&*engine, bucket, name)?, read_copies(&*engine)?);
    let mut segments = Vec::new();
    for segment in &places.segments {
        segments.push(recover_segment(storage, segment, &copies));
    }
    let sum = |what: &str| segments.iter().filter_map(|segment| segment[what].as_u64()).sum::<u64>();
    Ok(json!({
        "bucket": bucket,
        "key": name,
        "bytes": places.size,
        "bad_copies": sum("bad_copies"),
        "left_bad": sum("left_bad"),
        "unreached": sum("unreached"),
        "missing_copies": sum("missing_copies"),
        "lost": segments.iter().any(|segment| segment["lost"] == true),
        "segments": segments,
    }))
}

fn recover_segment(storage: &Storage, segment: &ObjectSegment, copies: &CopiesRecord) -> Value {
    let record = segment.record.as_ref().filter(|record| record.state != SegmentState::Removed);
    let holders = record.map_or_else(|| vec![segment.id.made_by()], |record| record.stores.clone());
    let (gone, holders): (Vec<_>, Vec<_>) = holders.into_iter().partition(|store| copies.detached.contains(store));
    let mut stores: Vec<Value> = gone.iter().map(|store| json!({ "store": store.0, "found": "detached" })).collect();
    let (mut bad, mut left, mut unreached, mut good) = (0_u64, 0_u64, 0_u64, 0_usize);
    for store in &holders {
        let found = look(storage, *store, &segment.runs);
        let mut line = json!({ "store": store.0, "found": found.word(), "runs": segment.runs.len() });
        let now = if found.is_bad() {
            line["bad_runs"] = (found.damaged + found.missing).into();
            line["done"] = mend(storage, *store, segment.id).into();
            let now = look(storage, *store, &segment.runs);
            line["now"] = now.word().into();
            now
        } else {
            found
        };
        bad += u64::from(found.is_bad());
        left += u64::from(now.is_bad());
        unreached += u64::from(now.unreached > 0);
        good += usize::from(now == Found::default());
        stores.push(line);
    }
    json!({
        "segment": segment.id.0,
        "bytes": segment.bytes,
        "stores": stores,
        "bad_copies": bad,
        "left_bad": left,
        "unreached": unreached,
        "missing_copies": usize::from(copies.copies).saturating_sub(copies.count(holders)),
        "lost": good == 0 && unreached == 0,
    })
}

fn look(storage: &Storage, store: StoreNumber, runs: &[Run]) -> Found {
    let mut found = Found::default();
    for run in runs {
        found += &match storage.copies() {
            Some(copies) => copies.verify_at(store, run),
            None => storage.segments.verify(&Extent::whole(*run)),
        };
    }
    found
}

/// What was done, or why nothing was.
fn mend(storage: &Storage, store: StoreNumber, id: SegmentId) -> String {
    let Some(copies) = storage.copies() else { return "nothing: the volume has one server".to_owned() };
    match copies.mend_at(store, id) {
        Ok(Ordered::PutAgain) => "it is put there again from the maker's file: look again later".to_owned(),
        Ok(Ordered::Mended(mended)) if mended.left == 0 => "fetched from another store".to_owned(),
        Ok(Ordered::Mended(mended)) => {
            format!("{} of {} runs are at no store that can be reached", mended.left, mended.bad)
        }
        Err(error) => format!("nothing: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_reached_is_neither_good_nor_bad() {
        let id = SegmentId(9);
        let found = |all: &[Result<(), SegmentError>]| {
            let mut found = Found::default();
            all.iter().for_each(|one| found += one);
            (found.word(), found.is_bad())
        };
        let missing = || Err(SegmentError::Missing(id));
        let corrupt = || Err(SegmentError::Corrupt { segment: id, offset: 0, what: "a test" });
        let away = || Err(SegmentError::Unreachable(id, StoreNumber(1)));
        assert_eq!(found(&[Ok(()), Ok(())]), ("good", false));
        assert_eq!(found(&[Ok(()), corrupt()]), ("damaged", true));
        assert_eq!(found(&[missing(), corrupt()]), ("missing", true));
        assert_eq!(found(&[away(), Ok(())]), ("not reached", false));
        let refused = || Err(SegmentError::Io(std::io::Error::other("too many open files")));
        assert_eq!(found(&[refused(), Ok(())]), ("not reached", false));
    }
}
