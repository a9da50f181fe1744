//! The tables in docs/benchmarks.md and README.md are those of the committed run, docs/benchmarks/run.json.
//!
//! `make bench` measures, replaces the run, and writes the tables by this test with MARGAY_WRITE_DOCS=1.

#![allow(clippy::disallowed_methods, reason = "a test reads and writes files of the repository")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const BEGIN: &str = "<!-- figures of docs/benchmarks/run.json: written by `make bench`, do not edit -->\n";
const END: &str = "<!-- end of figures -->\n";

/// The columns of what was measured in several directories or on several servers in turns; before them `clients` when
/// there were several numbers of them.
const COMPARISON: [&str; 6] = ["phase", "name", "median", "unit", "of the first", "spread"];

/// The rows of README's table: suite, clients, phase, and what it is in words.
const HEADLINES: [(&str, &str, &str, &str); 8] = [
    ("dirops", "1", "create", "create files in one directory"),
    ("dirops", "1", "delete at random", "delete them at random"),
    ("mdtest", "1", "file creation", "mdtest: file creation"),
    ("mdtest", "1", "directory rename", "mdtest: directory rename"),
    ("small", "1", "cp -r and fsync", "copy small files, each with fsync"),
    ("small", "1", "rm -r", "remove small files"),
    ("stream", "1", "write with fsync", "write a large file, with fsync"),
    ("stream", "1", "read cold", "read a large file, cold"),
];
/// Margay's mount, by the name that it has in `margay bench all`.
const OURS: &str = "mount";
/// The local file system that README shows beside it.
const LOCAL: &str = "ext4";
/// Units of which more is better.
const RATES: [&str; 2] = ["per second", "MB/s"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().map(|cell| cell.as_str().unwrap_or_default()).collect()
}

fn rows(table: &Value) -> Vec<Vec<&str>> {
    table.as_array().into_iter().flatten().map(words).collect()
}

/// A number with its thousands apart; anything else as it is.
fn shown(cell: &str) -> String {
    let digits = cell.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || cell.len() < 5 {
        return cell.replace('|', "\\|");
    }
    let mut out = String::new();
    for (index, digit) in cell.chars().enumerate() {
        if index > 0 && (cell.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn table(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        let _ = writeln!(out, "| {} |", row.join(" | "));
        if index == 0 {
            let _ = writeln!(out, "|{}", "---|".repeat(row.len()));
        }
    }
    out
}

/// The rows of a comparison, its columns after the number of clients, which is empty when there was only one; None for
/// any other table.
fn comparison<'a>(rows: &[Vec<&'a str>]) -> Option<Vec<Vec<&'a str>>> {
    let head = rows.first()?;
    let clients = head.first() == Some(&"clients");
    if head[usize::from(clients)..] != COMPARISON {
        return None;
    }
    let lines = rows[1..].iter().map(|row| match clients {
        true => row.clone(),
        false => std::iter::once("").chain(row.iter().copied()).collect(),
    });
    Some(lines.collect())
}

/// Names in the order in which they come.
fn names<'a>(rows: &[Vec<&'a str>]) -> Vec<&'a str> {
    let mut names = Vec::new();
    for row in rows {
        if !names.contains(&row[2]) {
            names.push(row[2]);
        }
    }
    names
}

/// The cell of one name in a phase: its figure, and beside the first its ratio with the spread.
fn cell(rows: &[Vec<&str>], clients: &str, phase: &str, name: &str, is_first: bool) -> String {
    let Some(row) = rows.iter().find(|row| row[0] == clients && row[1] == phase && row[2] == name) else {
        return "-".to_owned();
    };
    match row[6].contains("failed") {
        true if row[3] == "-" => "failed".to_owned(),
        true => format!("{}, then failed", shown(row[3])),
        // A phase that is not there for a name, such as a second mount point of a local file system.
        false if is_first || row[3] == "-" => shown(row[3]),
        // Of one round there is no spread.
        false if row[6].split_once('-').is_some_and(|(least, most)| least == most) => {
            format!("{} ({})", shown(row[3]), row[5])
        }
        false => format!("{} ({}; {})", shown(row[3]), row[5], row[6]),
    }
}

