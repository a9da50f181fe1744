//! Shared parts of the engine's benchmarks: opening it, and rows with 24-byte keys and 120-byte values.

use std::path::Path;
use std::sync::Arc;

use margay_env::Env;
use margay_meta::embedded::{EmbeddedEngine, Options};
use margay_segment::Store;

const VALUE_BYTES: usize = 120;

/// Opens the embedded engine with the server's default options.
pub(crate) fn open(folder: &Path) -> EmbeddedEngine {
    let env = Env::real();
    let segments = margay_segment::Options {
        folder: folder.join("segments"),
        pack_bytes_max: 128 << 20,
        raw_bytes_min: 16 << 20,
        reserve_bytes: 0,
        files_may_be_missing: false,
    };
    let store: Arc<Store> = Store::open(env.clone(), segments).expect("store");
    EmbeddedEngine::open(env, store, Options::new(folder.join("tree"))).expect("engine")
}

/// A bijection without visible order (the last step of SplitMix64): distinct, reproducible keys.
pub(crate) fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// 24 bytes: the group, which keeps the keys of one phase together, then the number in digits.
pub(crate) fn key(group: u64, number: u64) -> Vec<u8> {
    let mut key = group.to_be_bytes().to_vec();
    key.extend_from_slice(format!("{number:016x}").as_bytes());
    key
}

/// 120 bytes, half of them without visible order.
pub(crate) fn value(number: u64) -> Vec<u8> {
    let mut value = vec![0x5a; VALUE_BYTES];
    for (word, chunk) in (0..).zip(value[..VALUE_BYTES / 2].chunks_mut(8)) {
        chunk.copy_from_slice(&mixed(number ^ (word << 56)).to_le_bytes()[..chunk.len()]);
    }
    value
}
