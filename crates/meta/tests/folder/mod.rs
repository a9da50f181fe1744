//! Folders of the host with an engine in them, for tests that damage files.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "each test binary uses its own part, fails by panicking, and copies files behind the store's back"
)]

use std::path::Path;
use std::sync::Arc;

use margay_env::Env;
use margay_meta::EngineError;
use margay_meta::embedded::{EmbeddedEngine, LOG_FILE_BYTES_MIN, Options};
use margay_segment::Store;

pub fn open(folder: &Path) -> Result<EmbeddedEngine, EngineError> {
    let env = Env::real();
    let options = margay_segment::Options {
        folder: folder.join("segments"),
        pack_bytes_max: 1 << 20,
        raw_bytes_min: 16 << 20,
        reserve_bytes: 0,
        files_may_be_missing: false,
    };
    let store: Arc<Store> = Store::open(env.clone(), options).unwrap();
    let mut options = Options::new(folder.join("tree"));
    options.log_file_bytes = LOG_FILE_BYTES_MIN * 8;
    options.tree_cache_bytes = 1 << 20;
    EmbeddedEngine::open(env, store, options)
}

/// Copies the two folders of an engine.
pub fn copy(from: &Path, to: &Path) {
    for name in ["segments", "tree"] {
        std::fs::create_dir_all(to.join(name)).unwrap();
        for entry in std::fs::read_dir(from.join(name)).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, to.join(name).join(path.file_name().unwrap())).unwrap();
        }
    }
}
