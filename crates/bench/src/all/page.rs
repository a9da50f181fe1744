//! The page: one file without anything from elsewhere, with the pictures and tables of each suite.
//!
//! Invariants: whatever a suite wrote is shown as text, except its pictures, which this program drew.
//!             It reads on paper, in the dark and on a phone: one column, and tables that scroll by themselves.

use std::fs;
use std::path::{Path, PathBuf};

use margay_env::Timestamp;

use super::plan::Step;
use super::{Done, cited, compared, machine, record};
use crate::error::BenchError;
use crate::report::escape;

/// The name of the page in the report.
pub(super) const FILE: &str = "index.html";

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:0 auto;padding:1rem}\
h1{font-size:1.6rem;margin:.5rem 0}\
h2{font-size:1.25rem;margin:2.5rem 0 .5rem;border-top:1px solid #8886;padding-top:1rem}\
figure{margin:1rem 0}svg{display:block;width:100%;max-width:36rem;height:auto}\
@media screen and (prefers-color-scheme:dark){svg{filter:invert(.9) hue-rotate(180deg)}}\
.table{overflow-x:auto;margin:1rem 0}\
table{border-collapse:collapse;font-size:.85rem;line-height:1.3;font-variant-numeric:tabular-nums}\
td,th{padding:.2rem .6rem;text-align:right;vertical-align:top;border-bottom:1px solid #8884;white-space:nowrap}\
td:first-child,th:first-child,.word{text-align:left}\
td:first-child,th:first-child{position:sticky;left:0;background:Canvas}\
td small{display:block;opacity:.7}\
.facts td{white-space:normal;overflow-wrap:anywhere}.facts td:first-child{white-space:nowrap}\
code{font-size:.8rem}code span{display:inline-block;max-width:100%;overflow-wrap:anywhere}\
.note{font-size:.9rem;opacity:.75}.failed{color:#c33}\
@media print{@page{margin:1.5cm}body{padding:0;font-size:10pt}h2{break-after:avoid}\
h2+p{break-after:avoid}figure,tr,p{break-inside:avoid}svg{max-width:13cm;max-height:18cm;margin:auto}\
.table{overflow:visible}table{font-size:7pt}td,th{padding:.05rem .25rem}.compared td{white-space:normal}}";

/// Writes the page.
pub(super) fn write(report: &Path, all: &[Done], is_mounted: bool, now: Timestamp) -> Result<(), BenchError> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>margay bench</title>\n<style>{STYLE}</style>\n<h1>margay bench</h1>\n"
    );
    page.push_str(&format!("<p class=\"note\">{}</p>\n<div class=\"table\"><table class=\"facts\">\n", date(now)));
    let facts = machine::facts().into_iter().map(|(name, value)| (name.to_owned(), value));
    for (name, value) in facts.chain(rivals(report, all)) {
        page.push_str(&format!("<tr><td>{}</td><td class=\"word\">{}</td></tr>\n", escape(&name), escape(&value)));
    }
    page.push_str("</table></div>\n<p>Server, clients and suites shared this machine. ");
    page.push_str(match is_mounted {
        true => "<b>plain</b> is a directory of the disk that the data is on, <b>mount</b> a bucket as a directory. ",
        false => "Nothing could be mounted, so directories are shown without the mount. ",
    });
    page.push_str(
        "Where several are compared, the small figure is the ratio to the first; how far it spread over the rounds \
         stands in the files of the suite.</p>\n",
    );
    let link = |done: &Done| format!("<a href=\"#{}\">{}</a>", done.step.name, done.step.title);
    page.push_str(&format!("<p class=\"note\">{}</p>\n", all.iter().map(link).collect::<Vec<_>>().join(" \u{b7} ")));
    for done in all {
        section(&mut page, report, done);
    }
    let path = report.join(FILE);
    fs::write(&path, page).map_err(BenchError::file(&path))
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
    // An option is not broken where a line ends.
    let command = step.command();
    let words = command.split(' ').map(|word| format!("<span>{}</span>", escape(word))).collect::<Vec<_>>().join(" ");
    page.push_str(&format!("<p><code>margay {words}</code><br><span class=\"note\">took {seconds:.0} s</span></p>\n"));
    if let Some(failure) = failure {
        page.push_str(&format!("<p class=\"failed\">failed: {}</p>\n", escape(failure)));
    }
    for picture in files(&report.join(step.name), "svg") {
        if let Ok(picture) = fs::read_to_string(&picture) {
            page.push_str(&format!("<figure>{picture}</figure>\n"));
        }
    }
    for table in tables(report, step) {
        match compared::by_phase(&table) {
            Some(compared) => add_table(page, "compared", &compared),
            None => add_table(page, "", &table),
        }
    }
    for (name, reason) in record::failures(report, step.name) {
        page.push_str(&format!("<p class=\"failed\">{} failed: {}</p>\n", escape(&name), escape(&reason)));
    }
    for cited in cited::of(step.name) {
        page.push_str(&format!("<p class=\"note\">{}</p>\n", cited.note));
        add_table(page, "", &cited.lines());
    }
}

pub(super) fn date(now: Timestamp) -> String {
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(now.0.max(0) as u64))
}

