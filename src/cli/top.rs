//! `margay top`: what a running server answers now, and how fast.

use std::io::IsTerminal;

use serde_json::{Value, json};

use super::reach::AdminArgs;
use super::tables::{micros, printable, size, table};
use super::trace::show;
use crate::exit::Failure;

const EXAMPLES: &str = "Examples:
  margay top
  margay top --endpoint https://s3.example.org
  margay top --seconds 10 --count 6 --json > minute.ndjson

One block (with --json one line) in each interval, until Ctrl-C or --count; on a terminal each replaces the one before.
Times are from a request's head to the end of its answer; P99: 99 of 100 ended within it. A key needs admin:Top.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminArgs,
    /// Length of an interval
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// End after so many intervals
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let clear = if std::io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    let text = |line: &Value| if args.json { format!("{line}\n") } else { format!("{clear}{}", block(line)) };
    show(&args.admin, "/top", &json!({ "seconds": args.seconds }), args.count, text)
}

/// One interval for people.
fn block(line: &Value) -> String {
    let number = |name: &str| line[name].as_u64().unwrap_or_default();
    let rate = |name: &str| size(line[name].as_f64().unwrap_or_default() as u64);
    let text = |name: &str| printable(line[name].as_str().unwrap_or_default());
    let mut out = format!(
        "{}  {}  {} connections, {} running  in {}/s, out {}/s  processor {:.1} %  free {} of {}\n\n",
        text("time"),
        text("health"),
        number("connections"),
        number("requests_running"),
        rate("received_bytes_per_second"),
        rate("sent_bytes_per_second"),
        line["processor_percent"].as_f64().unwrap_or_default(),
        size(number("free_bytes")),
        size(number("total_bytes")),
    );
    let rows: Vec<Vec<String>> = line["operations"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| {
            let number = |name: &str| row[name].as_u64().unwrap_or_default();
            vec![
                row["operation"].as_str().unwrap_or_default().to_owned(),
                format!("{:.1}", row["per_second"].as_f64().unwrap_or_default()),
                number("refused").to_string(),
                number("failed").to_string(),
                micros(number("mean_us")),
                row["p99_us"].as_u64().map_or_else(|| "> 60 s".to_owned(), |most| format!("< {}", micros(most))),
            ]
        })
        .collect();
    out.push_str(&table(&["OPERATION", ">PER SECOND", ">REFUSED", ">FAILED", ">MEAN", ">P99"], &rows));
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_a_row_for_each_operation() {
        let line = json!({ "time": "T", "health": "ok", "free_bytes": 1024, "operations": [
            { "operation": "GetObject", "per_second": 12.5, "refused": 1, "failed": 0, "mean_us": 1500, "p99_us": null },
        ] });
        let text = block(&line);
        let row = text.lines().find(|line| line.starts_with("GetObject")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["GetObject", "12.5", "1", "0", "1.5", "ms", ">", "60", "s"]);
    }
}
