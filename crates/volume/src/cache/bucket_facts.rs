//! The cache of bucket facts: documents of settings, and what is parsed from them.
//!
//! Why:        a request needs several of them, and they rarely change; a fact is read and parsed once.
//! Invariants: F1 `document` and `fact` return only what was read under the given version of the bucket's row, which
//!                the caller has read or asserts. The row changes with each setting, and a version is never reused, so
//!                nothing is stale, whichever process changes it, and a recreated bucket starts without facts.
//!             F2 facts that answer reads are kept after their rows were read at one moment. Facts that only changes
//!                use (`BucketState`, rules of events) may be newer than their version; then the change conflicts.
//!             F3 `newest` may be stale: its user asserts the version of the row, and forgets the bucket on a conflict.
//!             F4 at most `BYTES_MAX` of documents are cached, with an estimate of what is parsed from them.
//! Locking:    a leaf lock, for one operation.
//! Not here:   reading rows (bucket_row, bucket_settings), dropping (follower, bucket_versioning).

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use margay_meta::RowVersion;
use margay_rows::Ino;
use margay_rows::kinds::Setting;
use margay_rows::numbered::Numbered;
use margay_rows::values::BucketInfo;
use parking_lot::RwLock;

/// Size of the cache. When the younger half is full, the older half is dropped.
const BYTES_MAX: usize = 32 << 20;
/// A bucket or a fact without a document, in bytes.
const FACT_BYTES: usize = 256;
/// Size of a parsed document, compared with the document.
const PARSED_FACTOR: usize = 4;

/// A fact of a bucket that is parsed from settings.
pub trait BucketFact: Send + Sync + Sized + 'static {
    /// The settings that it is parsed from.
    const SETTINGS: &'static [Setting];

    /// `documents`: those settings that the bucket has, in this order.
    fn parse(info: &BucketInfo, documents: &[(Setting, Bytes)]) -> Self;
}

/// The facts of a bucket under one version of its row.
#[derive(Debug)]
struct OfBucket {
    version: RowVersion,
    /// By the setting's number.
    documents: Vec<(u8, Bytes)>,
    parsed: Vec<Parsed>,
    bytes: usize,
}

/// A fact, and the bytes that it counts for.
#[derive(Debug)]
struct Parsed {
    of: TypeId,
    fact: Arc<dyn Any + Send + Sync>,
    bytes: usize,
}

/// By the bucket's root: those used or kept lately, and the others.
#[derive(Debug, Default)]
struct Kept {
    young: HashMap<Ino, OfBucket>,
    old: HashMap<Ino, OfBucket>,
    young_bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct BucketFacts {
    kept: RwLock<Kept>,
}

impl BucketFacts {
    pub(crate) fn document(&self, root: Ino, version: RowVersion, setting: Setting) -> Option<Bytes> {
        self.find(root, |kept| {
            let (_, document) = kept.of(version)?.documents.iter().find(|(number, _)| *number == setting.number())?;
            Some(document.clone())
        })
    }

    pub(crate) fn fact<T: Send + Sync + 'static>(&self, root: Ino, version: RowVersion) -> Option<Arc<T>> {
        self.find(root, |kept| kept.of(version)?.parsed())
    }

    /// Whatever the version of the bucket's row (F3).
    pub(crate) fn newest<T: Send + Sync + 'static>(&self, root: Ino) -> Option<Arc<T>> {
        self.find(root, OfBucket::parsed)
    }

    pub(crate) fn keep_document(&self, root: Ino, version: RowVersion, setting: Setting, document: Bytes) {
        self.keep(root, version, |kept| kept.set_document(setting.number(), document));
    }

    /// `bytes`: the size of the documents that it was parsed from.
    pub(crate) fn keep_fact<T: Send + Sync + 'static>(
        &self,
        root: Ino,
        version: RowVersion,
        fact: Arc<T>,
        bytes: usize,
    ) {
        let bytes = FACT_BYTES + PARSED_FACTOR * bytes;
        self.keep(root, version, |kept| kept.set_parsed(Parsed { of: TypeId::of::<T>(), fact, bytes }));
    }

    pub(crate) fn forget_all(&self) {
        *self.kept.write() = Kept::default();
    }

    pub(crate) fn forget(&self, root: Ino) {
        self.kept.write().take(root);
    }

    fn find<T>(&self, root: Ino, find: impl Fn(&OfBucket) -> Option<T>) -> Option<T> {
        let kept = self.kept.read();
        if let Some(of) = kept.young.get(&root) {
            return find(of);
        }
        let found = find(kept.old.get(&root)?)?;
        drop(kept);
        // In use: it must not go with the older half.
        let mut kept = self.kept.write();
        if let Some(of) = kept.take(root) {
            kept.insert(root, of);
        }
        Some(found)
    }

    fn keep(&self, root: Ino, version: RowVersion, add: impl FnOnce(&mut OfBucket)) {
        let mut kept = self.kept.write();
        let mut of = kept.take(root).filter(|of| of.version == version).unwrap_or_else(|| OfBucket {
            version,
            documents: Vec::new(),
            parsed: Vec::new(),
            bytes: FACT_BYTES,
        });
        add(&mut of);
        kept.insert(root, of);
    }
}

