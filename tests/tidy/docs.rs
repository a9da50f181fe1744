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

/// Pages of docs/ that the site does not show.
fn not_in_site(pages: &[String], summary: &str) -> Vec<String> {
    let has = |page: &&String| summary.contains(&format!("]({page})"));
    pages.iter().filter(|page| !has(page)).map(|page| format!("docs/SUMMARY.md lacks {page}")).collect()
}

#[test]
fn the_site_has_every_page() {
    let documents = documents();
    let pages = documents.iter().filter_map(|(path, _)| path.strip_prefix("docs/"));
    let pages: Vec<String> = pages.filter(|page| *page != "SUMMARY.md").map(str::to_owned).collect();
    let summary = &documents.iter().find(|(path, _)| path == "docs/SUMMARY.md").unwrap().1;
    expect_none(&not_in_site(&pages, summary));
}

#[test]
fn canary_a_page_that_the_site_lacks_is_found() {
    let pages = ["a.md".to_owned(), "how-to/b.md".to_owned()];
    assert_eq!(not_in_site(&pages, "- [A](a.md)"), ["docs/SUMMARY.md lacks how-to/b.md"]);
}

/// Documents with a systemd unit of their own, which would differ from that of packaging/ sooner or later.
fn own_units(files: &[(String, String)]) -> Vec<String> {
    let has = |text: &str| text.lines().any(|line| line.trim().starts_with("ExecStart="));
    files.iter().filter(|(_, text)| has(text)).map(|(path, _)| format!("{path} has a unit of its own")).collect()
}

#[test]
fn there_is_one_unit_and_it_is_installed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    expect_none(&own_units(&documents()));
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap();
    assert!(makefile.contains("packaging/margay.service >$(DESTDIR)"), "`make install` leaves the unit out");
}

#[test]
fn canary_a_unit_in_a_document_is_found() {
    let text = "```ini\n[Unit]\n[Service]\nExecStart=margay serve\n```".to_owned();
    assert_eq!(own_units(&[("docs/x.md".to_owned(), text)]), ["docs/x.md has a unit of its own"]);
}

/// Words of the glossary that stand in it twice or at the wrong place.
fn wrong_words(glossary: &str) -> Vec<String> {
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).skip(2);
    let plain = |word: &str| word.to_lowercase().replace('\'', "");
    let words: Vec<&str> = rows.collect();
    let wrong = words.windows(2).filter(|pair| plain(pair[0]) >= plain(pair[1]));
    wrong.map(|pair| format!("GLOSSARY.md: {:?} stands behind {:?}", pair[1], pair[0])).collect()
}

#[test]
fn the_glossary_has_each_word_once_and_in_order() {
    let glossary = documents().into_iter().find(|(path, _)| path == "GLOSSARY.md").unwrap().1;
    assert!(glossary.lines().filter(|line| line.starts_with("| ")).count() > 100);
    expect_none(&wrong_words(&glossary));
}

#[test]
fn canary_a_word_twice_is_found() {
    let text = "| word | x |\n| --- | --- |\n| cursor | a |\n| current | b |\n| cursor | c |\n";
    assert_eq!(wrong_words(text), ["GLOSSARY.md: \"current\" stands behind \"cursor\""]);
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
