//! Records of segments and of stores.
//!
//! Layout:     segment: 1, state (1 open, 2 sealed, 3 removed), kind (1 log, 2 pack, 3 raw), varint length when sealed
//!             (else 0), varint session of its writer (0: not known), varint count, then varint numbers of stores
//!             store: 1, 16 bytes identity, varint generation, varint session
//! Invariants: G1 the stores of a segment ascend, and there is at least one.
//! Not here:   their use (volume::stores).

use margay_segment::{Kind, StoreIdentity, StoreNumber};

use super::wire::{Damaged, Reader, Writer};

const LAYOUT: u8 = 1;
/// Maximum number of stores of one segment.
pub const HOLDERS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Runs may be added.
    Open,
    /// It has this length for good.
    Sealed { len: u64 },
    /// Nothing refers to it any more; its file will be removed.
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    pub state: SegmentState,
    pub kind: Kind,
    /// The session of its writer; 0 if unknown.
    pub writer: u64,
    /// The stores that have the segment.
    pub stores: Vec<StoreNumber>,
}

impl SegmentRecord {
    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=HOLDERS_MAX).contains(&self.stores.len()), "a segment has a store, and not too many (G1)");
        assert!(self.stores.is_sorted_by(|one, next| one < next), "the stores of a segment ascend (G1)");
        let mut writer = Writer::new(16);
        let (state, len) = match self.state {
            SegmentState::Open => (1, 0),
            SegmentState::Sealed { len } => (2, len),
            SegmentState::Removed => (3, 0),
        };
        let kind = match self.kind {
            Kind::Log => 1,
            Kind::Pack => 2,
            Kind::Raw => 3,
        };
        writer.raw(&[LAYOUT, state, kind]);
        writer.varint(len);
        writer.varint(self.writer);
        writer.varint(self.stores.len() as u64);
        self.stores.iter().for_each(|store| writer.varint(store.0.into()));
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<SegmentRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let (state, kind) = (reader.byte()?, reader.byte()?);
        let len = reader.varint()?;
        let state = match state {
            1 => SegmentState::Open,
            2 => SegmentState::Sealed { len },
            3 => SegmentState::Removed,
            _ => return Err(Damaged("unknown state of a segment")),
        };
        let kind = match kind {
            1 => Kind::Log,
            2 => Kind::Pack,
            3 => Kind::Raw,
            _ => return Err(Damaged("unknown kind of segment")),
        };
        let writer = reader.varint()?;
        let count = reader.varint()?;
        if count == 0 || count > HOLDERS_MAX as u64 {
            return Err(Damaged("a segment has no stores or too many"));
        }
        let mut stores: Vec<StoreNumber> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let number = u16::try_from(reader.varint()?).map_err(|_| Damaged("a store's number is too large"))?;
            if stores.last().is_some_and(|last| last.0 >= number) {
                return Err(Damaged("the stores of a segment do not ascend"));
            }
            stores.push(StoreNumber(number));
        }
        reader.end()?;
        Ok(SegmentRecord { state, kind, writer, stores })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreRecord {
    pub identity: StoreIdentity,
    /// The generation in its folder.
    pub generation: u64,
    /// The session that has it open, or had it open last.
    pub session: u64,
}

impl StoreRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(24);
        writer.byte(LAYOUT);
        writer.raw(&self.identity.0);
        writer.varint(self.generation);
        writer.varint(self.session);
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<StoreRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let mut identity = [0; 16];
        for byte in &mut identity {
            *byte = reader.byte()?;
        }
        let (generation, session) = (reader.varint()?, reader.varint()?);
        reader.end()?;
        Ok(StoreRecord { identity: StoreIdentity(identity), generation, session })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_survive_a_round_trip(
            state in 0..3u8, len: u64, kind in 0..3usize, session: u64, generation: u64, identity: [u8; 16],
            stores in proptest::collection::btree_set(any::<u16>(), 1..5),
        ) {
            let state = [SegmentState::Open, SegmentState::Sealed { len }, SegmentState::Removed][state as usize];
            let kind = [Kind::Log, Kind::Pack, Kind::Raw][kind];
            let stores = stores.into_iter().map(StoreNumber).collect();
            let record = SegmentRecord { state, kind, writer: session, stores };
            prop_assert_eq!(SegmentRecord::decode(&record.encode()), Ok(record));
            let store = StoreRecord { identity: StoreIdentity(identity), generation, session };
            prop_assert_eq!(StoreRecord::decode(&store.encode()), Ok(store));
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
            let _ = SegmentRecord::decode(&bytes);
            let _ = StoreRecord::decode(&bytes);
            let _ = SegmentRecord::decode(&[&[1], bytes.as_slice()].concat());
        }
    }
}