/// What a suite wrote as CSV, the columns first. What it measured second by second is in its pictures; the files have it.
pub(super) fn tables(report: &Path, step: &Step) -> Vec<Vec<Vec<String>>> {
    let long = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        name.contains('-') && name != step.name && step.name != "ls" && step.name != "growth"
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

/// The first row holds the columns; what follows a line feed in a cell is shown small.
fn add_table(page: &mut String, class: &str, rows: &[Vec<String>]) {
    page.push_str(&format!("<div class=\"table\"><table class=\"{class}\">\n"));
    for (number, row) in rows.iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        page.push_str(match number {
            0 => "<thead><tr>",
            1 => "</thead><tr>",
            _ => "<tr>",
        });
        for cell in row {
            let (cell, small) = cell.split_once('\n').unwrap_or((cell, ""));
            let small = if small.is_empty() { String::new() } else { format!("<small>{}</small>", escape(small)) };
            let word = if class.is_empty() && cell.starts_with(char::is_alphabetic) { " class=\"word\"" } else { "" };
            page.push_str(&format!("<{tag}{word}>{}{small}</{tag}>", escape(cell)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_csv_have_their_cells() {
        assert_eq!(cells("a,\"b, \"\"c\"\"\",,d"), ["a", "b, \"c\"", "", "d"]);
    }

    #[test]
    fn a_suite_shows_its_own_table_and_none_of_seconds() {
        let report = tempfile::tempdir().unwrap();
        fs::create_dir(report.path().join("ls-mounts")).unwrap();
        for (name, text) in [("ls-mounts", "own"), ("load-windows", "seconds"), ("mounts", "alone")] {
            fs::write(report.path().join(format!("ls-mounts/{name}.csv")), text).unwrap();
        }
        let step = Step { name: "ls-mounts", title: "", arguments: Vec::new() };
        assert_eq!(tables(report.path(), &step), [[["own"]], [["alone"]]]);
    }

    #[test]
    fn a_page_shows_what_suites_wrote_as_text() {
        let report = tempfile::tempdir().unwrap();
        fs::create_dir(report.path().join("mdtest")).unwrap();
        fs::write(
            report.path().join("mdtest/mdtest.csv"),
            "phase,name,median,unit,of the first,spread\n<b>,plain,1,s,1.00,\n<b>,s3fs,2,s,2.00,\n",
        )
        .unwrap();
        fs::write(report.path().join("mdtest/mdtest.svg"), "<svg>drawn</svg>").unwrap();
        let rivals = r#"{"rivals": [{"name": "s3fs", "title": "s3fs-fuse", "version": "V1", "store": "margay", "failure": "it is <gone>"}],
            "absent": [{"name": "minio", "reason": "not on PATH: minio"}]}"#;
        fs::write(report.path().join("mdtest/mdtest.json"), rivals).unwrap();
        let step = Step { name: "mdtest", title: "mdtest", arguments: vec!["bench".to_owned()] };
        let all = [Done { step, seconds: 1.0, failure: Some("a < b".to_owned()) }];
        write(report.path(), &all, true, Timestamp(0)).unwrap();
        let page = fs::read_to_string(report.path().join(FILE)).unwrap();
        for shown in [
            "&lt;b&gt;",
            "<th>plain</th>",
            "<td>2<small>2.00</small></td>",
            "s3fs failed: it is &lt;gone&gt;",
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
