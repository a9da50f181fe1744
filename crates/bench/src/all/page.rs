//! The page: one file without anything from elsewhere, with the pictures and tables of each suite.
//!
//! Invariants: whatever a suite wrote is shown as text, except its pictures, which this program drew.
//!             It reads on paper and on a phone: one column, tables that scroll by themselves.

use std::fs;
use std::path::{Path, PathBuf};

use margay_env::Timestamp;

use super::plan::Step;
use super::{Done, failed, machine, record};
use crate::error::BenchError;
use crate::{dirops, ls};

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:0 auto;padding:1rem}\
h1{font-size:1.6rem;margin:.5rem 0}h2{font-size:1.25rem;margin:2.5rem 0 .5rem;border-top:1px solid #8886;padding-top:1rem}\
figure{margin:1rem 0}svg{width:100%;height:auto;background:#fff}\
.table{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}\
td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #8884;white-space:nowrap}\
td:first-child,th:first-child,td.word,th.word{text-align:left}\
code{font-size:.8rem;overflow-wrap:anywhere}.note{color:#777;font-size:.9rem}.failed{color:#c00}\
@media print{h2{break-after:avoid}figure,table{break-inside:avoid}}";

/// Published figures of others, for scale: title, where from, and a table.
#[derive(Debug, serde::Serialize)]
pub(super) struct Cited {
    #[serde(skip)]
    suite: &'static str,
    note: &'static str,
    columns: &'static [&'static str],
    rows: &'static [&'static [&'static str]],
}

const CITED: [Cited; 5] = [
    Cited {
        suite: "mdtest",
        note: "Cited, other hardware, a far S3: TigrisFS' own table (mdtest -b 6 -I 8 -z 4), per second.",
        columns: &["row", "TigrisFS 64T", "TigrisFS 16T", "JuiceFS + Redis", "Goofys"],
        rows: &[
            &["directory creation", "2939", "858", "1536", "26"],
            &["directory stat", "107342", "119941", "8245", "141250"],
            &["directory rename", "65", "67", "1290", "6"],
            &["directory removal", "2233", "607", "1892", "16"],
            &["file creation", "2504", "890", "1852", "25"],
            &["file stat", "109301", "108108", "11521", "2232"],
            &["file read", "7498", "8102", "4891", "3829"],
            &["file removal", "2070", "614", "1703", "34"],
            &["tree creation", "3896", "4364", "1667", "25"],
            &["tree removal", "6866", "7338", "1799", "19"],
        ],
    },
    Cited {
        suite: "ls-mounts",
        note: ls::mounts::cited::NOTE,
        columns: ls::mounts::cited::COLUMNS,
        rows: ls::mounts::cited::ROWS,
    },
    Cited {
        suite: "dirops-curve",
        note: dirops::cited::NOTE,
        columns: dirops::cited::COLUMNS,
        rows: dirops::cited::ROWS,
    },
    Cited {
        suite: "goofys",
        note: "Cited, other hardware, a far S3: GeeseFS' raw figures of 2021, medians in ms. Each file was a process of its \
               own, and the large file had 1000 MiB.",
        columns: &["", "geesefs", "goofys", "s3fs", "local disk"],
        rows: &[
            &["create", "1180", "5180", "14600", "6"],
            &["remove", "1030", "2830", "3320", "98"],
            &["create in parallel", "930", "1190", "11800", "21"],
            &["remove in parallel", "260", "2250", "2710", "22"],
            &["write", "9130", "7170", "8130", "3150"],
            &["read", "3560", "4680", "11700", "2980"],
            &["first byte", "121", "51", "288", "2"],
            &["ls of 1000", "216", "157", "1770", "12"],
            &["find of 820", "83", "158", "4480", ""],
        ],
    },
    Cited {
        suite: "small",
        note: "Cited, other hardware, a far S3: TigrisFS' own table for 6400 such files, minutes and seconds.",
        columns: &["", "tigrisfs", "rclone+cache", "rclone", "goofys", "s3fs"],
        rows: &[
            &["cp -r", "0:25", "6:20", "7:03", "8:51", "53:30"],
            &["rm -r", "0:22", "6:16", "6:20", "8:36", "18:26"],
        ],
    },
];

/// Writes `index.html`; its path.
pub(super) fn write(report: &Path, all: &[Done], mount: bool, now: Timestamp) -> Result<PathBuf, BenchError> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>margay bench</title>\n<style>{STYLE}</style>\n<h1>margay bench</h1>\n"
    );
    page.push_str(&format!("<p class=\"note\">{}</p>\n<div class=\"table\"><table>\n", date(now)));
    for (name, value) in machine::facts() {
        page.push_str(&format!("<tr><td>{name}</td><td class=\"word\">{}</td></tr>\n", escape(&value)));
    }
    for (name, facts) in rivals(report, all) {
        page.push_str(&format!("<tr><td>{}</td><td class=\"word\">{}</td></tr>\n", escape(&name), escape(&facts)));
    }
    page.push_str("</table></div>\n<p>Server, clients and suites shared this machine. ");
    page.push_str(match mount {
        true => {
            "<b>plain</b> is a directory of the disk that the data is on, <b>mount</b> a bucket as a directory.</p>\n"
        }
        false => "Nothing could be mounted, so directories are shown without the mount.</p>\n",
    });
    for done in all {
        section(&mut page, report, done);
    }
    let path = report.join("index.html");
    fs::write(&path, page).map_err(|source| failed(&path, source))?;
    Ok(path)
}

/// Each rival, and what it says of itself.
fn rivals(report: &Path, all: &[Done]) -> Vec<(String, String)> {
    let (there, absent) = record::rivals(report, all);
    let named = there.iter().chain(&absent).map(|rival| (rival["name"].as_str().unwrap_or_default(), rival));
    named.map(|(name, rival)| (name.to_owned(), facts(rival))).collect()
}

fn facts(rival: &serde_json::Value) -> String {
    let of = |field: &str| rival[field].as_str();
    match of("reason") {
        Some(reason) => format!("left out: {reason}"),
        None => {
            let version = of("version").map(|version| format!(" ({version})")).unwrap_or_default();
            let store = of("store").map(|store| format!(", data in {store}")).unwrap_or_default();
            format!("{}{version}{store}", of("title").unwrap_or_default())
        }
    }
}

fn section(page: &mut String, report: &Path, done: &Done) {
    let Done { step, seconds, failure } = done;
    page.push_str(&format!("<h2 id=\"{0}\">{1}</h2>\n", step.name, step.title));
    page.push_str(&format!("<p><code>margay {}</code><br>", escape(&step.command())));
    page.push_str(&format!("<span class=\"note\">took {seconds:.0} s</span></p>\n"));
    if let Some(failure) = failure {
        page.push_str(&format!("<p class=\"failed\">failed: {}</p>\n", escape(failure)));
    }
    let folder = report.join(step.name);
    for picture in files(&folder, "svg") {
        if let Ok(picture) = fs::read_to_string(&picture) {
            page.push_str(&format!("<figure>{picture}</figure>\n"));
        }
    }
    for table in tables(report, step) {
        add_table(page, table.into_iter(), step.directories);
    }
    for cited in cited(step.name) {
        page.push_str(&format!("<p class=\"note\">{}</p>\n", cited.note));
        let rows = std::iter::once(cited.columns).chain(cited.rows.iter().copied());
        add_table(page, rows.map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()), false);
    }
}

