//! MD5 of a body at the highest speed for one stream.
//!
//! Why:        an object's ETag is its MD5, for which processors have no instruction: it is the most expensive part of
//!             an upload. Each step depends on the last, so steps must be short. A compiler that knows the constants
//!             adds them on the critical path; `black_box` hides them, which is a third faster than the crate `md-5`
//!             (docs/design/0010-md5-of-many-uploads.md).
//! Source:     RFC 1321.
//! Not here:   digests of short texts, for which the crate suffices.

use std::hint::black_box;

const BLOCK_BYTES: usize = 64;
/// The sines of 1, 2, ... 64.
#[rustfmt::skip]
static SINES: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];
/// Rotation of each of four steps, by round.
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
/// Index of the word that a step uses: a multiple of its number, plus an offset.
const WORDS: [(usize, usize); 4] = [(1, 0), (5, 1), (3, 5), (7, 0)];

/// The digest of a stream so far.
#[derive(Clone)]
pub(super) struct Md5 {
    state: [u32; 4],
    /// The incomplete block.
    block: [u8; BLOCK_BYTES],
    bytes: u64,
}

impl Md5 {
    pub(super) fn new() -> Md5 {
        let state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        Md5 { state, block: [0; BLOCK_BYTES], bytes: 0 }
    }

    pub(super) fn update(&mut self, mut piece: &[u8]) {
        let held = self.held();
        self.bytes += piece.len() as u64;
        if held > 0 {
            let (head, rest) = piece.split_at(piece.len().min(BLOCK_BYTES - held));
            self.block[held..held + head.len()].copy_from_slice(head);
            if held + head.len() < BLOCK_BYTES {
                return;
            }
            blocks(&mut self.state, &[self.block]);
            piece = rest;
        }
        let (whole, rest) = piece.as_chunks();
        blocks(&mut self.state, whole);
        self.block[..rest.len()].copy_from_slice(rest);
    }

    pub(super) fn finish(mut self) -> [u8; 16] {
        let bits = self.bytes.wrapping_mul(8);
        // Padding: a one bit, zeros up to the last eight bytes of a block, and the length in bits.
        let mut end = [0; 2 * BLOCK_BYTES];
        end[0] = 0x80;
        let padding = (2 * BLOCK_BYTES - 8 - self.held() - 1) % BLOCK_BYTES + 1;
        end[padding..padding + 8].copy_from_slice(&bits.to_le_bytes());
        self.update(&end[..padding + 8]);
        let mut digest = [0; 16];
        for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(self.state) {
            *bytes = word.to_le_bytes();
        }
        digest
    }

    /// Bytes in the incomplete block.
    fn held(&self) -> usize {
        (self.bytes % BLOCK_BYTES as u64) as usize
    }
}

fn blocks(state: &mut [u32; 4], blocks: &[[u8; BLOCK_BYTES]]) {
    // The compiler must not know the values: see the header.
    let sines = black_box(&SINES);
    for block in blocks {
        let words: &[[u8; 4]; 16] = block.as_chunks().0.try_into().expect("a block has 16 words");
        let words = words.map(u32::from_le_bytes);
        let [a, b, c, d] = round::<0>(*state, &words, sines);
        let [a, b, c, d] = round::<1>([a, b, c, d], &words, sines);
        let [a, b, c, d] = round::<2>([a, b, c, d], &words, sines);
        let [a, b, c, d] = round::<3>([a, b, c, d], &words, sines);
        for (sum, part) in state.iter_mut().zip([a, b, c, d]) {
            *sum = sum.wrapping_add(part);
        }
    }
}

/// Sixteen steps; the registers rotate their roles.
#[inline(always)]
fn round<const ROUND: usize>([mut a, mut b, mut c, mut d]: [u32; 4], words: &[u32; 16], sines: &[u32; 64]) -> [u32; 4] {
    let (times, plus) = WORDS[ROUND];
    let known = |step: usize| words[(times * step + plus) % 16].wrapping_add(sines[16 * ROUND + step]);
    let turns = TURNS[ROUND];
    for four in 0..4 {
        a = step::<ROUND>([a, b, c, d], known(4 * four), turns[0]);
        d = step::<ROUND>([d, a, b, c], known(4 * four + 1), turns[1]);
        c = step::<ROUND>([c, d, a, b], known(4 * four + 2), turns[2]);
        b = step::<ROUND>([b, c, d, a], known(4 * four + 3), turns[3]);
    }
    [a, b, c, d]
}

/// `b` comes from the previous step, so terms without it are added first.
#[inline(always)]
fn step<const ROUND: usize>([a, b, c, d]: [u32; 4], known: u32, turn: u32) -> u32 {
    let sum = a.wrapping_add(known);
    let mixed = match ROUND {
        0 => sum.wrapping_add(d ^ (b & (c ^ d))),
        // The two terms share no bit, so adding equals `|`, and only one of them waits for `b`.
        1 => sum.wrapping_add(c & !d).wrapping_add(b & d),
        2 => sum.wrapping_add(b ^ (c ^ d)),
        _ => sum.wrapping_add(c ^ (b | !d)),
    };
    mixed.rotate_left(turn).wrapping_add(b)
}

#[cfg(test)]
mod tests {
    use md5::Digest as _;
    use proptest::prelude::*;

    use super::*;

    fn of(pieces: &[&[u8]]) -> [u8; 16] {
        let mut digest = Md5::new();
        pieces.iter().for_each(|piece| digest.update(piece));
        digest.finish()
    }

    fn by_the_crate(bytes: &[u8]) -> [u8; 16] {
        md5::Md5::digest(bytes).into()
    }

    #[test]
    fn lengths_around_a_block() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..bytes.len() {
            assert_eq!(of(&[&bytes[..len]]), by_the_crate(&bytes[..len]), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn pieces_mean_nothing(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(of(&pieces), by_the_crate(&pieces.concat()));
        }
    }
}