/// One line for each phase, one column for each name.
fn compared(all: &[Vec<&str>]) -> String {
    let names = names(all);
    let head = ["clients", "phase", "unit"].into_iter().chain(names.iter().copied());
    let mut lines = vec![head.map(str::to_owned).collect::<Vec<_>>()];
    let mut seen = Vec::new();
    for row in all {
        if seen.contains(&(row[0], row[1])) {
            continue;
        }
        seen.push((row[0], row[1]));
        let cells = names.iter().enumerate().map(|(index, name)| cell(all, row[0], row[1], name, index == 0));
        lines.push([row[0], row[1], row[4]].into_iter().map(str::to_owned).chain(cells).collect());
    }
    if all.iter().all(|row| row[0].is_empty()) {
        lines.iter_mut().for_each(|line| drop(line.remove(0)));
    }
    table(&lines)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Command, date and machine.
fn facts(run: &Value) -> String {
    let machine: Vec<String> = rows(&run["machine"]).iter().map(|fact| format!("{} {}", fact[0], fact[1])).collect();
    format!("`{}`, {}; {}.\n", text(&run["command"]), text(&run["date"]), machine.join(", "))
}

/// Which rivals there were.
fn rivals(run: &Value) -> String {
    let mut out = String::new();
    let list = |name: &str| run[name].as_array().cloned().unwrap_or_default();
    let rivals: Vec<String> = list("rivals")
        .iter()
        .map(|rival| {
            let store = rival["store"].as_str().map_or(String::new(), |store| format!(", on {store}"));
            format!("{} ({}{store})", text(&rival["name"]), rival["version"].as_str().unwrap_or("version unknown"))
        })
        .collect();
    if !rivals.is_empty() {
        let _ = writeln!(out, "Rivals: {}.", rivals.join(", "));
    }
    let absent: Vec<String> = list("absent").iter().map(|rival| text(&rival["name"])).collect();
    if !absent.is_empty() {
        let _ = writeln!(out, "Not there: {}.", absent.join(", "));
    }
    out
}

/// What was drawn of a suite, to be shown where it stands.
fn pictures(suite: &str) -> Vec<String> {
    let folder = fs::read_dir(root().join("docs/benchmarks").join(suite));
    let found = folder.into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut found: Vec<String> = found.filter(|name| name.ends_with(".svg")).collect();
    found.sort();
    found.into_iter().map(|name| format!("![{suite}](benchmarks/{suite}/{name})")).collect()
}

fn suite_section(suite: &Value) -> String {
    let text = |name: &str| suite[name].as_str().unwrap_or_default();
    let lines = |rows: &[Vec<&str>]| -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| shown(cell)).collect()).collect()
    };
    let mut out = format!("\n### {}\n\n`{}` ({} s)\n", text("title"), text("command"), suite["seconds"]);
    if let Some(failure) = suite["failure"].as_str() {
        let _ = write!(out, "\n**failed**: {failure}\n");
    }
    for picture in pictures(text("name")) {
        let _ = write!(out, "\n{picture}\n");
    }
    for rows in suite["tables"].as_array().into_iter().flatten().map(rows) {
        let _ = match comparison(&rows) {
            Some(compared_rows) => write!(out, "\n{}", compared(&compared_rows)),
            None => write!(out, "\n{}", table(&lines(&rows))),
        };
    }
    for failure in rows(&suite["failures"]) {
        let _ = write!(out, "\n{} failed: {}\n", failure[0], failure[1]);
    }
    for cited in suite["cited"].as_array().into_iter().flatten() {
        let rows: Vec<Vec<&str>> = std::iter::once(words(&cited["columns"])).chain(rows(&cited["rows"])).collect();
        let _ = write!(out, "\n{}\n\n{}", cited["note"].as_str().unwrap_or_default(), table(&lines(&rows)));
    }
    out
}

/// The section of docs/benchmarks.md.
fn page(run: &Value) -> String {
    let mut out = facts(run) + &rivals(run);
    out.push_str(
        "\nClients, servers and directories shared the machine. Where several are compared the first is the measure: a figure, then in \
         brackets the ratio of the medians, and the least and most of the rounds' own ratios.\n",
    );
    out.extend(run["suites"].as_array().into_iter().flatten().map(suite_section));
    out
}

