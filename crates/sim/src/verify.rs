//! After a restart: is everything there that must be, and nothing that may not.
//!
//! Invariants: J1 a client has exactly what it had before or after the operation that was under way.
//!             J2 what is listed can be read, has the listed length, and nothing else can be read.
//!             J3 what is found now is the truth from here on.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::{Content, Holding, Ledger, Upload, owner_of};
use crate::target::{Target, Trouble};
use crate::{Failure, fail};

/// What came of a check.
#[derive(Debug)]
pub enum Verdict {
    Right,
    /// The target failed before the check was over, which is excused.
    BrokenOff,
}

/// Key, and numbers and sizes of the parts.
type FoundUpload = (String, Vec<(u16, u64)>);

/// What is there.
struct Found {
    objects: BTreeMap<String, Content>,
    uploads: BTreeMap<String, FoundUpload>,
}

/// Makes the bucket if it is not there, compares all that the target holds with the ledger, and goes on from what it
/// holds.
pub async fn verify<T: Target>(
    target: &T,
    ledger: &mut Ledger,
    excuse: &dyn Fn(&str) -> bool,
) -> Result<Verdict, Failure> {
    if let Err(trouble) = target.make_bucket().await {
        if excuse(&trouble.to_string()) {
            return Ok(Verdict::BrokenOff);
        }
        fail!("no bucket: {trouble}");
    }
    let found = match look(target, ledger).await {
        Ok(found) => found?,
        Err(trouble) if excuse(&trouble.to_string()) => return Ok(Verdict::BrokenOff),
        Err(trouble) => fail!("after the restart: {trouble}"),
    };
    for client in 0..ledger.owners.len() {
        let holding = judge(ledger, client, &found)?;
        ledger.settle(client, holding);
    }
    let moment = ledger.moment();
    for key in ledger.shared_keys() {
        let content = found.objects.get(&key).copied();
        ledger.shown_shared(&key, content, moment)?;
        ledger.settle_shared(&key, content);
    }
    let shared: BTreeSet<String> = ledger.shared_keys().into_iter().collect();
    if let Some(stray) = found.objects.keys().find(|key| owner_of(key).is_none() && !shared.contains(*key)) {
        fail!("{stray} is there, and nobody wrote it");
    }
    Ok(Verdict::Right)
}

async fn look<T: Target>(target: &T, ledger: &Ledger) -> Result<Result<Found, Failure>, Trouble> {
    let mut found = Found { objects: BTreeMap::new(), uploads: BTreeMap::new() };
    let listed = target.list("").await?;
    if !listed.is_sorted_by(|left, right| left.0 < right.0) {
        return Ok(Err(Failure::new("the listing is not in order")));
    }
    for (key, size) in &listed {
        match target.get(key).await? {
            Some(bytes) if bytes.len() as u64 == *size => {
                found.objects.insert(key.clone(), Content::of(&bytes));
            }
            other => {
                let got = other.map(|bytes| bytes.len());
                return Ok(Err(Failure(format!("{key} is listed with {size} bytes, GET gives {got:?}"))));
            }
        }
    }
    for key in known_keys(ledger) {
        if !found.objects.contains_key(&key) && target.get(&key).await?.is_some() {
            return Ok(Err(Failure(format!("{key} can be read but is not listed"))));
        }
    }
    for prefix in ["", "s/", "c0/"] {
        let shown = target.list_folder(prefix).await?;
        let right = folder(found.objects.keys(), prefix);
        if shown != right {
            return Ok(Err(Failure(format!("the folder {prefix:?} shows {shown:?}, the keys make it {right:?}"))));
        }
    }
    for (key, id) in target.uploads().await? {
        let parts = target.parts(&key, &id).await?;
        found.uploads.insert(id, (key, parts));
    }
    Ok(Ok(found))
}

fn known_keys(ledger: &Ledger) -> BTreeSet<String> {
    let mut keys: BTreeSet<String> = ledger.shared_keys().into_iter().collect();
    for owner in &ledger.owners {
        keys.extend(owner.now.objects.keys().cloned());
        keys.extend(owner.pending.iter().flat_map(|pending| pending.after.objects.keys().cloned()));
    }
    keys
}

fn folder<'a>(keys: impl Iterator<Item = &'a String>, prefix: &str) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    for key in keys {
        let Some(rest) = key.strip_prefix(prefix) else { continue };
        let one = rest.find('/').map_or(key.clone(), |slash| key[..prefix.len() + slash + 1].to_owned());
        if shown.last() != Some(&one) {
            shown.push(one);
        }
    }
    shown
}

/// What the client has now, if it may be so.
fn judge(ledger: &Ledger, client: usize, found: &Found) -> Result<Holding, Failure> {
    let owner = &ledger.owners[client];
    let mine = |key: &str| owner_of(key) == Some(client);
    let objects: BTreeMap<String, Content> =
        found.objects.iter().filter(|(key, _)| mine(key)).map(|(key, content)| (key.clone(), *content)).collect();
    let uploads: BTreeMap<&String, _> = found.uploads.iter().filter(|(_, (key, _))| mine(key)).collect();
    let fits = |holding: &Holding, new_upload: Option<&String>| -> Option<Holding> {
        if holding.objects != objects {
            return None;
        }
        let mut holding = holding.clone();
        let unknown =
            uploads.iter().find(|(id, (key, _))| !holding.uploads.contains_key(**id) && new_upload == Some(key));
        if let Some((id, (key, _))) = unknown {
            holding.uploads.insert((*id).clone(), Upload { key: key.clone(), parts: BTreeMap::new() });
        }
        let same = holding.uploads.len() == uploads.len()
            && holding.uploads.iter().all(|(id, upload)| {
                let parts = upload.parts.iter().map(|(number, part)| (*number, part.blob.len as u64));
                uploads.get(id).is_some_and(|(key, there)| *key == upload.key && parts.eq(there.iter().copied()))
            });
        if !same {
            return None;
        }
        Some(holding)
    };
    let before = fits(&owner.now, None).filter(|_| !owner.pending.as_ref().is_some_and(|pending| pending.shown));
    let after = owner.pending.as_ref().and_then(|pending| fits(&pending.after, pending.new_upload.as_ref()));
    match (before, after) {
        // Both may fit when only a part of the same length was replaced: then its ETag is not known.
        (Some(_), Some(after)) if after.uploads.values().any(Upload::nameless) => Ok(after),
        (Some(holding), _) | (None, Some(holding)) => Ok(holding),
        (None, None) => fail!("client {client}: {}", difference(owner, &objects, &uploads)),
    }
}

fn difference(
    owner: &crate::ledger::Owner,
    objects: &BTreeMap<String, Content>,
    uploads: &BTreeMap<&String, &FoundUpload>,
) -> String {
    let keys: BTreeSet<&String> = owner.now.objects.keys().chain(objects.keys()).collect();
    let wrong: Vec<String> = keys
        .into_iter()
        .filter(|key| owner.now.objects.get(*key) != objects.get(*key))
        .map(|key| format!("{key} was {:?}, is {:?}", owner.now.objects.get(key), objects.get(key)))
        .collect();
    let doing = owner.pending.as_ref().map(|pending| (pending.what.as_str(), pending.shown));
    let held: Vec<_> = owner.now.uploads.iter().map(|(id, upload)| (id, &upload.key, upload.parts.keys())).collect();
    format!("under way (and shown): {doing:?}; objects: {wrong:?}; uploads were {held:?}, are {uploads:?}")
}
