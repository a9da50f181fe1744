//! The pieces of a file: objects named by offset and length.
//!
//! Layout:     `<offset, 16 hexadecimal digits>-<length, hexadecimal>`; an empty file has one piece of length 0.
//! Invariants: P1 the file consists of the contiguous pieces from offset 0. All others (after a gap, or of a size other
//!                than in their name) are strays and not part of it.

/// Digits of an offset.
const OFFSET_DIGITS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The object's size differs from the one in its name.
    cut: bool,
}

impl Piece {
    pub(super) fn new(offset: u64, len: u64) -> Piece {
        Piece { offset, len, cut: false }
    }

    /// `None` when this is not the name of a piece.
    pub(super) fn of(name: &str, size: u64) -> Option<Piece> {
        let (offset, len) = name.split_once('-')?;
        let plain = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if offset.len() != OFFSET_DIGITS || len.is_empty() || len.starts_with('0') && len != "0" {
            return None;
        }
        let read = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| plain(text));
        let (offset, len) = (read(offset)?, read(len)?);
        Some(Piece { offset, len, cut: len != size })
    }

    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    pub(super) fn key(&self, file: &str) -> String {
        format!("{file}/{:0width$x}-{:x}", self.offset, self.len, width = OFFSET_DIGITS)
    }
}

/// The pieces of a file, and the strays beside them.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) pieces: Vec<Piece>,
    pub(super) stray: Vec<Piece>,
}

impl Chain {
    pub(super) fn of(mut pieces: Vec<Piece>) -> Chain {
        // Of several at one offset the longest counts: a shorter one comes from a writer that did not see its end.
        pieces.sort_by(|one, other| (one.offset, other.len).cmp(&(other.offset, one.len)));
        let mut chain = Chain::default();
        for piece in pieces {
            let empty = piece.len == 0 && chain.is_there();
            if piece.cut || empty || piece.offset != chain.len() {
                chain.stray.push(piece);
            } else {
                chain.pieces.push(piece);
            }
        }
        chain
    }

    pub(super) fn is_there(&self) -> bool {
        !self.pieces.is_empty()
    }

    pub(super) fn len(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_none() {
        for (offset, len) in [(0, 0), (0, 1), (1 << 40, 0xabc), (u64::MAX, 1)] {
            let piece = Piece::new(offset, len);
            assert_eq!(Piece::of(piece.key("f").strip_prefix("f/").unwrap(), len), Some(piece));
        }
        for wrong in
            ["", "-", "lock", "000000000000000-1", "0000000000000000-", "0000000000000000-01", "00000000000000+1-1"]
        {
            assert_eq!(Piece::of(wrong, 1), None, "{wrong}");
        }
    }

    #[test]
    fn a_file_ends_where_a_piece_is_missing_or_cut() {
        let piece = |offset, len| Piece::new(offset, len);
        let len = |pieces: &[Piece]| Chain::of(pieces.to_vec()).len();
        assert_eq!(len(&[piece(5, 5), piece(0, 5), piece(10, 1)]), 11);
        assert_eq!(len(&[piece(0, 5), piece(10, 1)]), 5);
        assert_eq!(len(&[piece(0, 5), Piece { cut: true, ..piece(5, 5) }, piece(10, 1)]), 5);
        assert_eq!(len(&[piece(0, 5), piece(0, 7), piece(7, 1)]), 8);
        let chain = Chain::of(vec![piece(0, 0), piece(0, 3)]);
        assert_eq!((chain.pieces, chain.stray), (vec![piece(0, 3)], vec![piece(0, 0)]));
        assert!(Chain::of(vec![piece(0, 0)]).is_there() && !Chain::of(vec![piece(1, 1)]).is_there());
    }
}
