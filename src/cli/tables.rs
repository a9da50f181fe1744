//! Tables, sizes, times and dates for people.
//!
//! Invariants: T1 what programs read is JSON (`--json`); this text may change.
//!             T2 control characters of names do not reach the terminal: they are escaped as everywhere (margay_env::output).
//!             T3 a time has one form, `2026-11-21T07:39:24Z`: it sorts, and other programs read it.

use std::fmt::Write;

use margay_env::{Timestamp, output};
use margay_s3::iso_time;
use serde_json::Value;

/// A table with a heading; a column whose name begins with `>` is aligned to the right.
pub(super) fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let heads: Vec<&str> = columns.iter().map(|column| column.trim_start_matches('>')).collect();
    let width = |at: usize| {
        let widest = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(heads[at].chars().count())
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut out = String::new();
    let mut line = |cells: Vec<&str>| {
        let mut text = String::new();
        for ((cell, width), column) in cells.iter().zip(&widths).zip(columns) {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let cell = if column.starts_with('>') { format!("{pad}{cell}") } else { format!("{cell}{pad}") };
            text.push_str(&cell);
            text.push_str("  ");
        }
        writeln!(out, "{}", text.trim_end()).expect("a string takes all text");
    };
    line(heads.clone());
    rows.iter().for_each(|row| line(row.iter().map(String::as_str).collect()));
    out
}

/// A text without control characters (T2).
pub(super) fn printable(text: &str) -> String {
    output::shown(text).into_owned()
}

/// `1.5 GiB`.
pub(super) fn size(bytes: u64) -> String {
    for (unit, size) in [("EiB", 1_u64 << 60), ("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)] {
        if bytes >= size {
            return format!("{:.1} {unit}", bytes as f64 / size as f64);
        }
    }
    if bytes >= 1 << 10 { format!("{:.1} KiB", bytes as f64 / 1024.0) } else { format!("{bytes} B") }
}

/// `2026-11-21T07:39:24Z` of seconds since 1970 (T3).
pub(super) fn date(seconds: i64) -> String {
    // Up to the year 9999, which a timestamp cannot hold.
    let Some(nanoseconds) = seconds.checked_mul(1_000_000_000) else { return seconds.to_string() };
    let text = iso_time(Timestamp(nanoseconds));
    match text.get(..19) {
        Some(whole) => format!("{whole}Z"),
        None => text,
    }
}

/// `3d 4h`, `5m 6s`, `7s`.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// `1.2 ms` of microseconds.
pub(super) fn micros(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} us"),
        1000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// A value of an answer, by what its name says it is.
pub(super) fn shown(name: &str, value: &Value) -> String {
    let is_date = ["created", "last_seconds", "ends_seconds"].iter().any(|end| name.ends_with(end));
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(value) => (if *value { "yes" } else { "no" }).to_owned(),
        Value::String(text) => printable(text),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(seconds), _) if is_date => date(seconds),
            (_, Some(seconds)) if name.ends_with("_seconds") => span(seconds),
            (_, Some(bytes)) if name == "bytes" || name.ends_with("_bytes") => size(bytes),
            _ => number.to_string(),
        },
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(|item| shown(name, item)).collect::<Vec<_>>().join(", "),
        Value::Object(_) => printable(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_by_their_names() {
        for (name, value, text) in [
            ("free_bytes", json!(1_610_612_736_u64), "1.5 GiB"),
            ("bytes", json!(1023), "1023 B"),
            ("bytes", json!(1536), "1.5 KiB"),
            ("created", json!(1_763_710_764), "2025-11-21T07:39:24Z"),
            ("uptime_seconds", json!(90_061), "1d 1h"),
            ("uptime_seconds", json!(59), "59s"),
            ("files", json!(7), "7"),
            ("disabled", json!(false), "no"),
            ("groups", json!(["a", "b"]), "a, b"),
            ("user", json!("a\u{1b}[2J"), "a\\x1b[2J"),
            ("user", json!("a\u{202e}b"), "a\\u{202e}b"),
        ] {
            assert_eq!(shown(name, &value), text);
        }
        assert_eq!(date(4_948_848_907), "2126-10-28T08:15:07Z");
        assert_eq!(date(i64::MAX), i64::MAX.to_string());
    }

    #[test]
    fn a_table_is_aligned() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "9\n".to_owned()]];
        assert_eq!(table(&["NAME", ">N"], &rows), "NAME    N\na      10\nlong  9\\n\n");
    }
}
