//! How many copies of each segment a volume of several servers has, where they are to be, and which stores are gone for good.
//!
//! Layout:     3, what layout 2 has, then varint count, then for each store with a role varint number and byte 1 (endpoint) or 2 (gateway),
//!             ascending, varint count, for each pool varint number and the pool, ascending. While no store has a role and there are no pools, it is written as 2, byte copies, byte write, byte racks that a write waits for, varint count, then for each detached store varint number,
//!             ascending, the same for suspended stores, varint count, for each store with a rack varint number and text, ascending,
//!             varint how often stores were to be looked through again, byte 1 if copies are moved until stores are evenly filled.
//!             While a volume uses none of what came with it, it is written as 1, byte copies, byte write, and the detached stores,
//!             which older programs read.
//! Invariants: C1 `1 <= racks <= write <= copies <= COPIES_MAX`.
//! Not here:   which stores have a segment (segment).

use std::collections::BTreeMap;

use margay_segment::StoreNumber;

use super::pool::Pool;
use super::wire::{Damaged, Reader, Writer};

const LAYOUT: u8 = 3;
const RACKS_LAYOUT: u8 = 2;
const FIRST_LAYOUT: u8 = 1;
/// Most copies of a segment.
const COPIES_MAX: u8 = 8;
/// Most stores that an operator may have detached, or suspended, or that have a rack or a role.
const STORES_MAX: usize = 4096;
/// Most pools that a volume ever had.
pub const POOLS_MAX: usize = 64;
const ENDPOINT: u8 = 1;
const GATEWAY: u8 = 2;
/// Longest name of a rack, in bytes.
pub const RACK_BYTES_MAX: usize = 64;

/// What the server of a store is for; most are for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It keeps copies for the others, and has no clients.
    Endpoint,
    /// It keeps what it writes itself, and gets no copies of what others write.
    Gateway,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Endpoint => "endpoint",
            Role::Gateway => "gateway",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiesRecord {
    /// Stores that each segment is to be at.
    pub copies: u8,
    /// Stores that must have bytes before the commit that refers to them.
    pub write: u8,
    /// In so many racks they must be then.
    pub racks: u8,
    /// Stores that never come back: what they had is copied elsewhere.
    pub detached: Vec<StoreNumber>,
    /// Stores that are stopped for a while: they get no new copies, and what they have is not copied elsewhere.
    pub suspended: Vec<StoreNumber>,
    /// Where stores stand; those without a name are taken to stand in one rack.
    pub rack_of: BTreeMap<StoreNumber, String>,
    /// Grows: each time all stores are asked again what they have.
    pub recovered: u64,
    /// Copies are moved until stores are evenly filled.
    pub rebalances: bool,
    /// Of the stores that are not for both.
    pub role_of: BTreeMap<StoreNumber, Role>,
    /// Stores that are buckets elsewhere; those that are detached are used no more.
    pub pools: BTreeMap<StoreNumber, Pool>,
}

impl Default for CopiesRecord {
    fn default() -> CopiesRecord {
        CopiesRecord {
            copies: 1,
            write: 1,
            racks: 1,
            detached: Vec::new(),
            suspended: Vec::new(),
            rack_of: BTreeMap::new(),
            recovered: 0,
            rebalances: false,
            role_of: BTreeMap::new(),
            pools: BTreeMap::new(),
        }
    }
}

impl CopiesRecord {
    /// Whether the numbers fit each other (C1).
    pub fn is_valid(&self) -> bool {
        let are_few = [self.detached.len(), self.suspended.len(), self.rack_of.len(), self.role_of.len()]
            .iter()
            .all(|len| *len <= STORES_MAX);
        let are_numbers = (1..=self.copies).contains(&self.write) && (1..=self.write).contains(&self.racks);
        let are_pools = self.pools.len() <= POOLS_MAX && self.pools.values().all(Pool::is_valid);
        are_pools
            && are_numbers
            && self.copies <= COPIES_MAX
            && are_few
            && self.rack_of.values().all(|rack| is_rack(rack))
    }

    /// The rack of a store; empty: nobody has said.
    pub fn rack(&self, store: StoreNumber) -> &str {
        self.rack_of.get(&store).map_or("", String::as_str)
    }

    /// In how many racks these stores are.
    pub fn racks_of(&self, stores: impl IntoIterator<Item = StoreNumber>) -> usize {
        let racks: std::collections::BTreeSet<&str> = stores.into_iter().map(|store| self.rack(store)).collect();
        racks.len()
    }

    /// Whether copies of what others write may be sent there.
    pub fn takes_copies(&self, store: StoreNumber) -> bool {
        self.role_of.get(&store) != Some(&Role::Gateway) && !self.is_pool(store)
    }

    pub fn is_pool(&self, store: StoreNumber) -> bool {
        self.pools.contains_key(&store)
    }

    /// As how many copies a segment counts that these stores have.
    pub fn count(&self, stores: impl IntoIterator<Item = StoreNumber>) -> usize {
        stores.into_iter().map(|store| self.pools.get(&store).map_or(1, |pool| usize::from(pool.copies))).sum()
    }