/// The best of the mounts of buckets in one phase that did not fail: its figure and name.
fn best(rows: &[&Vec<&str>], mounts: &[String]) -> String {
    let took_part = rows.iter().filter(|row| mounts.iter().any(|name| name == row[2]) && !row[6].contains("failed"));
    let figures = took_part.filter_map(|row| Some((row[3].parse::<f64>().ok()?, row)));
    let best = figures.reduce(|one, other| {
        let is_better = if RATES.contains(&other.1[4]) { other.0 > one.0 } else { other.0 < one.0 };
        if is_better { other } else { one }
    });
    best.map_or("-".to_owned(), |(_, row)| format!("{} ({})", shown(row[3]), row[2]))
}

/// The table of README.md: some rows of all that is in docs/benchmarks.md, and few of its columns.
fn headlines(run: &Value) -> String {
    let of_suite = |name: &str| {
        let mut suites = run["suites"].as_array()?.iter();
        let tables = suites.find(|suite| suite["name"] == name)?["tables"].as_array()?;
        tables.iter().find_map(|table| comparison(&rows(table)))
    };
    let rivals = run["rivals"].as_array().into_iter().flatten();
    let mounts: Vec<String> =
        rivals.filter(|rival| rival["store"].is_string()).map(|rival| text(&rival["name"])).collect();
    let mut lines = vec![["work", "unit", "margay's mount", LOCAL, "best other mount"].map(str::to_owned).to_vec()];
    for (suite, clients, phase, words) in HEADLINES {
        let Some(all) = of_suite(suite) else { continue };
        let of_phase: Vec<_> =
            all.iter().filter(|row| (row[0].is_empty() || row[0] == clients) && row[1] == phase).collect();
        let Some(first) = of_phase.first() else { continue };
        let figure = |name| cell(&all, first[0], phase, name, true);
        lines.push(vec![words.to_owned(), first[4].to_owned(), figure(OURS), figure(LOCAL), best(&of_phase, &mounts)]);
    }
    format!(
        "{}\n{}\nThe best other mount is the best of {} in each row. Figures of each one are in \
         [docs/benchmarks.md](docs/benchmarks.md#every-suite-one-command), and what an fsync promises with each in \
         [docs/bench.md](docs/bench.md#rivals): rclone's ends in a local cache.\n",
        facts(run),
        table(&lines),
        mounts.join(", ")
    )
}

#[test]
fn the_best_of_the_mounts_is_shown_with_its_name() {
    let row = |name, median, unit, spread| vec!["", "make", name, median, unit, "1.00", spread];
    let rows = [
        row("ext4", "9000", "per second", "1.00-1.00"),
        row("slow", "900", "per second", "1.00-1.00"),
        row("fast", "10000", "per second", "1.00-1.00"),
        row("broken", "90000", "per second", "1.00-1.00, then failed"),
        row("gone", "-", "per second", "failed: gone"),
    ];
    let mounts = ["slow", "fast", "broken", "gone"].map(str::to_owned);
    assert_eq!(best(&rows.iter().collect::<Vec<_>>(), &mounts), "10,000 (fast)");
    let seconds = [row("slow", "2.5", "s", ""), row("fast", "0.7", "s", "")];
    assert_eq!(best(&seconds.iter().collect::<Vec<_>>(), &mounts), "0.7 (fast)");
    assert_eq!(best(&[], &mounts), "-");
}

#[test]
fn the_documents_are_those_of_the_committed_run() {
    let run = fs::read_to_string(root().join("docs/benchmarks/run.json")).unwrap();
    let run: Value = serde_json::from_str(&run).unwrap();
    for (file, section) in [("docs/benchmarks.md", page(&run)), ("README.md", headlines(&run))] {
        let path = root().join(file);
        let text = fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap_or_else(|| panic!("{file} has no place for figures"));
        let (committed, after) = rest.split_once(END).unwrap_or_else(|| panic!("{file}: the place has no end"));
        let section = format!("\n{section}\n");
        if std::env::var_os("MARGAY_WRITE_DOCS").is_some() {
            fs::write(&path, format!("{before}{BEGIN}{section}{END}{after}")).unwrap();
        } else {
            assert!(
                committed == section,
                "{file} is not of docs/benchmarks/run.json: run this test with MARGAY_WRITE_DOCS=1"
            );
        }
    }
}
