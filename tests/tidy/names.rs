//! A type's name means one thing.
//!
//! Why:      nine types were called `Place`, with nine meanings; a reader who searches for one finds all.
//! Not here: types that are private to a module or a crate.

use std::collections::{BTreeMap, BTreeSet};

use crate::cycles::without_tests;
use crate::expect_none;
use crate::sources::rust_files;

/// Most crates that may define a type of one name.
const CRATES_MAX: usize = 2;
/// Names that more crates define, and how many. This list may only shrink, and no number of it may grow.
const KNOWN: &[(&str, usize)] = &[("Identities", 3), ("Kind", 5), ("Options", 5), ("Part", 3), ("Target", 3)];

/// The crate of a product's source file; none for tests.
fn crate_of(path: &str) -> Option<&str> {
    let (folder, inner) = path.find("src/").map(|at| path.split_at(at + 4))?;
    let is_test = inner.ends_with("tests.rs") || inner.contains("tests/") || folder.contains("fuzz");
    (!is_test).then_some(folder)
}

/// Types that a text defines at its top level for others to name.
fn types(text: &str) -> impl Iterator<Item = &str> {
    without_tests(text).lines().filter_map(|line| {
        let line = line.strip_prefix("pub ")?;
        let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| line.strip_prefix(word))?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (end > 0).then_some(&rest[..end])
    })
}

fn findings(files: &[(String, String)], known: &[(&str, usize)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, text) in files {
        let Some(folder) = crate_of(path) else { continue };
        types(text).for_each(|name| {
            crates.entry(name).or_default().insert(folder);
        });
    }
    let mut findings = Vec::new();
    for (name, crates) in &crates {
        let allowed = known.iter().find(|(known, _)| known == name).map_or(CRATES_MAX, |(_, count)| *count);
        if crates.len() > allowed {
            findings.push(format!("{} crates define a type {name}: {crates:?}", crates.len()));
        }
    }
    for (name, count) in known {
        let now = crates.get(name).map_or(0, BTreeSet::len);
        if now < *count {
            findings.push(format!("{now} crates define a type {name}: lower its entry in KNOWN"));
        }
    }
    findings
}

#[test]
fn a_type_name_means_one_thing() {
    expect_none(&findings(&rust_files(), KNOWN));
}

#[test]
fn canary_a_name_of_three_crates_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let files = [
        file("crates/a/src/x.rs", "pub struct Place {\n"),
        file("crates/b/src/y/z.rs", "pub enum Place {\n"),
        file("crates/c/src/tests.rs", "pub struct Place;\n"),
        file("src/x.rs", "pub type Place = u8;\nfn f() {\n    struct Inner;\n}\n"),
    ];
    assert_eq!(findings(&files[..3], &[]), Vec::<String>::new());
    assert_eq!(findings(&files, &[]).len(), 1);
    assert_eq!(findings(&files, &[("Place", 3)]), Vec::<String>::new());
    assert_eq!(findings(&files, &[("Place", 4)]).len(), 1);
}
