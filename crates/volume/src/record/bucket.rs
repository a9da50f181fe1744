//! A bucket: its root directory and what is set on it.
//!
//! Layout:     2, root ino, created, versioning byte, object lock byte, bits of its settings, owner text
//!             1 (volumes of formats 1 and 2): without the bits
//! Invariants: the row's version is the identity of the root directory; usage lives in counters, not here.

use margay_env::Timestamp;
use margay_meta::Seq;

use super::wire::{Damaged, Reader, Writer};
use crate::api::BucketInfo;
use crate::key::Ino;
use crate::kinds::SettingSet;

const LAYOUT: u8 = 2;
const LAYOUT_WITHOUT_SETTINGS: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) root: Ino,
    pub(crate) created: Timestamp,
    /// 0 never on, 1 on, 2 suspended; always 0 in this format version.
    pub(crate) versioning: u8,
    /// 0 off, 1 on; always 0 in this format version.
    pub(crate) object_lock: u8,
    /// Those that have rows.
    pub(crate) settings: SettingSet,
    /// Empty: the root account.
    pub(crate) owner: String,
}

impl Bucket {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(32);
        writer.byte(LAYOUT);
        writer.varint(self.root.0);
        writer.time(self.created);
        writer.byte(self.versioning);
        writer.byte(self.object_lock);
        writer.varint(self.settings.bits());
        writer.bytes(self.owner.as_bytes());
        writer.finish()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Bucket, Damaged> {
        let mut reader = Reader::new(value);
        let layout = reader.byte()?;
        if layout != LAYOUT && layout != LAYOUT_WITHOUT_SETTINGS {
            return Err(Damaged("unknown layout"));
        }
        let bucket = Bucket {
            root: Ino(reader.varint()?),
            created: reader.time()?,
            versioning: reader.byte()?,
            object_lock: reader.byte()?,
            settings: match layout {
                LAYOUT => SettingSet::from_bits(reader.varint()?).ok_or(Damaged("unknown settings"))?,
                _ => SettingSet::default(),
            },
            owner: reader.text()?.to_owned(),
        };
        reader.end()?;
        Ok(bucket)
    }

    /// As doors see it; `version` is that of its row.
    pub(crate) fn info(&self, name: &str, version: Seq) -> BucketInfo {
        BucketInfo {
            name: name.to_owned(),
            created: self.created,
            owner: self.owner.clone(),
            settings: self.settings,
            generation: version.0,
        }
    }
}
