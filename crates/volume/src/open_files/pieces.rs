//! The content of an open file by offset: stored extents, holes, buffered bytes, and bytes of an encrypted object.
//!
//! Why:        written and existing data are one map, so reading, publishing and sharing see the same file.
//! Invariants: P1 pieces are contiguous from 0 to the file's size; none is empty.
//!             P2 adjacent pieces that continue each other are merged: holes, and extents of one run.
//!             P3 `memory`, `holes` and `encrypted` are the sums over the map.
//! Not here:   access control (the state's lock), storing pieces (publish, write_out).

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::sync::Arc;

use margay_segment::Extent;

use crate::reader::EncryptedContent;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Reads as zeros and takes no space.
    Hole,
    /// The extent's `len` is the piece's.
    Stored(Extent),
    Memory(Vec<u8>),
    /// Decrypted bytes of an encrypted object, from this offset of it on.
    Encrypted(Arc<EncryptedContent>, u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) len: u64,
    pub(crate) content: Content,
}

#[derive(Debug, Default)]
pub(crate) struct Pieces {
    map: BTreeMap<u64, Piece>,
    end: u64,
    memory: u64,
    holes: u64,
    encrypted: u64,
}

impl Piece {
    pub(crate) fn hole(len: u64) -> Piece {
        Piece { len, content: Content::Hole }
    }

    pub(crate) fn stored(extent: Extent) -> Piece {
        Piece { len: extent.len, content: Content::Stored(extent) }
    }

    pub(crate) fn memory(bytes: Vec<u8>) -> Piece {
        Piece { len: bytes.len() as u64, content: Content::Memory(bytes) }
    }

    pub(crate) fn encrypted(len: u64, content: Arc<EncryptedContent>) -> Piece {
        Piece { len, content: Content::Encrypted(content, 0) }
    }

    pub(crate) fn extent(&self) -> Option<&Extent> {
        match &self.content {
            Content::Stored(extent) => Some(extent),
            Content::Hole | Content::Memory(_) | Content::Encrypted(..) => None,
        }
    }

    /// Keeps the first `at` bytes and gives the rest.
    fn split_off(&mut self, at: u64) -> Piece {
        assert!(0 < at && at < self.len, "a split lies inside its piece");
        let rest = self.len - at;
        let content = match &mut self.content {
            Content::Hole => Content::Hole,
            Content::Stored(extent) => {
                extent.len = at;
                Content::Stored(Extent { run: extent.run, skip: extent.skip + at, len: rest })
            }
            Content::Memory(bytes) => Content::Memory(bytes.split_off(at as usize)),
            Content::Encrypted(content, skip) => Content::Encrypted(Arc::clone(content), *skip + at),
        };
        self.len = at;
        Piece { len: rest, content }
    }

    /// Absorbs the next piece if it continues this one.
    fn absorb(&mut self, next: &Piece) -> bool {
        match (&mut self.content, &next.content) {
            (Content::Hole, Content::Hole) => {}
            (Content::Stored(one), Content::Stored(other))
                if one.run == other.run && one.skip + one.len == other.skip =>
            {
                one.len += other.len;
            }
            _ => return false,
        }
        self.len += next.len;
        true
    }
}

impl Pieces {
    /// The size of the file.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Buffered bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// Bytes that are not holes.
    pub(crate) fn stored(&self) -> u64 {
        self.end - self.holes
    }

    /// Bytes of an encrypted object that were not overwritten.
    pub(crate) fn encrypted(&self) -> u64 {
        self.encrypted
    }

    pub(crate) fn count(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Piece)> {
        self.map.iter().map(|(start, piece)| (*start, piece))
    }

    /// The last piece, and where it begins.
    pub(crate) fn last(&self) -> Option<(u64, &Piece)> {
        self.map.last_key_value().map(|(start, piece)| (*start, piece))
    }

