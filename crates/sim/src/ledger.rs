//! What was asked, what was acknowledged, and so what must and may be there.
//!
//! Why:        most keys have one writer, so their state is known exactly up to the one operation under way; a few
//!             keys have many writers, and for those the order of answers says what may be there.
//! Invariants: L1 after `freeze` nothing is acknowledged any more: what counts happened before the power went.
//!             L2 an operation under way is there whole or not at all; once somebody was shown it, it is there.
//! Not here:   choosing operations (client), comparing (verify).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use crate::blob::Blob;
use crate::target::Part;
use crate::{Failure, fail};

/// An object's bytes, by length and fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content {
    pub len: u64,
    print: u64,
}

impl Content {
    pub fn of(bytes: &[u8]) -> Content {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(bytes);
        Content { len: bytes.len() as u64, print: hasher.finish() }
    }

    pub fn of_parts<'a>(blobs: impl Iterator<Item = &'a Blob>) -> Content {
        Content::of(&blobs.flat_map(Blob::bytes).collect::<Vec<u8>>())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upload {
    pub key: String,
    pub parts: BTreeMap<u16, Part>,
}

impl Upload {
    /// A part was never answered, so its ETag is not known and no completion can name it.
    pub fn nameless(&self) -> bool {
        self.parts.values().any(|part| part.etag.is_empty())
    }
}

/// All that one client has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    pub objects: BTreeMap<String, Content>,
    pub uploads: BTreeMap<String, Upload>,
}

/// An operation that was not answered yet.
#[derive(Clone, Debug)]
pub struct Pending {
    pub what: String,
    /// All that the client has if it happens.
    pub after: Holding,
    /// It creates an upload whose id nobody knows yet, for this key.
    pub new_upload: Option<String>,
    /// Somebody was shown it.
    pub shown: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Owner {
    pub now: Holding,
    pub pending: Option<Pending>,
}

/// A write to a key that many write to; `None` removes.
#[derive(Clone, Copy, Debug)]
struct SharedWrite {
    id: u64,
    content: Option<Content>,
    begun: u64,
    /// When it had surely happened, durably.
    ended: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Ledger {
    pub owners: Vec<Owner>,
    shared: BTreeMap<String, Vec<SharedWrite>>,
    /// Everything that was ever written to a key with one owner.
    written: BTreeMap<String, BTreeSet<Content>>,
    time: u64,
    frozen: bool,
    pub acknowledged: u64,
}

/// The client that owns a key: the digits after the first `c` that has some.
pub fn owner_of(key: &str) -> Option<usize> {
    key.split('c').skip(1).find_map(|rest| {
        let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        rest[..digits].parse().ok()
    })
}

impl Ledger {
    pub fn new(clients: usize) -> Ledger {
        Ledger { owners: vec![Owner::default(); clients], ..Ledger::default() }
    }

    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    pub fn frozen(&self) -> bool {
        self.frozen
    }

    /// Nothing counts from here on: the power goes.
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    pub fn thaw(&mut self) {
        self.frozen = false;
    }

    pub fn begin(&mut self, client: usize, pending: Pending) {
        for (key, content) in &pending.after.objects {
            if self.owners[client].now.objects.get(key) != Some(content) {
                self.written.entry(key.clone()).or_default().insert(*content);
            }
        }
        let before = self.owners[client].pending.replace(pending);
        assert!(before.is_none(), "a client does one thing at a time");
    }

    /// The operation was answered with yes. `upload` is the id that it made.
    pub fn done(&mut self, client: usize, upload: Option<String>) {
        let owner = &mut self.owners[client];
        let Pending { mut after, new_upload, .. } = owner.pending.take().expect("it was begun");
        if let (Some(key), Some(id)) = (new_upload, upload) {
            after.uploads.insert(id, Upload { key, parts: BTreeMap::new() });
        }
        owner.now = after;
        self.acknowledged += 1;
    }

