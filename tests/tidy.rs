//! Habits of this repository that the compiler does not check, each shown alive by a bad example.
//!
//! Why:      a rule that nobody enforces is a wish; a guard that never fails may be dead.
//! Not here: formatting (rustfmt), single expressions (clippy).

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]

#[path = "tidy/calls.rs"]
mod calls;
#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/edges.rs"]
mod edges;
#[path = "tidy/licences.rs"]
mod licences;
#[path = "tidy/metadata.rs"]
mod metadata;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/siblings.rs"]
mod siblings;
#[path = "tidy/sources.rs"]
mod sources;

/// Fails with every finding on its own line.
fn expect_none(findings: &[String]) {
    assert!(findings.is_empty(), "{} finding(s):\n  {}", findings.len(), findings.join("\n  "));
}