    /// The piece that contains `offset`, and those after it.
    pub(crate) fn from(&self, offset: u64) -> Range<'_, u64, Piece> {
        let first = self.map.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        self.map.range(first..)
    }

    /// Pieces clipped to `start..end`, in order: the start of each part, the piece, and the offset in it.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, &Piece, u64)> {
        let end = end.min(self.end);
        self.from(start).take_while(move |(at, _)| **at < end && start < end).map(move |(at, piece)| {
            let (from, to) = (start.max(*at), end.min(*at + piece.len));
            (from, to - from, piece, from - at)
        })
    }

    fn added(&mut self, piece: &Piece) {
        match piece.content {
            Content::Hole => self.holes += piece.len,
            Content::Memory(_) => self.memory += piece.len,
            Content::Encrypted(..) => self.encrypted += piece.len,
            Content::Stored(_) => {}
        }
    }

    fn removed(&mut self, piece: &Piece) {
        match piece.content {
            Content::Hole => self.holes -= piece.len,
            Content::Memory(_) => self.memory -= piece.len,
            Content::Encrypted(..) => self.encrypted -= piece.len,
            Content::Stored(_) => {}
        }
    }

    /// Appends at the end.
    pub(crate) fn push(&mut self, piece: Piece) {
        if piece.len > 0 {
            let at = self.end;
            self.end += piece.len;
            self.added(&piece);
            self.put(at, piece);
        }
    }

    /// Inserts a piece into a gap, and merges it with the previous one if it continues that.
    fn put(&mut self, at: u64, piece: Piece) {
        if let Some((start, before)) = self.map.range_mut(..at).next_back()
            && start + before.len == at
            && before.absorb(&piece)
        {
            return;
        }
        self.map.insert(at, piece);
    }

    /// Splits the piece at `offset`.
    fn split(&mut self, offset: u64) {
        if offset >= self.end {
            return;
        }
        if let Some((start, piece)) = self.map.range_mut(..offset).next_back()
            && start + piece.len > offset
        {
            let rest = piece.split_off(offset - start);
            self.map.insert(offset, rest);
        }
    }

    /// Merges the pieces that meet at `offset`, if they continue each other.
    fn join(&mut self, offset: u64) {
        let Some(next) = self.map.remove(&offset) else { return };
        self.put(offset, next);
    }

    /// Removes `start..end`; leaves a gap.
    fn clear(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        while let Some((at, _)) = self.map.range(start..end).next() {
            let at = *at;
            if let Some(piece) = self.map.remove(&at) {
                self.removed(&piece);
            }
        }
    }

    /// Replaces a range by a piece; a gap between the end and it becomes a hole.
    pub(crate) fn replace(&mut self, offset: u64, piece: Piece) {
        if piece.len == 0 {
            return;
        }
        let end = offset + piece.len;
        self.resize(self.end.max(offset));
        self.clear(offset, end.min(self.end));
        self.end = self.end.max(end);
        self.added(&piece);
        self.put(offset, piece);
        self.join(end);
    }

    /// Truncates the file, or extends it with a hole.
    pub(crate) fn resize(&mut self, size: u64) {
        if size < self.end {
            self.clear(size, self.end);
            self.end = size;
        } else if size > self.end {
            self.push(Piece::hole(size - self.end));
        }
    }

    /// Overwrites a range with bytes; bytes that follow buffered ones are appended to them.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let before = self.map.range(..=offset).next_back();
        let touches =
            before.filter(|(start, piece)| matches!(piece.content, Content::Memory(_)) && offset <= *start + piece.len);
        let Some((start, piece_end)) = touches.map(|(start, piece)| (*start, start + piece.len)) else {
            self.replace(offset, Piece::memory(bytes.to_vec()));
            return;
        };
        if end > piece_end {
            self.clear(piece_end, end.min(self.end));
        }
        let Some(piece) = self.map.get_mut(&start) else { return };
        if let Content::Memory(buffer) = &mut piece.content {
            let at = (offset - start) as usize;
            let inside = bytes.len().min(buffer.len() - at);
            buffer[at..at + inside].copy_from_slice(&bytes[..inside]);
            buffer.extend_from_slice(&bytes[inside..]);
            let grown = (bytes.len() - inside) as u64;
            piece.len += grown;
            self.memory += grown;
            self.end = self.end.max(end);
        }
    }

    /// Replaces pieces in order by others of the same length.
    pub(crate) fn map_contents(&mut self, mut change: impl FnMut(u64, &Piece) -> Option<Content>) {
        let old = std::mem::take(self);
        for (at, piece) in old.map {
            let content = change(at, &piece);
            self.push(match content {
                Some(content) => Piece { len: piece.len, content },
                None => piece,
            });
        }
    }

    /// Changes extents in place; their lengths stay.
    pub(crate) fn extents_mut(&mut self) -> impl Iterator<Item = &mut Extent> {
        self.map.values_mut().filter_map(|piece| match &mut piece.content {
            Content::Stored(extent) => Some(extent),
            Content::Hole | Content::Memory(_) | Content::Encrypted(..) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use margay_segment::{Run, SegmentId};

    use super::*;

    fn check(pieces: &Pieces, model: &[u8]) {
        let mut end = 0;
        let (mut memory, mut holes) = (0, 0);
        let mut last: Option<Piece> = None;
        for (at, piece) in pieces.iter() {
            assert_eq!(at, end);
            assert!(piece.len > 0);
            end += piece.len;
            let expected = &model[at as usize..end as usize];
            match &piece.content {
                Content::Hole => {
                    holes += piece.len;
                    assert!(expected.iter().all(|byte| *byte == 0));
                }
                Content::Memory(bytes) => {
                    memory += piece.len;
                    assert_eq!(bytes, expected);
                }
                Content::Stored(extent) => {
                    assert_eq!(extent.len, piece.len);
                    let stored = |index: u64| (extent.run.offset + extent.skip + index) as u8;
                    assert!((0..piece.len).all(|index| stored(index) == expected[index as usize]));
                }
                Content::Encrypted(..) => panic!("nothing here is encrypted"),
            }
            assert!(!last.is_some_and(|mut last| last.absorb(piece)), "neighbours are joined");
            last = Some(piece.clone());
        }
        assert_eq!((end, memory, holes), (pieces.end(), pieces.memory(), pieces.holes));
        assert_eq!(end, model.len() as u64);
    }

    proptest::proptest! {
        #[test]
        fn pieces_are_a_file(steps in proptest::collection::vec((0u8..5, 0u64..300, 1u64..80), 0..60)) {
            let mut pieces = Pieces::default();
            let mut model: Vec<u8> = Vec::new();
            for (number, (kind, offset, len)) in steps.into_iter().enumerate() {
                let end = (offset + len) as usize;
                if kind != 3 && model.len() < end {
                    model.resize(end, 0);
                }
                match kind {
                    0 | 1 => {
                        let bytes = vec![number as u8 | 1; len as usize];
                        model[offset as usize..end].copy_from_slice(&bytes);
                        pieces.write(offset, &bytes);
                    }
                    2 => {
                        model[offset as usize..end].fill(0);
                        pieces.replace(offset, Piece::hole(len));
                    }
                    3 => {
                        model.resize(offset as usize, 0);
                        pieces.resize(offset);
                    }
                    _ => {
                        // The bytes of run `number` are numbers that count on from its offset.
                        let run = Run { segment: SegmentId(1), offset: number as u64, len: 1000, crc: 0 };
                        (0..len).for_each(|at| model[(offset + at) as usize] = (number as u64 + at + 3) as u8);
                        pieces.replace(offset, Piece::stored(Extent { run, skip: 3, len }));
                    }
                }
                check(&pieces, &model);
            }
            let whole: Vec<u64> = pieces.within(10, 200).map(|(_, len, _, _)| len).collect();
            proptest::prop_assert_eq!(whole.iter().sum::<u64>(), (model.len() as u64).min(200).saturating_sub(10));
        }
    }
}
