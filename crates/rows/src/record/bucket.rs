//! A bucket: its root directory and what is set on it.
//!
//! Layout:     2, root ino, created, versioning byte (0 never, 1 enabled, 2 suspended), object lock byte, bits of its
//!             settings, owner text
//!             1 (volumes of formats 1 and 2): without the bits
//! Invariants: whoever changes an object asserts the row's version, and so what it says of versions; usage lives in
//!             counters, not here.

use margay_env::Timestamp;
use margay_meta::RowVersion;

use super::wire::{Damaged, Reader, Writer};
use crate::ino::Ino;
use crate::kinds::SettingSet;
use crate::values::{BucketInfo, Versioning};

const LAYOUT: u8 = 2;
const LAYOUT_WITHOUT_SETTINGS: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub root: Ino,
    pub created: Timestamp,
    pub versioning: Versioning,
    /// Permanent once set.
    pub object_lock: bool,
    /// Settings that have rows.
    pub settings: SettingSet,
    /// Empty: the root account.
    pub owner: String,
}

impl Bucket {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(32);
        writer.byte(LAYOUT);
        writer.varint(self.root.0);
        writer.time(self.created);
        writer.byte(match self.versioning {
            Versioning::Never => 0,
            Versioning::Enabled => 1,
            Versioning::Suspended => 2,
        });
        writer.byte(self.object_lock.into());
        writer.varint(self.settings.bits());
        writer.bytes(self.owner.as_bytes());
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<Bucket, Damaged> {
        let mut reader = Reader::new(value);
        let layout = reader.byte()?;
        if layout != LAYOUT && layout != LAYOUT_WITHOUT_SETTINGS {
            return Err(Damaged("unknown layout"));
        }
        let bucket = Bucket {
            root: Ino(reader.varint()?),
            created: reader.time()?,
            versioning: match reader.byte()? {
                0 => Versioning::Never,
                1 => Versioning::Enabled,
                2 => Versioning::Suspended,
                _ => return Err(Damaged("unknown state of versioning")),
            },
            object_lock: match reader.byte()? {
                0 => false,
                1 => true,
                _ => return Err(Damaged("unknown state of object lock")),
            },
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
    pub fn info(&self, name: &str, version: RowVersion) -> BucketInfo {
        BucketInfo {
            name: name.to_owned(),
            created: self.created,
            owner: self.owner.clone(),
            settings: self.settings,
            generation: version.bits(),
        }
    }
}
