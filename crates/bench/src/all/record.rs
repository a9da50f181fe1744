//! The run as one file, `run.json`: what the documents of a repository show and cite.
//!
//! Why:      tables in documents that are typed by hand drift from what was measured; these are made from one file.
//! Layout:   date, command, machine, the rivals that were there and those that were not, and of each suite its command, the
//!           rivals that failed in it, tables (first row the columns, all cells as text) and cited figures.
//! Not here: pictures, and what was measured second by second: the folders of the suites have them.

use std::fs;
use std::path::Path;

use margay_env::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{Done, cited, machine, page};
use crate::cited::Cited;
use crate::error::BenchError;
use crate::report;

#[derive(Debug, Serialize)]
struct Record<'a> {
    date: String,
    command: String,
    machine: Vec<(&'static str, String)>,
    rivals: Vec<Value>,
    absent: Vec<Value>,
    suites: Vec<SuiteRecord<'a>>,
}

#[derive(Debug, Serialize)]
struct SuiteRecord<'a> {
    name: &'a str,
    title: &'a str,
    command: String,
    seconds: u64,
    failure: Option<String>,
    /// Rivals that failed, and why.
    failures: Vec<(String, String)>,
    tables: Vec<Vec<Vec<String>>>,
    cited: Vec<&'static Cited>,
}

/// Writes `run.json`.
pub(super) fn write(report: &Path, all: &[Done], now: Timestamp) -> Result<(), BenchError> {
    let (rivals, absent) = rivals(report, all);
    let suites = all.iter().map(|done| SuiteRecord {
        name: done.step.name,
        title: done.step.title,
        command: format!("margay {}", done.step.command()),
        seconds: done.seconds.round() as u64,
        failure: done.failure.as_deref().map(|failure| without_folders(failure.split(' '))),
        failures: failures(report, done.step.name),
        tables: page::tables(report, &done.step),
        cited: cited::of(done.step.name).collect(),
    });
    let record = Record {
        date: page::date(now),
        command: format!("margay {}", without_folders(std::env::args().skip(1))),
        machine: machine::facts(),
        rivals,
        absent,
        suites: suites.collect(),
    };
    let path = report.join("run.json");
    fs::write(&path, report::json(&record)).map_err(BenchError::file(&path))
}

/// The rivals that took part in some suite, and those that took part in none; as the suites' reports tell, each once.
pub(super) fn rivals(report: &Path, all: &[Done]) -> (Vec<Value>, Vec<Value>) {
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    for found in all.iter().flat_map(|done| reports(report, done.step.name)) {
        add_new(&mut there, &found["rivals"]);
        add_new(&mut absent, &found["absent"]);
    }
    absent.retain(|rival| there.iter().all(|other| other["name"] != rival["name"]));
    (there, absent)
}

/// The rivals that failed in a suite, and why.
pub(super) fn failures(report: &Path, suite: &str) -> Vec<(String, String)> {
    let rivals =
        reports(report, suite).into_iter().flat_map(|found| found["rivals"].as_array().cloned().unwrap_or_default());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    rivals.filter_map(|rival| Some((text(&rival["name"])?, text(&rival["failure"])?))).collect()
}

/// What a suite wrote as JSON.
fn reports(report: &Path, suite: &str) -> Vec<Value> {
    let texts = page::files(&report.join(suite), "json").into_iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.filter_map(|text| serde_json::from_str(&text).ok()).collect()
}

/// A path by its last part: where a machine keeps its files is nobody's business, and another's differ.
fn without_folder(word: &str) -> &str {
    match word.starts_with('/') {
        true => word.trim_end_matches('/').rsplit('/').next().unwrap_or(word),
        false => word,
    }
}

fn without_folders(words: impl Iterator<Item = impl AsRef<str>>) -> String {
    words.map(|word| without_folder(word.as_ref()).to_owned()).collect::<Vec<_>>().join(" ")
}

/// What failed in one suite may have gone well in another: only the name tells rivals apart.
fn add_new(known: &mut Vec<Value>, found: &Value) {
    for one in found.as_array().into_iter().flatten() {
        if known.iter().all(|other| other["name"] != one["name"]) {
            let mut one = one.clone();
            if let Some(fields) = one.as_object_mut() {
                fields.remove("failure");
            }
            known.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Step;
    use super::*;

    #[test]
    fn a_run_holds_the_tables_and_each_rival_once() {
        let report = tempfile::tempdir().unwrap();
        let suite = |name: &'static str| {
            fs::create_dir(report.path().join(name)).unwrap();
            fs::write(report.path().join(format!("{name}/{name}.csv")), "phase,name\nplain,\"a,b\"\n").unwrap();
            let json = "{\"rivals\": [{\"name\": \"s3fs\", \"version\": \"1\", \"failure\": \"x\"}], \"absent\": []}";
            fs::write(report.path().join(format!("{name}/{name}.json")), json).unwrap();
            let step = Step { name, title: name, arguments: vec!["bench".to_owned()] };
            Done { step, seconds: 1.4, failure: None }
        };
        write(report.path(), &[suite("mdtest"), suite("small")], Timestamp(0)).unwrap();
        let run = fs::read_to_string(report.path().join("run.json")).unwrap();
        let run: Value = serde_json::from_str(&run).unwrap();
        assert_eq!(run["suites"][0]["tables"], serde_json::json!([[["phase", "name"], ["plain", "a,b"]]]));
        assert_eq!(run["suites"][0]["failures"], serde_json::json!([["s3fs", "x"]]));
        assert_eq!(run["rivals"], serde_json::json!([{"name": "s3fs", "version": "1"}]));
        assert!(
            run["date"].as_str().unwrap().contains("1970") && !run["suites"][0]["cited"].as_array().unwrap().is_empty()
        );
    }
}