    /// The oldest layout that has all of it.
    fn layout(&self) -> u8 {
        let CopiesRecord { racks, suspended, rack_of, recovered, rebalances, role_of, pools, .. } = self;
        let is_first = (*racks, *recovered, *rebalances) == (1, 0, false) && suspended.is_empty() && rack_of.is_empty();
        match (role_of.is_empty() && pools.is_empty(), is_first) {
            (false, _) => LAYOUT,
            (true, false) => RACKS_LAYOUT,
            (true, true) => FIRST_LAYOUT,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.is_valid(), "C1");
        let mut writer = Writer::new(16 + 3 * self.detached.len());
        let layout = self.layout();
        if layout == FIRST_LAYOUT {
            writer.raw(&[layout, self.copies, self.write]);
            put_stores(&mut writer, &self.detached);
            return writer.finish();
        }
        writer.raw(&[layout, self.copies, self.write, self.racks]);
        put_stores(&mut writer, &self.detached);
        put_stores(&mut writer, &self.suspended);
        writer.varint(self.rack_of.len() as u64);
        for (store, rack) in &self.rack_of {
            writer.varint(store.0.into());
            writer.bytes(rack.as_bytes());
        }
        writer.varint(self.recovered);
        writer.byte(self.rebalances.into());
        if layout == LAYOUT {
            writer.varint(self.role_of.len() as u64);
            for (store, role) in &self.role_of {
                writer.varint(store.0.into());
                writer.byte(if *role == Role::Endpoint { ENDPOINT } else { GATEWAY });
            }
            writer.varint(self.pools.len() as u64);
            for (store, pool) in &self.pools {
                writer.varint(store.0.into());
                pool.put(&mut writer);
            }
        }
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<CopiesRecord, Damaged> {
        let mut reader = Reader::new(value);
        let layout = match value.first() {
            Some(before @ (&FIRST_LAYOUT | &RACKS_LAYOUT)) => *before,
            _ => LAYOUT,
        };
        reader.layout(layout)?;
        let (copies, write) = (reader.byte()?, reader.byte()?);
        let mut record = CopiesRecord { copies, write, ..CopiesRecord::default() };
        if layout == FIRST_LAYOUT {
            record.detached = stores(&mut reader)?;
        } else {
            record.racks = reader.byte()?;
            (record.detached, record.suspended) = (stores(&mut reader)?, stores(&mut reader)?);
            record.rack_of = racks(&mut reader)?;
            record.recovered = reader.varint()?;
            record.rebalances = match reader.byte()? {
                0 => false,
                1 => true,
                _ => return Err(Damaged("whether copies are moved is neither yes nor no")),
            };
            if layout == LAYOUT {
                record.role_of = roles(&mut reader)?;
                record.pools = pools(&mut reader)?;
            }
        }
        reader.end()?;
        // One form for each record.
        if !record.is_valid() || record.layout() != layout {
            return Err(Damaged("numbers of copies do not fit each other"));
        }
        Ok(record)
    }
}

/// Whether a rack may have this name.
pub fn is_rack(name: &str) -> bool {
    (1..=RACK_BYTES_MAX).contains(&name.len()) && !name.chars().any(|c| c.is_control() || c.is_whitespace())
}

fn put_stores(writer: &mut Writer, stores: &[StoreNumber]) {
    assert!(stores.is_sorted_by(|one, next| one < next), "stores ascend");
    writer.varint(stores.len() as u64);
    stores.iter().for_each(|store| writer.varint(store.0.into()));
}

fn count(reader: &mut Reader<'_>) -> Result<usize, Damaged> {
    let count = reader.small::<usize>()?;
    if count > STORES_MAX { Err(Damaged("too many stores")) } else { Ok(count) }
}

fn stores(reader: &mut Reader<'_>) -> Result<Vec<StoreNumber>, Damaged> {
    let count = count(reader)?;
    let stores = (0..count).map(|_| Ok(StoreNumber(reader.small()?))).collect::<Result<Vec<_>, Damaged>>()?;
    if stores.is_sorted_by(|one, next| one < next) { Ok(stores) } else { Err(Damaged("stores do not ascend")) }
}

fn racks(reader: &mut Reader<'_>) -> Result<BTreeMap<StoreNumber, String>, Damaged> {
    let count = count(reader)?;
    let mut racks = BTreeMap::new();
    for _ in 0..count {
        let (store, rack) = (StoreNumber(reader.small()?), reader.text()?.to_owned());
        if racks.last_key_value().is_some_and(|(last, _)| *last >= store) {
            return Err(Damaged("stores do not ascend"));
        }
        racks.insert(store, rack);
    }
    Ok(racks)
}

fn roles(reader: &mut Reader<'_>) -> Result<BTreeMap<StoreNumber, Role>, Damaged> {
    let count = count(reader)?;
    let mut roles = BTreeMap::new();
    for _ in 0..count {
        let store = StoreNumber(reader.small()?);
        let role = match reader.byte()? {
            ENDPOINT => Role::Endpoint,
            GATEWAY => Role::Gateway,
            _ => return Err(Damaged("a store has a role that does not exist")),
        };
        if roles.last_key_value().is_some_and(|(last, _)| *last >= store) {
            return Err(Damaged("stores do not ascend"));
        }
        roles.insert(store, role);
    }
    Ok(roles)
}

fn pools(reader: &mut Reader<'_>) -> Result<BTreeMap<StoreNumber, Pool>, Damaged> {
    let count = count(reader)?;
    let mut pools = BTreeMap::new();
    for _ in 0..count {
        let (store, pool) = (StoreNumber(reader.small()?), Pool::get(reader)?);
        if pools.last_key_value().is_some_and(|(last, _)| *last >= store) {
            return Err(Damaged("stores do not ascend"));
        }
        pools.insert(store, pool);
    }
    Ok(pools)
}
