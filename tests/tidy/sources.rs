//! Source files: names, length, header, unfinished work.

#![allow(clippy::disallowed_methods, reason = "this test reads the source tree")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::expect_none;

/// Longest source file, in lines.
const LINES_MAX: usize = 500;
/// Files that are longer for a reason, with the length that they may not exceed. This list may only shrink.
const LONGER: &[(&str, usize)] = &[];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["base", "common", "core", "helper", "helpers", "manager", "misc", "types", "util", "utils"];

/// Marks of unfinished work, put together so that this file does not hold them.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("unimpl", "emented!"),
    concat!("to", "do!("),
];

/// Every Rust file of the repository: path from its root, and text.
pub(crate) fn rust_files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tests", "crates", "fuzz", "examples"] {
        collect(root, &root.join(folder), "rs", &mut files);
    }
    assert!(files.len() > 30, "the list of sources is too short to be true");
    files.sort();
    files
}

/// Files with an ending below a folder; build results are passed over.
pub(crate) fn collect(root: &Path, folder: &Path, ending: &str, files: &mut Vec<(String, String)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path: PathBuf = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                collect(root, &path, ending, files);
            }
        } else if path.extension().is_some_and(|extension| extension == ending) {
            let shown = path.strip_prefix(root).unwrap().display().to_string();
            files.push((shown, fs::read_to_string(&path).unwrap()));
        }
    }
}

fn findings(files: &[(String, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in files {
        let lines = text.lines().count();
        let allowed = LONGER.iter().find(|(long, _)| long == path).map_or(LINES_MAX, |(_, lines)| *lines);
        if lines > allowed {
            findings.push(format!("{path}: {lines} lines, at most {allowed} are allowed; split it"));
        }
        if !text.starts_with("//! ") {
            findings.push(format!("{path}: does not begin with a line `//! what this is`"));
        }
        for part in Path::new(path).components() {
            let part = part.as_os_str().to_string_lossy();
            let name = part.strip_suffix(".rs").unwrap_or(&part);
            // The operation of that name is AWS's own.
            let beside_its_elder = name.ends_with("_v2") && !name.starts_with("list_objects");
            if EMPTY_NAMES.contains(&name) || beside_its_elder {
                findings.push(format!("{path}: {name} is a name that says nothing; name the thing"));
            }
        }
        for (index, line) in text.lines().enumerate() {
            if let Some(mark) = UNFINISHED.iter().find(|mark| line.contains(**mark)) {
                findings.push(format!("{path}:{}: {mark} is unfinished work", index + 1));
            }
        }
    }
    findings
}

#[test]
fn sources_are_tidy() {
    expect_none(&findings(&rust_files()));
}

#[test]
fn exceptions_only_shrink() {
    let files = rust_files();
    let stale = |(path, lines): &&(&str, usize)| {
        let now = files.iter().find(|(name, _)| name == path).map_or(0, |(_, text)| text.lines().count());
        now != *lines || now <= LINES_MAX
    };
    let stale: Vec<String> =
        LONGER.iter().filter(stale).map(|(path, _)| format!("{path}: lower or drop its entry in LONGER")).collect();
    expect_none(&stale);
}

#[test]
fn canary_each_bad_file_is_found() {
    let file = |path: &str, text: String| (path.to_owned(), text);
    let good = "//! A thing.\n".to_owned();
    let bad = [
        file("src/long.rs", format!("{good}{}", "\n".repeat(LINES_MAX))),
        file("src/bare.rs", "use std::fs;\n".to_owned()),
        file("src/util.rs", good.clone()),
        file("crates/core/src/lib.rs", good.clone()),
        file("src/reader_v2.rs", good.clone()),
        file("src/open.rs", format!("{good}// {} later\n", UNFINISHED[0])),
        file("src/shut.rs", format!("{good}fn f() {{ {}() }}\n", UNFINISHED[3])),
    ];
    assert_eq!(findings(&bad).len(), bad.len(), "{:#?}", findings(&bad));
    assert_eq!(findings(&[file("src/good.rs", good)]), Vec::<String>::new());
}