    /// The operation was answered with no.
    pub fn refused(&mut self, client: usize) -> Result<(), Failure> {
        let pending = self.owners[client].pending.take().expect("it was begun");
        if pending.shown {
            fail!("{} was refused after somebody was shown it", pending.what);
        }
        self.acknowledged += 1;
        Ok(())
    }

    /// A client read a key of another one.
    pub fn shown(&mut self, key: &str, found: Option<Content>) -> Result<(), Failure> {
        let Some(found) = found else { return Ok(()) };
        if !self.written.get(key).is_some_and(|contents| contents.contains(&found)) {
            fail!("{key} shows {} bytes that were never written there", found.len);
        }
        let owner = owner_of(key).and_then(|client| self.owners.get_mut(client)).expect("the key has an owner");
        if let Some(pending) = &mut owner.pending
            && pending.after.objects.get(key) == Some(&found)
            && owner.now.objects.get(key) != Some(&found)
        {
            pending.shown = true;
        }
        Ok(())
    }

    /// Begins a write to a key that many write to, and gives its number.
    pub fn begin_shared(&mut self, key: &str, content: Option<Content>) -> u64 {
        let begun = self.tick();
        let writes = self.shared.entry(key.to_owned()).or_insert_with(|| vec![nothing()]);
        writes.push(SharedWrite { id: begun, content, begun, ended: None });
        begun
    }

    pub fn done_shared(&mut self, key: &str, id: u64) {
        let now = self.tick();
        let write = self.shared.get_mut(key).and_then(|writes| writes.iter_mut().find(|write| write.id == id));
        let write = write.expect("it was begun");
        write.ended = Some(write.ended.map_or(now, |ended| ended.min(now)));
        self.acknowledged += 1;
    }

    pub fn refused_shared(&mut self, key: &str, id: u64) {
        self.shared.get_mut(key).expect("it was begun").retain(|write| write.id != id);
    }

    /// The moment before a read.
    pub fn moment(&mut self) -> u64 {
        self.tick()
    }

    /// A read that began at `begun` found this at a key that many write to: may it be so? From now on it has to stay.
    pub fn shown_shared(&mut self, key: &str, found: Option<Content>, begun: u64) -> Result<(), Failure> {
        let now = self.tick();
        let writes = self.shared.entry(key.to_owned()).or_insert_with(|| vec![nothing()]);
        let sure: Vec<(u64, u64)> = writes.iter().filter_map(|one| Some((one.begun, one.ended?))).collect();
        let replaced = |write: &SharedWrite| {
            let after = |end: u64| sure.iter().any(|(other, done)| *other > end && *done < begun);
            write.ended.is_some_and(after)
        };
        let Some(write) = writes.iter_mut().rev().find(|write| write.content == found && !replaced(write)) else {
            fail!("{key} shows {found:?}, which no write explains: {writes:?}");
        };
        // Contents are unique, so this very write has happened; a removal may be any of several.
        if found.is_some() {
            write.ended = Some(write.ended.map_or(now, |ended| ended.min(now)));
        }
        Ok(())
    }

    pub fn shared_keys(&self) -> Vec<String> {
        self.shared.keys().cloned().collect()
    }

    /// What settled keys hold that many write to.
    pub fn shared_contents(&self) -> Vec<Content> {
        self.shared.values().filter_map(|writes| writes.last()?.content).collect()
    }

    /// After a restart: this is what is there, and everything else is history.
    pub fn settle_shared(&mut self, key: &str, found: Option<Content>) {
        let now = self.tick();
        self.shared.insert(key.to_owned(), vec![SharedWrite { id: now, content: found, begun: now, ended: Some(now) }]);
    }

    /// After a restart: a client has this.
    pub fn settle(&mut self, client: usize, holding: Holding) {
        self.owners[client] = Owner { now: holding, pending: None };
    }
}

fn nothing() -> SharedWrite {
    SharedWrite { id: 0, content: None, begun: 0, ended: Some(0) }
}
