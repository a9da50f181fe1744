//! Eight streams in the lanes of AVX2's registers.
//!
//! Not here: padding, streams of different lengths, who gathers the streams.

use std::arch::x86_64::*;
use std::time::{Duration, Instant};

use md5::{Digest as _, Md5};

const LANES: usize = 8;
/// Taken of each stream before the next, as pieces come from connections.
const PIECE_BYTES: usize = 64 << 10;
const STREAM_BYTES: usize = 1 << 20;
const TIME: Duration = Duration::from_secs(2);
const SHIFTS: [[i32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
const BEGIN: [i32; 4] = [0x6745_2301, !0x1032_5476, !0x6745_2301, 0x1032_5476];

type Lanes = [i32; LANES];

/// The constants of RFC 1321: the sines of 1, 2, ... 64.
fn sines() -> [i32; 64] {
    std::array::from_fn(|step| ((step as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32 as i32)
}

/// Sixteen steps in every lane; the registers change their roles from step to step.
macro_rules! round {
    ($round:literal, ($times:literal, $plus:literal), $mix:ident, $words:ident, $sines:ident, $a:ident $b:ident $c:ident $d:ident) => {
        for four in 0..4 {
            round!(step $round, 0, ($times, $plus), $mix, $words, $sines, four, $a $b $c $d);
            round!(step $round, 1, ($times, $plus), $mix, $words, $sines, four, $d $a $b $c);
            round!(step $round, 2, ($times, $plus), $mix, $words, $sines, four, $c $d $a $b);
            round!(step $round, 3, ($times, $plus), $mix, $words, $sines, four, $b $c $d $a);
        }
    };
    (step $round:literal, $turn:literal, ($times:literal, $plus:literal), $mix:ident, $words:ident, $sines:ident, $four:ident,
     $a:ident $b:ident $c:ident $d:ident) => {
        let step = 4 * $four + $turn;
        let known = _mm256_add_epi32($words[($times * step + $plus) % 16], _mm256_set1_epi32($sines[16 * $round + step]));
        let sum = _mm256_add_epi32(_mm256_add_epi32($a, known), $mix($b, $c, $d));
        let left = _mm256_slli_epi32::<{ SHIFTS[$round][$turn] }>(sum);
        let turned = _mm256_or_si256(left, _mm256_srli_epi32::<{ 32 - SHIFTS[$round][$turn] }>(sum));
        $a = _mm256_add_epi32(turned, $b);
    };
}

#[target_feature(enable = "avx2")]
fn mix_0(x: __m256i, y: __m256i, z: __m256i) -> __m256i {
    _mm256_xor_si256(z, _mm256_and_si256(x, _mm256_xor_si256(y, z)))
}
#[target_feature(enable = "avx2")]
fn mix_1(x: __m256i, y: __m256i, z: __m256i) -> __m256i {
    _mm256_xor_si256(y, _mm256_and_si256(z, _mm256_xor_si256(x, y)))
}
#[target_feature(enable = "avx2")]
fn mix_2(x: __m256i, y: __m256i, z: __m256i) -> __m256i {
    _mm256_xor_si256(x, _mm256_xor_si256(y, z))
}
#[target_feature(enable = "avx2")]
fn mix_3(x: __m256i, y: __m256i, z: __m256i) -> __m256i {
    let not_z = _mm256_xor_si256(z, _mm256_set1_epi32(-1));
    _mm256_xor_si256(y, _mm256_or_si256(x, not_z))
}

/// The same word of a block of each stream.
#[target_feature(enable = "avx2")]
fn words(pieces: &[&[u8]; LANES], at: usize) -> [__m256i; 16] {
    let mut words = [_mm256_set1_epi32(0); 16];
    for (index, word) in words.iter_mut().enumerate() {
        let mut lanes = [0; LANES];
        for (lane, piece) in lanes.iter_mut().zip(pieces) {
            *lane = i32::from_le_bytes(*piece[at + 4 * index..].first_chunk().expect("pieces are whole blocks"));
        }
        *word = lanes_of(&lanes);
    }
    words
}

#[target_feature(enable = "avx2")]
fn lanes_of(lanes: &Lanes) -> __m256i {
    let [a, b, c, d, e, f, g, h] = *lanes;
    _mm256_setr_epi32(a, b, c, d, e, f, g, h)
}

/// Takes whole blocks of as many streams as there are lanes.
#[target_feature(enable = "avx2")]
fn blocks(state: &mut [__m256i; 4], sines: &[i32; 64], pieces: &[&[u8]; LANES]) {
    for at in (0..pieces[0].len()).step_by(64) {
        let words = words(pieces, at);
        let [mut a, mut b, mut c, mut d] = *state;
        round!(0, (1, 0), mix_0, words, sines, a b c d);
        round!(1, (5, 1), mix_1, words, sines, a b c d);
        round!(2, (3, 5), mix_2, words, sines, a b c d);
        round!(3, (7, 0), mix_3, words, sines, a b c d);
        for (sum, part) in state.iter_mut().zip([a, b, c, d]) {
            *sum = _mm256_add_epi32(*sum, part);
        }
    }
}

#[target_feature(enable = "avx2")]
fn begin() -> [__m256i; 4] {
    let [a, b, c, d] = BEGIN;
    [_mm256_set1_epi32(a), _mm256_set1_epi32(b), _mm256_set1_epi32(c), _mm256_set1_epi32(d)]
}

/// Repeats a pass over all streams; gives MB/s.
fn rate(streams: &[Vec<u8>], mut pass: impl FnMut(&[Vec<u8>])) -> f64 {
    let begun = Instant::now();
    let mut bytes = 0;
    while begun.elapsed() < TIME {
        pass(streams);
        bytes += streams.len() * STREAM_BYTES;
    }
    bytes as f64 / begun.elapsed().as_secs_f64() / 1e6
}

/// As one digest for each stream does it.
fn one_by_one(streams: &[Vec<u8>]) -> Vec<[u8; 16]> {
    let mut digests = vec![Md5::new(); streams.len()];
    for at in (0..STREAM_BYTES).step_by(PIECE_BYTES) {
        for (digest, stream) in digests.iter_mut().zip(streams) {
            digest.update(&stream[at..at + PIECE_BYTES]);
        }
    }
    digests.into_iter().map(|digest| digest.finalize().into()).collect()
}

/// The states behind the last block, without the padding that ends a digest.
#[target_feature(enable = "avx2")]
fn in_lanes(streams: &[Vec<u8>], sines: &[i32; 64]) -> Vec<[__m256i; 4]> {
    let mut states = Vec::new();
    for group in streams.as_chunks::<LANES>().0 {
        let mut state = begin();
        for at in (0..STREAM_BYTES).step_by(PIECE_BYTES) {
            blocks(&mut state, sines, &group.each_ref().map(|stream| &stream[at..at + PIECE_BYTES]));
        }
        states.push(state);
    }
    states
}

/// The same digest, of a stream with its padding, in every lane.
#[target_feature(enable = "avx2")]
fn is_right(stream: &[u8], sines: &[i32; 64]) -> bool {
    let mut padded = stream.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64) - 8 + if padded.len() % 64 > 56 { 64 } else { 0 }, 0);
    padded.extend_from_slice(&(8 * stream.len() as u64).to_le_bytes());
    let mut state = begin();
    blocks(&mut state, sines, &[padded.as_slice(); LANES]);
    let wanted = Md5::digest(stream);
    let (words, _) = wanted.as_chunks::<4>();
    let equal = |(part, word): (&__m256i, &[u8; 4])| {
        _mm256_movemask_epi8(_mm256_cmpeq_epi32(*part, _mm256_set1_epi32(i32::from_le_bytes(*word)))) == -1
    };
    state.iter().zip(words).all(equal)
}

/// Says how fast both ways are, in turns.
pub(super) fn run() {
    if !is_x86_feature_detected!("avx2") {
        println!("this processor has no AVX2");
        return;
    }
    let sines = sines();
    let stream = |seed: usize| (0..STREAM_BYTES).map(|at| (at * 31 + seed) as u8).collect();
    let streams: Vec<Vec<u8>> = (0..48).map(stream).collect();
    #[allow(unsafe_code, reason = "the processor was asked for AVX2 above")]
    let right = unsafe { is_right(&streams[0][..1000], &sines) };
    assert!(right, "the lanes compute MD5");
    for _ in 0..3 {
        let single = rate(&streams, |streams| drop(std::hint::black_box(one_by_one(streams))));
        #[allow(unsafe_code, reason = "the processor was asked for AVX2 above")]
        let lanes = rate(&streams, |streams| drop(std::hint::black_box(unsafe { in_lanes(streams, &sines) })));
        println!("one by one {single:.0} MB/s, {LANES} lanes {lanes:.0} MB/s: {:.1} times", lanes / single);
    }
}