pub(super) fn date(now: Timestamp) -> String {
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(now.0.max(0) as u64))
}

pub(super) fn cited(suite: &str) -> impl Iterator<Item = &'static Cited> {
    CITED.iter().filter(move |cited| cited.suite == suite)
}

/// What a suite wrote as CSV, the columns first. What it measured second by second is in its pictures; the files have it.
pub(super) fn tables(report: &Path, step: &Step) -> Vec<Vec<Vec<String>>> {
    let long = |path: &PathBuf| {
        path.file_stem().is_some_and(|stem| stem.to_string_lossy().contains('-'))
            && step.name != "ls"
            && step.name != "growth"
    };
    let short = files(&report.join(step.name), "csv").into_iter().filter(|path| !long(path));
    let read = short.filter_map(|path| fs::read_to_string(path).ok());
    read.map(|text| text.lines().map(cells).collect()).collect()
}

pub(super) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        found.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort();
    found
}

/// The cells of a line of CSV.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let last = cells.len() - 1;
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => cells[last].extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            letter => cells[last].push(letter),
        }
    }
    cells
}

/// `places`: paths are shown by their last part.
fn add_table(page: &mut String, rows: impl Iterator<Item = Vec<String>>, places: bool) {
    page.push_str("<div class=\"table\"><table>\n");
    for (number, row) in rows.enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        page.push_str("<tr>");
        for cell in row {
            let cell = if places && cell.starts_with('/') { cell.rsplit('/').next().unwrap_or(&cell) } else { &cell };
            let class = if cell.starts_with(char::is_alphabetic) { " class=\"word\"" } else { "" };
            page.push_str(&format!("<{tag}{class}>{}</{tag}>", escape(cell)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn escape(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_csv_have_their_cells() {
        assert_eq!(cells("a,\"b, \"\"c\"\"\",,d"), ["a", "b, \"c\"", "", "d"]);
    }

    #[test]
    fn a_page_shows_what_suites_wrote_as_text() {
        let report = tempfile::tempdir().unwrap();
        fs::create_dir(report.path().join("mdtest")).unwrap();
        fs::write(report.path().join("mdtest/mdtest.csv"), "phase,directory\n<b>,/x/plain\n").unwrap();
        fs::write(report.path().join("mdtest/mdtest.svg"), "<svg>drawn</svg>").unwrap();
        let rivals = r#"{"rivals": [{"name": "s3fs", "title": "s3fs-fuse", "version": "V1", "store": "margay"}],
            "absent": [{"name": "minio", "reason": "not on PATH: minio"}]}"#;
        fs::write(report.path().join("mdtest/mdtest.json"), rivals).unwrap();
        let step = Step { name: "mdtest", title: "mdtest", arguments: vec!["bench".to_owned()], directories: true };
        let all = [Done { step, seconds: 1.0, failure: Some("a < b".to_owned()) }];
        let path = write(report.path(), &all, true, Timestamp(0)).unwrap();
        let page = fs::read_to_string(path).unwrap();
        for shown in [
            "&lt;b&gt;",
            "<td class=\"word\">plain</td>",
            "<svg>drawn</svg>",
            "a &lt; b",
            "107342",
            "1970",
            "s3fs-fuse (V1), data in margay",
            "left out: not on PATH",
        ] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        assert!(!page.contains("http://") && !page.contains("https://"), "nothing comes from elsewhere");
    }
}
