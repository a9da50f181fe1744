//! Walks every reachable page of the tree, directly from the disk.
//!
//! Why:        reads find only the damage that they meet, and caches hide the disk; a page that is intact in itself may
//!             be stale. redb's own checksums, each in the parent of its page, detect both.
//! Layout:     redb's file format 3 (docs/format/log.md names what is read of it).
//! Invariants: W1 only reads. Damage is reported with the keys around it.
//!             W2 a page without an entry in `rows.sums` gets one only after redb's checksum was verified.
//! Locking:    the caller prevents writes to the pages: by a snapshot, or by the lock of folds.
//! Not here:   when to walk and how fast (the caller's visitor).

use std::ops::ControlFlow;

use xxhash_rust::xxh3::xxh3_128;

use super::page_file::{HEAD_BYTES, PageFile};
use super::page_sums::BLOCK_BYTES;
use super::tree::{ROWS_NAME, row_is_right};
use crate::{Checked, EngineError};

/// Bytes of a key shown in an error.
const KEY_SHOWN_BYTES: usize = 120;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// Bytes of a root as tables and commit slots name it: page, checksum, count of rows.
const ROOT_BYTES: usize = 32;
/// More levels than any tree has.
const DEPTH_MAX: usize = 128;
/// Largest page, as a power of two of blocks.
const ORDER_MAX: u64 = 20;
/// A table of rows, in the list of tables.
const NORMAL_TABLE: u8 = 3;

/// Formats a key for people.
pub(super) fn key_text(key: &[u8]) -> String {
    if key.is_empty() {
        return "the beginning".into();
    }
    let more = if key.len() > KEY_SHOWN_BYTES { "..." } else { "" };
    format!("\"{}\"{more}", key[..key.len().min(KEY_SHOWN_BYTES)].escape_ascii())
}

/// Widths of keys and values, where they are fixed.
#[derive(Clone, Copy, Debug, Default)]
struct Widths {
    key: Option<usize>,
    value: Option<usize>,
}

/// A page as its parent names it.
#[derive(Clone, Copy, Debug)]
struct Link {
    page: u64,
    checksum: u128,
}

/// What a tree's leaves hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// Names of tables and their roots.
    Tables,
    Rows,
    Other,
}

/// A page that is still to be read, with the keys between which its rows lie.
struct Todo {
    link: Link,
    depth: usize,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn link(bytes: &[u8], page_at: usize, checksum_at: usize) -> Option<Link> {
    let checksum = u128::from_le_bytes(bytes.get(checksum_at..checksum_at + 16)?.try_into().ok()?);
    Some(Link { page: long(bytes, page_at)?, checksum })
}

/// Where pages lie, and the two trees of the commit in force.
#[derive(Debug)]
pub(super) struct Head {
    region_bytes: u64,
    region_header_bytes: u64,
    /// The list of tables of rows, and redb's own tables.
    user: Option<Link>,
    system: Option<Link>,
}

impl Head {
    pub(super) fn parse(head: &[u8; HEAD_BYTES]) -> Result<Head, EngineError> {
        const SLOT_BYTES: usize = 128;
        let broken = || EngineError::Corrupt("the head of tree/rows.redb does not decode".into());
        let slot = 64 + SLOT_BYTES * usize::from(head[9] & 1);
        let slot = &head[slot..slot + SLOT_BYTES];
        let checksum = u128::from_le_bytes(slot[112..].try_into().map_err(|_| broken())?);
        if xxh3_128(&slot[..112]) != checksum || word(head, 12) != Some(BLOCK_BYTES) {
            return Err(broken());
        }
        let (header_pages, data_pages) = (word(head, 16).ok_or_else(broken)?, word(head, 20).ok_or_else(broken)?);
        let root = |there: u8, at: usize| (there != 0).then(|| link(slot, at, at + 8)).flatten();
        Ok(Head {
            region_bytes: (header_pages as u64 + data_pages as u64) * BLOCK_BYTES as u64,
            region_header_bytes: header_pages as u64 * BLOCK_BYTES as u64,
            user: root(slot[1], 8),
            system: root(slot[2], 8 + ROOT_BYTES),
        })
    }

