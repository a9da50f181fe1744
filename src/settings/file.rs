//! The settings file: TOML, with line numbers in error messages.
//!
//! Why:      a misspelt key that is silently ignored is a limit that is silently not set.
//! Not here: validating values (`parse`), precedence (`resolve`).

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::table::SETTINGS;

/// A key of the file: the setting's name, its text, its line number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub name: &'static str,
    pub text: String,
    pub line: usize,
}

/// Reads every key; the error names the line.
pub fn read(input: &str) -> Result<Vec<Line>, String> {
    let table = DeTable::parse(input).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(input, span.start));
        format!("line {line}: {}", error.message())
    })?;
    let mut lines = Vec::new();
    collect(input, "", table.get_ref(), &mut lines)?;
    Ok(lines)
}

fn collect(input: &str, prefix: &str, table: &DeTable<'_>, lines: &mut Vec<Line>) -> Result<(), String> {
    for (key, value) in table {
        let line = line_of(input, key.span().start);
        let name = format!("{prefix}{}", key.get_ref());
        let inner = format!("{name}.");
        match value.get_ref() {
            DeValue::Table(table) if SETTINGS.iter().any(|setting| setting.name.starts_with(&inner)) => {
                collect(input, &inner, table, lines)?;
            }
            _ => {
                let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
                    return Err(format!("line {line}: {}", unknown(&name)));
                };
                let text = text_of(value).ok_or_else(|| {
                    format!("line {line}: {name} takes a text, a number, true, false or a list of texts")
                })?;
                lines.push(Line { name: setting.name, text, line });
            }
        }
    }
    Ok(())
}

/// The error for an unknown name, with the most similar setting.
pub fn unknown(name: &str) -> String {
    let nearest = SETTINGS.iter().map(|setting| (distance(name, setting.name), setting.name)).min();
    match nearest {
        Some((steps, near)) if steps <= 3 => format!("there is no setting {name:?}; did you mean {near:?}?"),
        _ => format!("there is no setting {name:?}; `margay config` shows all of them"),
    }
}

fn text_of(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(switch) => Some(switch.to_string()),
        DeValue::Array(items) => {
            let texts: Option<Vec<&str>> = items.iter().map(|item| item.get_ref().as_str()).collect();
            Some(texts?.join(","))
        }
        _ => None,
    }
}

fn line_of(input: &str, at: usize) -> usize {
    input.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// Levenshtein distance in characters.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
