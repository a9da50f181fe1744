//! Rows of identities: accounts, users, keys and policies. The volume stores them without interpreting them.
//!
//! Why:        they are stored and backed up with the data that they protect, and change atomically.
//! Layout:     rows `y` (docs/format/identities.md); the row `y` alone counts changes (the generation).
//! Invariants: W1 a change asserts the generation on which it was decided, so of two concurrent ones one is decided
//!                again.
//! Not here:   what a row means (margay-iam), secrets (encrypted by the caller).

use std::ops::ControlFlow;

use bytes::Bytes;
use margay_rows::key;

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::open::Volume;

/// First byte of a value.
const LAYOUT: u8 = 1;
/// Maximum number of rows in a change.
pub const IDENTITY_CHANGES_MAX: usize = 1000;

/// One row: kind, name and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRow {
    pub kind: u8,
    pub name: String,
    pub content: Bytes,
}

/// All rows of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identities {
    pub rows: Vec<IdentityRow>,
    /// Changes with every change.
    pub generation: u64,
}

/// A row to write, or to remove if it has no content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityChange {
    pub kind: u8,
    pub name: String,
    pub content: Option<Vec<u8>>,
}

impl Volume {
    pub async fn identities(&self) -> Result<Identities, Error> {
        let mut seen = Seen::default();
        let found = self.read_now(&mut seen, |seen| self.read_identities(seen)).await;
        self.settle(seen.cursor).await?;
        found
    }

    /// That of the newest change, of any process.
    pub async fn identities_generation(&self) -> Result<u64, Error> {
        let mut seen = Seen::default();
        let read = |seen: &mut Seen| self.get(&key::identity_generation(), seen);
        let found = self.read_now(&mut seen, read).await;
        self.settle(seen.cursor).await?;
        Ok(found?.map_or(0, |row| row.version.bits()))
    }

    fn read_identities(&self, seen: &mut Seen) -> Result<Identities, Error> {
        let generation = self.get(&key::identity_generation(), seen)?.map_or(0, |row| row.version.bits());
        let mut rows = Vec::new();
        self.scan(&key::identities(), seen, |row| {
            let (kind, name) = key::parse_identity(row.key)?;
            match row.value.split_first() {
                Some((&LAYOUT, content)) => {
                    rows.push(IdentityRow { kind, name: name.to_owned(), content: Bytes::copy_from_slice(content) });
                    Ok(ControlFlow::Continue(()))
                }
                _ => Err(Error::Corrupt(format!("the record of {name} has an unknown layout"))),
            }
        })?;
        // Every change writes the generation: if it is unchanged, the scan saw one moment.
        Ok(Identities { rows, generation })
    }

    /// Applies changes that were decided on `generation`; `PreconditionFailed` if it has changed since. Returns the new
    /// generation.
    pub async fn change_identities(&self, generation: u64, changes: &[IdentityChange]) -> Result<u64, Error> {
        self.check_room()?;
        if changes.len() > IDENTITY_CHANGES_MAX {
            return Err(Error::TooLarge);
        }
        let done = self.decide_committed(Seen::default(), |seen| {
            let row = self.get(&key::identity_generation(), seen)?;
            let version = row.map(|row| row.version);
            if version.map_or(0, |version| version.bits()) != generation {
                return Err(Error::PreconditionFailed.into());
            }
            let mut draft = Draft::default();
            draft.assert_unchanged(key::identity_generation(), version);
            draft.put(key::identity_generation(), vec![LAYOUT]);
            for change in changes {
                let row = key::identity(change.kind, &change.name);
                match &change.content {
                    Some(content) => drop(draft.put(row, [&[LAYOUT], content.as_slice()].concat())),
                    None => draft.delete(row),
                }
            }
            self.finish(draft, ())
        });
        let done = done.await.map(|((), done)| {
            let generation = done.map_or(generation, |done| done.version.bits());
            (generation, self.place_of(done))
        });
        self.answer(done).await
    }
}