    /// Offset and length of a page; `None` for a number that names none.
    fn place(&self, page: u64) -> Option<(u64, usize)> {
        let order = page >> 59;
        if order > ORDER_MAX {
            return None;
        }
        let index = page & (0xf_ffff >> order);
        let region = (page >> 20) & 0xf_ffff;
        let len = (BLOCK_BYTES as u64) << order;
        let offset = BLOCK_BYTES as u64 + region * self.region_bytes + self.region_header_bytes + index * len;
        Some((offset, len as usize))
    }
}

pub(super) struct Walk<'a> {
    pub(super) pages: &'a PageFile,
    pub(super) head: &'a Head,
    pub(super) shown_max: usize,
    pub(super) checked: &'a mut Checked,
    /// Told after each page; may wait, or end the walk.
    pub(super) pace: &'a mut dyn FnMut(&Checked) -> ControlFlow<()>,
}

impl Walk<'_> {
    /// redb's own tables: they are written over by the next fold, so none may run meanwhile.
    pub(super) fn system(&mut self) -> ControlFlow<()> {
        self.tree("redb's own tables", self.head.system, Widths::default(), Holds::Tables)
    }

    /// The rows and the state, as of the commit in force.
    pub(super) fn user(&mut self) -> ControlFlow<()> {
        self.tree("the list of tables", self.head.user, Widths::default(), Holds::Tables)
    }

    fn tree(&mut self, name: &str, root: Option<Link>, widths: Widths, holds: Holds) -> ControlFlow<()> {
        let Some(link) = root else { return ControlFlow::Continue(()) };
        let mut stack = vec![Todo { link, depth: 0, from: Vec::new(), to: None }];
        let mut page = Vec::new();
        while let Some(todo) = stack.pop() {
            let mut tables = Vec::new();
            if let Err(why) = self.page(&todo, widths, holds, &mut page, &mut stack, &mut tables) {
                self.found(name, holds, &todo, &why);
            }
            (self.pace)(self.checked)?;
            for (table, root, widths) in tables {
                let holds = if table == ROWS_NAME { Holds::Rows } else { Holds::Other };
                self.tree(&format!("table {table}"), root, widths, holds)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn found(&mut self, name: &str, holds: Holds, todo: &Todo, why: &str) {
        self.checked.damaged += 1;
        if self.checked.shown.len() >= self.shown_max {
            return;
        }
        let place = self.head.place(todo.link.page).map_or(0, |(offset, _)| offset);
        let keys = match (holds, &todo.to) {
            (Holds::Rows, Some(to)) => format!("rows after {} up to {}", key_text(&todo.from), key_text(to)),
            (Holds::Rows, None) => format!("rows after {}", key_text(&todo.from)),
            _ => name.to_owned(),
        };
        self.checked.shown.push(format!("{keys}: tree/rows.redb, page at byte {place}: {why}"));
    }

    fn page(
        &mut self,
        todo: &Todo,
        widths: Widths,
        holds: Holds,
        page: &mut Vec<u8>,
        stack: &mut Vec<Todo>,
        tables: &mut Vec<(String, Option<Link>, Widths)>,
    ) -> Result<(), String> {
        let no_sense = || "it does not decode".to_owned();
        let (offset, len) = self.head.place(todo.link.page).ok_or("its parent names no page")?;
        self.checked.pages += 1;
        self.checked.bytes += len as u64;
        self.checked.last = (offset, len as u64);
        page.resize(len, 0);
        self.pages.read_blocks(offset, page)?;
        let end = match page[0] {
            LEAF => leaf_end(page, widths),
            BRANCH if todo.depth < DEPTH_MAX => branch_end(page, widths),
            _ => None,
        };
        let covered = end.and_then(|end| page.get(..end)).ok_or_else(no_sense)?;
        if xxh3_128(covered) != todo.link.checksum {
            return Err("it is not the one that its parent names: a write of it was lost".into());
        }
        let first = (offset / BLOCK_BYTES as u64) as usize;
        for (index, block) in page.chunks(BLOCK_BYTES).enumerate() {
            self.pages.sums.learn(first + index, block);
        }
        if page[0] == BRANCH {
            return push_children(page, widths, todo, stack).ok_or_else(no_sense);
        }
        match holds {
            Holds::Tables => read_tables(page, tables).ok_or_else(no_sense),
            Holds::Rows => check_rows(page),
            Holds::Other => Ok(()),
        }
    }
}

fn count(page: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([page[2], page[3]]))
}

/// Where the ends of a leaf's values begin, and where its keys do.
fn leaf_sections(page: &[u8], widths: Widths) -> (usize, usize) {
    let values = 4 + if widths.key.is_none() { 4 * count(page) } else { 0 };
    (values, values + if widths.value.is_none() { 4 * count(page) } else { 0 })
}

/// End of the key with this number.
fn leaf_key_end(page: &[u8], widths: Widths, index: usize) -> Option<usize> {
    match widths.key {
        Some(width) => Some(leaf_sections(page, widths).1 + width * (index + 1)),
        None => word(page, 4 + 4 * index),
    }
}

fn leaf_value_end(page: &[u8], widths: Widths, index: usize) -> Option<usize> {
    match widths.value {
        Some(width) => Some(leaf_key_end(page, widths, count(page).checked_sub(1)?)? + width * (index + 1)),
        None => word(page, leaf_sections(page, widths).0 + 4 * index),
    }
}

fn leaf_end(page: &[u8], widths: Widths) -> Option<usize> {
    leaf_value_end(page, widths, count(page).checked_sub(1)?)
}

/// A row of a leaf whose keys and values have no fixed width.
fn leaf_row(page: &[u8], index: usize) -> Option<(&[u8], &[u8])> {
    let widths = Widths::default();
    let key_begin = match index.checked_sub(1) {
        Some(before) => leaf_key_end(page, widths, before)?,
        None => leaf_sections(page, widths).1,
    };
    let value_begin = match index.checked_sub(1) {
        Some(before) => leaf_value_end(page, widths, before)?,
        None => leaf_key_end(page, widths, count(page).checked_sub(1)?)?,
    };
    let key = page.get(key_begin..leaf_key_end(page, widths, index)?)?;
    Some((key, page.get(value_begin..leaf_value_end(page, widths, index)?)?))
}

fn branch_keys_at(page: &[u8]) -> usize {
    8 + 24 * (count(page) + 1)
}

fn branch_key_end(page: &[u8], widths: Widths, index: usize) -> Option<usize> {
    match widths.key {
        Some(width) => Some(branch_keys_at(page) + width * (index + 1)),
        None => word(page, branch_keys_at(page) + 4 * index),
    }
}

fn branch_end(page: &[u8], widths: Widths) -> Option<usize> {
    branch_key_end(page, widths, count(page).checked_sub(1)?)
}

/// The greatest key that may lie below the child with this number.
fn branch_key(page: &[u8], widths: Widths, index: usize) -> Option<&[u8]> {
    let begin = match (index.checked_sub(1), widths.key) {
        (Some(before), _) => branch_key_end(page, widths, before)?,
        (None, Some(_)) => branch_keys_at(page),
        (None, None) => branch_keys_at(page) + 4 * count(page),
    };
    page.get(begin..branch_key_end(page, widths, index)?)
}

/// The children, so that the first is popped first.
fn push_children(page: &[u8], widths: Widths, todo: &Todo, stack: &mut Vec<Todo>) -> Option<()> {
    let children = count(page) + 1;
    for child in (0..children).rev() {
        let link = link(page, 8 + 16 * children + 8 * child, 8 + 16 * child)?;
        let from = match child.checked_sub(1) {
            Some(before) => branch_key(page, widths, before)?.to_vec(),
            None => todo.from.clone(),
        };
        let to = if child + 1 == children { todo.to.clone() } else { Some(branch_key(page, widths, child)?.to_vec()) };
        stack.push(Todo { link, depth: todo.depth + 1, from, to });
    }
    Some(())
}

/// A line of a list of tables: kind, rows, root, widths.
fn read_tables(page: &[u8], tables: &mut Vec<(String, Option<Link>, Widths)>) -> Option<()> {
    for index in 0..count(page) {
        let (name, table) = leaf_row(page, index)?;
        let root_at = 10;
        let root = if *table.get(9)? == 0 { None } else { Some(link(table, root_at, root_at + 8)?) };
        let width = |at: usize| -> Option<Option<usize>> {
            if *table.get(at)? == 0 { Some(None) } else { word(table, at + 1).map(Some) }
        };
        let widths = Widths { key: width(root_at + ROOT_BYTES)?, value: width(root_at + ROOT_BYTES + 5)? };
        // redb keeps no table of several values a key here.
        if table[0] != NORMAL_TABLE {
            return None;
        }
        tables.push((String::from_utf8_lossy(name).into_owned(), root, widths));
    }
    Some(())
}

fn check_rows(page: &[u8]) -> Result<(), String> {
    for index in 0..count(page) {
        let (key, stored) = leaf_row(page, index).ok_or("it does not decode")?;
        if !row_is_right(key, stored) {
            return Err(format!("the row {} does not match its checksum", key_text(key)));
        }
    }
    Ok(())
}
