//! The table in the docs is what the code does.

#![allow(clippy::disallowed_methods, reason = "a test reads and writes a file of the repository")]

#[test]
fn the_docs_are_what_the_code_does() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/s3-operations.md");
    let page = margay_s3::route::table::markdown();
    if std::env::var_os("MARGAY_WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == page, "docs/s3-operations.md has drifted: run this test with MARGAY_WRITE_DOCS=1");
}
