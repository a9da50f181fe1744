//! Every package in the build has a licence that fits Apache-2.0.

use serde_json::{Value, json};

use crate::expect_none;
use crate::metadata::{everything, packages};

const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "NCSA",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Whether an SPDX expression can be satisfied with allowed licences.
fn allowed(expression: &str) -> bool {
    // The old form with a slash means a choice.
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest) && rest.is_empty()
}

fn any_of(words: &mut &[&str]) -> bool {
    let mut fits = all_of(words);
    while let Some(("OR", rest)) = words.split_first().map(|(word, rest)| (*word, rest)) {
        *words = rest;
        // Not `||`: both sides must be read.
        fits |= all_of(words);
    }
    fits
}

fn all_of(words: &mut &[&str]) -> bool {
    let mut fits = one(words);
    while let Some(("AND", rest)) = words.split_first().map(|(word, rest)| (*word, rest)) {
        *words = rest;
        fits &= one(words);
    }
    fits
}

fn one(words: &mut &[&str]) -> bool {
    let Some((first, rest)) = words.split_first() else { return false };
    *words = rest;
    if *first == "(" {
        let fits = any_of(words);
        let closed = words.first() == Some(&")");
        *words = words.get(1..).unwrap_or_default();
        return fits && closed;
    }
    if let ["WITH", exception, rest @ ..] = *words {
        *words = rest;
        return ALLOWED.contains(&format!("{first} WITH {exception}").as_str());
    }
    ALLOWED.contains(first)
}

fn findings(metadata: &Value) -> Vec<String> {
    packages(metadata)
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(allowed))
        .map(|package| format!("{} {}: licence {}", package["name"], package["version"], package["license"]))
        .collect()
}

#[test]
fn licences_fit() {
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let metadata = everything(manifest);
        assert!(packages(&metadata).len() > 20, "the list of packages is too short to be true");
        expect_none(&findings(&metadata));
    }
}

#[test]
fn canary_a_licence_that_does_not_fit_is_found() {
    let package = |licence: Value| json!({ "name": "x", "version": "1.0.0", "license": licence });
    let bad = json!({ "packages": [
        package(json!("AGPL-3.0-only")), package(json!("MIT AND GPL-2.0")), package(Value::Null),
        package(json!("MPL-2.0")), package(json!("(MIT OR Apache-2.0) AND LGPL-3.0")), package(json!("MIT OR")),
    ] });
    assert_eq!(findings(&bad).len(), 5);
    for good in [
        "MIT",
        "MIT OR GPL-3.0",
        "MIT/Apache-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR MIT",
    ] {
        assert!(allowed(good), "{good}");
    }
    assert!(!allowed("") && !allowed("(MIT"));
}
