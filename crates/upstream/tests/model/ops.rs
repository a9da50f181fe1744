//! What users do, and how often by the seed.

use std::collections::BTreeMap;

use margay_volume::posix::RenameMode;

use crate::chance::Chance;
use crate::machine::Shown;
use crate::text::{Draft, Growth};

/// Contents of files by their keys.
pub(crate) type Tree = BTreeMap<String, String>;

/// What a user does; paths are keys.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Writes a file, and waits until it is sent or not.
    Write {
        path: String,
        draft: Draft,
        syncs: bool,
    },
    /// A step of a write to a file that stays open: of the one that is, or of one at this path.
    Grow {
        path: String,
        growth: Growth,
        shown: Shown,
    },
    /// Closes it.
    Close {
        syncs: bool,
    },
    Unlink(String),
    Rename {
        from: String,
        to: String,
        mode: RenameMode,
    },
    /// As `mv` between two file systems: a copy, and a removal.
    Move {
        from: String,
        to: String,
    },
    MakeDirectory(String),
    RemoveDirectory(String),
    ChangeRights(String, u32),
    Read(String),
    List,
    /// Waits for what a sync of this mount waits for.
    SyncAll,
    /// Waits for the bucket.
    Drain,
    /// Bytes that were sent are let go, segments are compacted, the log is folded.
    Evict,
    Reclaim,
    Checkpoint,
}

pub(crate) const PLACES: [&str; 6] = ["a", "b", "d/a", "d/b", "e/a", "e/b"];
const DIRECTORIES: [&str; 3] = ["d", "e", "d/d"];

/// What the users of a seed do most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    Everything,
    /// Files are moved on and on, between few names.
    Moves,
    /// A few files are written, sent, let go and read.
    Evicts,
}

/// How a seed's users work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) most: Habit,
    /// Contents of several parts.
    pub(crate) has_long: bool,
    /// Files that stay open while they are written.
    pub(crate) grows: bool,
}

impl Habits {
    pub(crate) fn by(chance: &mut Chance) -> Habits {
        let most = chance.of(&[Habit::Everything, Habit::Everything, Habit::Moves, Habit::Evicts]);
        let (has_long, grows) = chance.of(&[(false, false), (false, false), (true, false), (true, true)]);
        Habits { most, has_long, grows }
    }

    fn place(self, chance: &mut Chance) -> String {
        let places = match self.most {
            Habit::Everything => &PLACES[..],
            Habit::Moves => &PLACES[1..5],
            Habit::Evicts => &PLACES[1..3],
        };
        chance.of(places).to_owned()
    }

    pub(crate) fn draft(self, name: String, chance: &mut Chance) -> Draft {
        let units = if self.has_long { chance.of(&[0, 0, 25, 50]) } else { 0 };
        let start = chance.below(40) as usize;
        let patch = (units > 0 && chance.below(2) == 0).then(|| start..start + 1 + chance.below(25) as usize);
        Draft { name, units, patch }
    }

    /// Something about the file that stays open.
    pub(crate) fn grow(self, name: String, chance: &mut Chance) -> Op {
        if chance.below(6) == 0 {
            return Op::Close { syncs: chance.below(2) == 0 };
        }
        let start = chance.below(80) as usize;
        let patch = (chance.below(3) == 0).then(|| start..start + 1 + chance.below(40) as usize);
        let cut = (chance.below(10) == 0).then(|| 1 + chance.below(60) as usize);
        let growth = Growth { name, units: chance.of(&[30, 60, 110]), patch, cut };
        let shown = match chance.below(8) {
            0 => Shown::Flushed,
            1 => Shown::Synced,
            _ => Shown::ToNobody,
        };
        // Of a file that is new here parts go ahead.
        let (place, is_new) = (self.place(chance), chance.below(3) > 0);
        let path = if is_new { chance.of(&PLACES[..2]).to_owned() } else { place };
        Op::Grow { path, growth, shown }
    }

    /// Something that changes no other file.
    pub(crate) fn beside_open(self, name: String, chance: &mut Chance) -> Op {
        match chance.below(8) {
            0 => Op::Read(self.place(chance)),
            1 => Op::Evict,
            2 => Op::Reclaim,
            3 => Op::Checkpoint,
            _ => self.grow(name, chance),
        }
    }

    pub(crate) fn op(self, writes: bool, name: String, chance: &mut Chance) -> Op {
        let (one, two) = (self.place(chance), self.place(chance));
        let (first, second) = (chance.of(&DIRECTORIES).to_owned(), chance.of(&DIRECTORIES).to_owned());
        let draft = self.draft(name, chance);
        let rights = 0o600 + chance.below(0o100) as u32;
        let write = |syncs| Op::Write { path: one.clone(), draft: draft.clone(), syncs };
        let rename = |mode| Op::Rename { from: one.clone(), to: two.clone(), mode };
        let number = if writes { chance.below(32) } else { 22 + chance.below(10) };
        if one == two || first == second {
            return Op::Read(one);
        }
        match (self.most, number) {
            (Habit::Everything, 0..8) => write(number % 2 == 0),
            (Habit::Everything, 8..12) => rename(RenameMode::Replace),
            (Habit::Everything, 13) => Op::Move { from: one, to: two },
            (Habit::Everything, 14) => Op::Rename { from: first, to: second, mode: RenameMode::Replace },
            (Habit::Everything, 15..18) => Op::Unlink(one),
            (Habit::Everything, 20 | 21) => Op::ChangeRights(one, rights),
            (Habit::Moves, 0..4) => write(false),
            (Habit::Moves, 4..=10 | 13) => rename(RenameMode::Replace),
            (Habit::Moves, 14..18) => Op::Move { from: one, to: two },
            (Habit::Moves, 20 | 21) => Op::Unlink(one),
            (Habit::Evicts, 0..8) => write(number < 6),
            (Habit::Evicts, 8) => rename(RenameMode::Replace),
            (Habit::Evicts, 9..12) => Op::Drain,
            (Habit::Evicts, 13..16) => Op::List,
            (Habit::Evicts, 16..18 | 20 | 21) => Op::Evict,
            (_, 12) => rename(RenameMode::Exchange),
            (_, 18) => Op::MakeDirectory(first),
            (_, 19) => Op::RemoveDirectory(first),
            (_, 22 | 23) => Op::Read(one),
            (_, 24..27) => Op::List,
            (_, 27 | 28) => Op::SyncAll,
            (_, 29) => Op::Evict,
            (_, 30) => Op::Reclaim,
            _ => Op::Checkpoint,
        }
    }
}
