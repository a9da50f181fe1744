//! Cuts an object into parts.
//!
//! Invariants: G1 parts cover the object without gaps from 0; all except the last have one size.  G2 the same size is
//!                always cut in the same way, so a part that is read again equals the part that was sent.

use std::ops::Range;

/// Maximum number of parts of an object.
const PARTS_MAX: u64 = 10_000;
/// Every store accepts parts of 5 MiB; larger ones need fewer requests.
const PART_BYTES_MIN: u64 = 8 << 20;
/// Part sizes are multiples of this.
const STEP_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    size: u64,
    part_bytes: u64,
}

impl Grid {
    /// The grid of an object of this size; parts become larger where there would be too many.
    pub fn of(size: u64) -> Grid {
        Grid::of_parts(size, PART_BYTES_MIN)
    }

    /// As `of`, with parts of this size where they are not too many.
    pub fn of_parts(size: u64, part_bytes: u64) -> Grid {
        let least = size.div_ceil(PARTS_MAX).next_multiple_of(STEP_BYTES);
        let fits = size.div_ceil(part_bytes) <= PARTS_MAX;
        Grid { size, part_bytes: if fits { part_bytes } else { least.max(part_bytes) } }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// At least one: an empty object has one empty part.
    pub fn parts(&self) -> u32 {
        let parts = self.size.div_ceil(self.part_bytes).max(1);
        assert!(parts <= PARTS_MAX, "parts grow with the object");
        parts as u32
    }

    /// The bytes of a part; numbers begin with 1, as in S3.
    pub fn part(&self, number: u32) -> Range<u64> {
        assert!((1..=self.parts()).contains(&number), "part {number} of {}", self.parts());
        let begin = u64::from(number - 1) * self.part_bytes;
        begin..(begin + self.part_bytes).min(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_object_once() {
        const TB: u64 = 1 << 40;
        for size in
            [0, 1, PART_BYTES_MIN - 1, PART_BYTES_MIN, PART_BYTES_MIN + 1, 1 << 33, 80_000 << 20, 5 * TB, 48 * TB]
        {
            let grid = Grid::of(size);
            assert_eq!((grid.part_bytes() % STEP_BYTES, grid), (0, Grid::of(size)));
            let mut end = 0;
            for number in 1..=grid.parts() {
                let part = grid.part(number);
                assert_eq!(part.start, end);
                assert!(number == grid.parts() || part.end - part.start == grid.part_bytes(), "{size}");
                end = part.end;
            }
            assert_eq!(end, size);
        }
        assert_eq!((Grid::of(0).parts(), Grid::of(80_000 << 20).parts()), (1, 10_000));
        let small = Grid::of_parts(1 << 20, 64 << 10);
        assert_eq!((small.parts(), Grid::of_parts(1 << 30, 64 << 10).part_bytes()), (16, STEP_BYTES));
    }
}
