//! One value for every setting: flag before environment before file before default.
//!
//! Why:        precedence is the same everywhere, and `margay config` can show the source of each value.
//! Invariants: R1 every setting of the table has exactly one value.
//!             R2 an invalid value is an error even when a stronger source overrides it, so errors in a file do not
//!                stay hidden.
//! Not here:   what the settings do.

use std::collections::BTreeMap;
use std::fmt;

use super::file;
use super::parse::{Value, parse};
use super::table::{SETTINGS, Setting};

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment(String),
    File { path: String, line: usize },
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag => formatter.write_str("flag"),
            Source::Environment(variable) => write!(formatter, "environment {variable}"),
            Source::File { path, line } => write!(formatter, "file {path}, line {line}"),
            Source::Default => formatter.write_str("default"),
        }
    }
}

/// A setting with its value.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub setting: &'static Setting,
    pub value: Value,
    pub source: Source,
}

/// All input: flags by setting name, the environment, and the file's path and text.
#[derive(Debug, Default)]
pub struct Found {
    pub flags: Vec<(String, String)>,
    pub environment: BTreeMap<String, String>,
    pub file: Option<(String, String)>,
}

/// Environment variables with our prefix that are not settings.
const OTHER_VARIABLES: [&str; 3] = ["MARGAY_CONFIG", "MARGAY_ACCESS_KEY", "MARGAY_SECRET_KEY"];

/// Values for the whole table; the error names the source and says what would be right.
pub fn resolve(found: &Found) -> Result<Vec<Resolved>, String> {
    let lines = match &found.file {
        Some((path, text)) => file::read(text).map_err(|error| format!("{path}, {error}"))?,
        None => Vec::new(),
    };
    for (name, _) in &found.flags {
        if !SETTINGS.iter().any(|setting| setting.name == name) {
            return Err(format!("--set: {}", file::unknown(name)));
        }
    }
    let mut values = Vec::with_capacity(SETTINGS.len());
    for setting in SETTINGS {
        let complain = |source: &Source, error: String| format!("{} ({source}): {error}", setting.name);
        let default = parse(setting, setting.default).map_err(|error| complain(&Source::Default, error))?;
        let mut best = Resolved { setting, value: default, source: Source::Default };
        let mut take = |text: &str, source: Source| -> Result<(), String> {
            let value = parse(setting, text).map_err(|error| complain(&source, error))?;
            best = Resolved { setting, value, source };
            Ok(())
        };
        if let (Some(line), Some((path, _))) = (lines.iter().find(|line| line.name == setting.name), &found.file) {
            take(&line.text, Source::File { path: path.clone(), line: line.line })?;
        }
        let variable = setting.variable();
        if let Some(text) = found.environment.get(&variable) {
            take(text, Source::Environment(variable))?;
        }
        let flags: Vec<&str> =
            found.flags.iter().filter(|(name, _)| name == setting.name).map(|(_, text)| text.as_str()).collect();
        if !flags.is_empty() {
            take(&flags.join(","), Source::Flag)?;
        }
        values.push(best);
    }
    Ok(values)
}

/// `MARGAY_*` variables that nothing reads: most likely misspelt.
pub fn stray_variables(environment: &BTreeMap<String, String>) -> Vec<String> {
    let known =
        |name: &str| OTHER_VARIABLES.contains(&name) || SETTINGS.iter().any(|setting| setting.variable() == name);
    environment.keys().filter(|name| name.starts_with("MARGAY_") && !known(name)).cloned().collect()
}
