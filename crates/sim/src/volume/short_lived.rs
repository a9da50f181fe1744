//! Objects and uploads that share bytes with those of the clients, and expire.
//!
//! Why:        what ends by expiry is an orphan that reclaim drains, and one owner less of bytes that others still name.
//! Invariants: they lie in a bucket of their own, which nobody reads; what is removed is what was listed.
//! Not here:   when expiry is due (the server's lifecycle).

use std::cell::RefCell;

use margay_env::Timestamp;
use margay_env::sim::SimRandom;
use margay_volume::{CopyRequest, Documents, Error, Headers, Lease, ListItem, ListRequest, ReadCondition, Volume};

use super::yield_once;
use crate::ledger::Ledger;
use crate::target::BUCKET;
use crate::{Failure, fail};

const PLACE: &str = "short-lived";
const ROUNDS_MAX: u64 = 8;
const NAMES: u64 = 6;
/// Of one listing.
const ITEMS_MAX: usize = 100;

/// Makes them and ends them, at random moments, until an error is excused.
pub(crate) async fn come_and_go(
    volume: &Volume,
    ledger: &RefCell<Ledger>,
    random: SimRandom,
    excuse: &dyn Fn(&str) -> bool,
) -> Result<(), Failure> {
    for _ in 0..random.below(ROUNDS_MAX) {
        for _ in 0..random.below(30) {
            yield_once().await;
        }
        let done = match random.below(4) {
            0 => end_all(volume).await,
            1 => uploaded(volume, ledger, &random).await,
            _ => copied(volume, ledger, &random).await,
        };
        match done {
            Ok(()) | Err(Error::NoSuchKey | Error::NoSuchUpload) => {}
            Err(error) if excuse(&error.to_string()) => break,
            Err(error) => fail!("short-lived objects: {error}"),
        }
    }
    Ok(())
}

/// A key that has an object, as far as is known.
fn source(ledger: &RefCell<Ledger>, random: &SimRandom) -> Option<String> {
    let ledger = ledger.borrow();
    let keys: Vec<&String> = ledger.owners.iter().flat_map(|owner| owner.now.objects.keys()).collect();
    (!keys.is_empty()).then(|| keys[random.below(keys.len() as u64) as usize].clone())
}

async fn make_place(volume: &Volume) -> Result<(), Error> {
    match volume.create_bucket(PLACE).await {
        Ok(_) | Err(Error::BucketExists) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn copied(volume: &Volume, ledger: &RefCell<Ledger>, random: &SimRandom) -> Result<(), Error> {
    let Some(from) = source(ledger, random) else { return Ok(()) };
    make_place(volume).await?;
    let to = random.below(NAMES).to_string();
    let request =
        CopyRequest { source_bucket: BUCKET, source_key: &from, bucket: PLACE, key: &to, ..CopyRequest::default() };
    volume.copy_object(request).await.map(drop)
}

/// An upload that nobody completes.
async fn uploaded(volume: &Volume, ledger: &RefCell<Ledger>, random: &SimRandom) -> Result<(), Error> {
    let Some(from) = source(ledger, random) else { return Ok(()) };
    make_place(volume).await?;
    let key = random.below(NAMES).to_string();
    let upload = volume.create_multipart(PLACE, &key, Headers::new(), Documents::new()).await?.upload;
    let condition = ReadCondition::default();
    volume.copy_part(PLACE, &key, &upload, 1, (BUCKET, &from, None), None, &condition).await.map(drop)
}

/// Everything there is due.
pub(crate) async fn end_all(volume: &Volume) -> Result<(), Error> {
    let mut due: Vec<(String, Timestamp)> = Vec::new();
    let request =
        ListRequest { bucket: PLACE, prefix: "", delimiter: None, after: None, after_is_prefix: false, max: ITEMS_MAX };
    let mut note = |item: ListItem<'_>| {
        if let ListItem::Object { key, modified, .. } = item {
            due.push((key.to_owned(), modified));
        }
    };
    match volume.list(&request, &mut note).await {
        Ok(_) => {}
        Err(Error::NoSuchBucket) => return Ok(()),
        Err(error) => return Err(error),
    }
    for (key, modified) in due {
        volume.expire_object(PLACE, &key, modified, &Lease::alone()).await?;
    }
    let (uploads, _) = volume.list_multipart(PLACE, "", None, ITEMS_MAX).await?;
    for upload in uploads {
        volume.abort_multipart(PLACE, &upload.key, &upload.upload).await?;
    }
    Ok(())
}
