//! A quota: limits of a bucket's objects and bytes.
//!
//! Layout:     the setting `Quota`: layout, varint of bits, varint for each bit: 1 = objects, 2 = bytes.
//! Not here:   setting and enforcing them (bucket/quota), the cache (bucket_states).

use margay_rows::record::wire::{Damaged, Reader, Writer};

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
