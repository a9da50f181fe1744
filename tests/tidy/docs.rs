//! The documents: links lead somewhere, and tables of the program say what the program does.

#![allow(clippy::disallowed_methods, reason = "this test reads the documents")]

use std::fs;
use std::path::Path;

use margay::settings::parse::parse;
use margay::settings::table::{Kind, SETTINGS, Setting};

use crate::expect_none;
use crate::sources::collect;

fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(root, root, "md", &mut files);
    assert!(files.len() > 5, "the list of documents is too short to be true");
    files
}

/// Links to files that do not exist.
fn dead_links(files: &[(String, String)], exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in files {
        for piece in text.split("](").skip(1) {
            let Some((target, _)) = piece.split_once(')') else { continue };
            let target = target.split('#').next().unwrap_or(target);
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let folder = Path::new(path).parent().unwrap_or(Path::new(""));
            if !exists(&folder.join(target)) {
                findings.push(format!("{path}: the link to {target} leads nowhere"));
            }
        }
    }
    findings
}

#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    expect_none(&dead_links(&documents(), |path| root.join(path).exists()));
}

#[test]
fn canary_a_dead_link_is_found() {
    let text = "[a](b.md) [c](https://example.org) [d](#here) [e](gone.md#x)".to_owned();
    let found = dead_links(&[("docs/x.md".to_owned(), text)], |path| path == Path::new("docs/b.md"));
    assert_eq!(found, ["docs/x.md: the link to gone.md leads nowhere"]);
}

/// The row of docs/limits.md for a setting.
fn row(setting: &Setting) -> String {
    let unit = match setting.kind {
        Kind::Bytes { .. } if setting.name.contains("rate") => "bytes per second",
        Kind::Bytes { .. } => "bytes",
        Kind::Seconds { .. } => "seconds",
        _ => "count",
    };
    let default = parse(setting, setting.default).unwrap().show(setting.kind);
    format!("| `{}` | {unit} | {default} | {} |", setting.name, setting.about)
}

/// Limits without their row, and rows of limits that are none.
fn wrong_limits(text: &str, settings: &[Setting]) -> Vec<String> {
    let right: Vec<String> = settings.iter().filter(|setting| setting.name.starts_with("limits.")).map(row).collect();
    let lacks = right.iter().filter(|row| !text.lines().any(|line| line == row.as_str()));
    let stray = text.lines().filter(|line| line.starts_with("| `limits.") && !right.iter().any(|row| row == line));
    let lacks = lacks.map(|row| format!("docs/limits.md lacks this row:\n    {row}"));
    lacks.chain(stray.map(|line| format!("docs/limits.md has a row that no setting gives:\n    {line}"))).collect()
}

#[test]
fn limits_are_documented_as_they_are() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/limits.md")).unwrap();
    expect_none(&wrong_limits(&text, SETTINGS));
}

#[test]
fn canary_a_limit_that_is_not_documented_as_it_is_is_found() {
    let settings: Vec<&Setting> = SETTINGS.iter().filter(|setting| setting.name.starts_with("limits.")).collect();
    let rows: Vec<String> = settings.iter().map(|setting| row(setting)).collect();
    assert!(rows.len() > 10 && wrong_limits(&rows.join("\n"), SETTINGS).is_empty());
    assert_eq!(wrong_limits(&rows[1..].join("\n"), SETTINGS).len(), 1, "a row that is missing");
    let other_default = rows.join("\n").replacen("| count | 16384 |", "| count | 16385 |", 1);
    assert_eq!(wrong_limits(&other_default, SETTINGS).len(), 2, "a row that is out of date");
    let gone = format!("{}\n| `limits.gone` | count | 1 | nothing |", rows.join("\n"));
    assert_eq!(wrong_limits(&gone, SETTINGS).len(), 1, "a row that outlived its setting");
}
