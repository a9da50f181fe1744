//! A quota: limits of a bucket's objects and bytes.
//!
//! Layout:     the setting `Quota`: layout, varint of bits, varint for each bit: 1 = objects, 2 = bytes.
//! Invariants: Q3 quotas are cached, so nothing is read for a bucket without one.
//! Not here:   setting and enforcing them (bucket_quota).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_meta::Cursor;
use margay_rows::Ino;
use margay_rows::record::wire::{Damaged, Reader, Writer};
use parking_lot::RwLock;

const LAYOUT: u8 = 1;
const OBJECTS: u64 = 1;
const BYTES: u64 = 2;

/// A bucket's limits; `None`: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub objects: Option<u64>,
    pub bytes: Option<u64>,
}

impl Quota {
    pub(crate) fn encode(self) -> Vec<u8> {
        let bit = |set: Option<u64>, bit| if set.is_some() { bit } else { 0 };
        let mut writer = Writer::new(20);
        writer.byte(LAYOUT);
        writer.varint(bit(self.objects, OBJECTS) | bit(self.bytes, BYTES));
        [self.objects, self.bytes].into_iter().flatten().for_each(|most| writer.varint(most));
        writer.finish()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Quota, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let bits = reader.varint()?;
        if bits & !(OBJECTS | BYTES) != 0 {
            return Err(Damaged("unknown fields of a quota"));
        }
        let mut most = |bit| if bits & bit != 0 { reader.varint().map(Some) } else { Ok(None) };
        let quota = Quota { objects: most(OBJECTS)?, bytes: most(BYTES)? };
        reader.end()?;
        Ok(quota)
    }
}

/// Quotas by the root of their bucket.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    any: AtomicBool,
    /// With the commit that set each. A removed quota stays, without limits.
    by_root: RwLock<HashMap<Ino, (Quota, Cursor)>>,
}

impl Quotas {
    pub(crate) fn of(&self, root: Ino) -> Option<Quota> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.by_root.read().get(&root).map(|(quota, _)| *quota)
    }

    pub(crate) fn forget_all(&self) {
        self.by_root.write().clear();
        self.any.store(false, Ordering::Release);
    }

    /// Records the quota set by commit `seq`; calls may come in any order, and the last commit counts.
    pub(crate) fn set(&self, root: Ino, quota: Quota, seq: Cursor) {
        let mut by_root = self.by_root.write();
        if by_root.get(&root).is_none_or(|(_, before)| *before <= seq) {
            by_root.insert(root, (quota, seq));
        }
        self.any.store(by_root.values().any(|(quota, _)| *quota != Quota::default()), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_round_trip() {
        for objects in [None, Some(0), Some(u64::MAX)] {
            for bytes in [None, Some(7)] {
                let quota = Quota { objects, bytes };
                assert_eq!(Quota::decode(&quota.encode()), Ok(quota));
            }
        }
        assert!(Quota::decode(&[1, 4]).is_err());
        assert!(Quota::decode(&[1, 1]).is_err());
    }
}
