//! Whether tests that mount run here.
//!
//! Why: a test that does nothing where it cannot run looks like one that passes.

use std::path::Path;

/// Whether the caller said that nothing is mounted here. Else a machine that cannot mount fails the test.
pub(crate) fn must_not_mount() -> bool {
    if std::env::var_os("MARGAY_NO_FUSE").is_some_and(|value| value == "1") {
        eprintln!("SKIPPED: MARGAY_NO_FUSE=1");
        return true;
    }
    assert!(
        Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root(),
        "this test needs /dev/fuse and root; MARGAY_NO_FUSE=1 leaves out all tests that mount"
    );
    false
}
