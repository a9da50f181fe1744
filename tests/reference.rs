//! The pages of docs/reference: written from the code, and equal to it.
//!
//! Why:        a reference that is written by hand is wrong after the next change. A test fails when a page differs, and
//!             `MARGAY_WRITE_DOCS=1 cargo test --test reference` writes all of them again.
//! Invariants: R1 a page depends on the code alone: not on this machine, its environment or the time.
//! Not here:   S3's operations (docs/s3-operations.md, by margay-s3), the guides that say when to use what.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "a test reads and writes files of the repository")]

#[path = "reference/actions.rs"]
mod actions;
#[path = "reference/commands.rs"]
mod commands;
#[path = "reference/metrics.rs"]
mod metrics;
#[path = "reference/settings.rs"]
mod settings;

use std::fs;
use std::path::Path;

/// How each page says where it comes from.
const WRITTEN: &str = "Made from the code by `make reference`; a test compares it.";

/// Writes the page where that is asked for, and compares it.
fn expect_page(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference").join(name);
    if std::env::var_os("MARGAY_WRITE_DOCS").is_some() {
        fs::write(&path, page).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(page.lines()).position(|(old, new)| old != new);
    let line = differs.unwrap_or_else(|| committed.lines().count().min(page.lines().count()));
    assert!(
        committed == page,
        "docs/reference/{name} is not what the code says, from line {}:\n  page: {}\n  code: {}\nwrite it by: make reference",
        line + 1,
        committed.lines().nth(line).unwrap_or(""),
        page.lines().nth(line).unwrap_or(""),
    );
}

/// A cell of a table: `|` would end it, and `<` begin a tag.
fn cell(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace('|', "\\|").replace('<', "&lt;")
}
