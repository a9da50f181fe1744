//! Where the store of another process is reached.
//!
//! Not here:   how its bytes come here (an implementation of `Peers`).

use margay_meta::Engine;
use margay_rows::record::{SessionRecord, StoreRecord};
use margay_rows::{Ino, key};
use margay_segment::{StoreIdentity, StoreName, StoreNumber};

use crate::api::Error;

/// A store that a process has open now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlace {
    pub name: StoreName,
    /// `HOST:PORT`, as that process says.
    pub address: String,
}

/// `None`: no process has the store open, or it gives nothing to others.
pub fn store_place(engine: &dyn Engine, number: StoreNumber) -> Result<Option<StorePlace>, Error> {
    let Some(row) = engine.get(&key::store(number))?.value else { return Ok(None) };
    let record = StoreRecord::decode(&row.value)?;
    let Some(SessionRecord { address, .. }) = session_of(engine, &record)? else { return Ok(None) };
    let StoreRecord { identity, generation, .. } = record;
    let name = StoreName { identity, number, generation };
    Ok((!address.is_empty()).then_some(StorePlace { name, address }))
}

/// Who the store is; `None`: no folder was ever given that number.
pub fn store_identity(engine: &dyn Engine, number: StoreNumber) -> Result<Option<StoreIdentity>, Error> {
    let row = engine.get(&key::store(number))?.value;
    Ok(row.map(|row| StoreRecord::decode(&row.value)).transpose()?.map(|record| record.identity))
}

/// The session that has the store open, or had it last; `None`: it has ended.
pub(super) fn session_of(engine: &dyn Engine, store: &StoreRecord) -> Result<Option<SessionRecord>, Error> {
    let row = engine.get(&key::session(Ino(store.session)))?.value;
    Ok(row.map(|row| SessionRecord::decode(&row.value)).transpose()?)
}