impl Kept {
    fn take(&mut self, root: Ino) -> Option<OfBucket> {
        if let Some(of) = self.young.remove(&root) {
            self.young_bytes -= of.bytes;
            return Some(of);
        }
        self.old.remove(&root)
    }

    fn insert(&mut self, root: Ino, of: OfBucket) {
        self.young_bytes += of.bytes;
        self.young.insert(root, of);
        if self.young_bytes > BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

impl OfBucket {
    fn of(&self, version: RowVersion) -> Option<&OfBucket> {
        (self.version == version).then_some(self)
    }

    fn parsed<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let parsed = self.parsed.iter().find(|parsed| parsed.of == TypeId::of::<T>())?;
        Arc::clone(&parsed.fact).downcast().ok()
    }

    /// Requests side by side read and keep the same one: it counts once.
    fn set_document(&mut self, number: u8, document: Bytes) {
        let counted = |document: &Bytes| FACT_BYTES + document.len();
        if let Some(at) = self.documents.iter().position(|(kept, _)| *kept == number) {
            self.bytes -= counted(&self.documents.swap_remove(at).1);
        }
        self.bytes += counted(&document);
        self.documents.push((number, document));
    }

    /// As `set_document`.
    fn set_parsed(&mut self, parsed: Parsed) {
        if let Some(at) = self.parsed.iter().position(|kept| kept.of == parsed.of) {
            self.bytes -= self.parsed.swap_remove(at).bytes;
        }
        self.bytes += parsed.bytes;
        self.parsed.push(parsed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Ino = Ino(7);

    fn version(number: u64) -> RowVersion {
        RowVersion::from_bits(number)
    }

    #[test]
    fn a_fact_is_of_the_version_under_which_it_was_read() {
        let facts = BucketFacts::default();
        facts.keep_document(ROOT, version(1), Setting::Cors, Bytes::from_static(b"one"));
        facts.keep_fact(ROOT, version(1), Arc::new(1u32), 3);
        assert_eq!(facts.document(ROOT, version(1), Setting::Cors).as_deref(), Some(&b"one"[..]));
        assert_eq!(
            (facts.fact::<u32>(ROOT, version(1)).as_deref(), facts.fact::<u8>(ROOT, version(1))),
            (Some(&1), None)
        );
        // Another process has changed the bucket, and a request has read its new row.
        assert_eq!(
            (facts.document(ROOT, version(2), Setting::Cors), facts.fact::<u32>(ROOT, version(2))),
            (None, None)
        );
        facts.keep_fact(ROOT, version(2), Arc::new(2u32), 3);
        assert_eq!(
            (facts.fact::<u32>(ROOT, version(1)), facts.document(ROOT, version(2), Setting::Cors)),
            (None, None)
        );
        assert_eq!(facts.newest::<u32>(ROOT).as_deref(), Some(&2));
        // A recreated bucket has another root.
        assert_eq!(facts.newest::<u32>(Ino(8)), None);
        facts.forget(ROOT);
        assert_eq!(facts.newest::<u32>(ROOT), None);
    }

    #[test]
    fn what_is_kept_again_counts_once() {
        let facts = BucketFacts::default();
        let keep = |len: usize| {
            facts.keep_document(ROOT, version(1), Setting::Policy, vec![0; len].into());
            facts.keep_fact(ROOT, version(1), Arc::new(1u32), len);
            facts.keep_fact(ROOT, version(1), Arc::new(1u8), len);
            facts.kept.read().young_bytes
        };
        let once = keep(1000);
        assert_eq!(once, 4 * FACT_BYTES + 1000 + 2 * PARSED_FACTOR * 1000);
        assert_eq!((keep(1000), keep(1000)), (once, once));
        assert_eq!(keep(10), 4 * FACT_BYTES + 10 + 2 * PARSED_FACTOR * 10);
        // As many requests as it takes to fill the cache, if each counted, leave another bucket in it.
        facts.keep_fact(Ino(8), version(1), Arc::new(1u32), 1);
        for _ in 0..BYTES_MAX / 1000 {
            assert_eq!(keep(1000), once + 2 * FACT_BYTES + PARSED_FACTOR);
        }
        assert!(facts.kept.read().old.is_empty());
    }

    #[test]
    fn a_full_cache_keeps_what_is_used() {
        let (facts, each) = (BucketFacts::default(), 64 << 10);
        facts.keep_fact(ROOT, version(1), Arc::new(1u32), 1);
        for number in 0..4 * (BYTES_MAX / each) as u64 {
            facts.keep_document(Ino(100 + number), version(1), Setting::Policy, vec![0; each].into());
            assert!(facts.fact::<u32>(ROOT, version(1)).is_some(), "after {number}");
            let kept = facts.kept.read();
            let bytes: usize = kept.young.values().chain(kept.old.values()).map(|of| of.bytes).sum();
            assert!(bytes <= BYTES_MAX + 2 * each, "{bytes}");
            assert_eq!(kept.young_bytes, kept.young.values().map(|of| of.bytes).sum::<usize>());
        }
        assert_eq!(facts.document(Ino(100), version(1), Setting::Policy), None);
    }
}
