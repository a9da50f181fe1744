//! `margay bench rivals`: which rivals there are, and which of them can run here.

use std::path::PathBuf;

use serde::Serialize;

use super::file::Gives;
use super::{lacking, shipped};
use crate::error::BenchError;
use crate::report;
use crate::summary::Table;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench rivals
  margay bench rivals --rivals my-rivals/ --json")]
pub struct ListArgs {
    /// More rivals: a directory of files NAME.toml, as docs/bench.md describes them
    #[arg(long = "rivals", value_name = "DIR")]
    pub rival_files: Option<PathBuf>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    title: String,
    licence: String,
    home: String,
    gives: Vec<&'static str>,
    /// Why it cannot run here.
    lacking: Option<String>,
}

pub(crate) fn run(args: &ListArgs) -> Result<(), BenchError> {
    let word = |gives: &Gives| match gives {
        Gives::Directory => "directory",
        Gives::S3 => "s3",
        Gives::Listing => "listing",
    };
    let rows = shipped::all(args.rival_files.as_deref())?.into_iter().map(|(name, file)| Row {
        lacking: lacking(&file),
        name,
        title: file.title,
        licence: file.licence,
        home: file.home,
        gives: file.gives.iter().map(word).collect(),
    });
    let rows: Vec<Row> = rows.collect();
    if args.json {
        report::print_json(&rows);
        return Ok(());
    }
    let mut table = Table::new(&["name", "what", "licence", "gives", "here"]);
    for row in rows {
        let here = row.lacking.unwrap_or_else(|| "ready".to_owned());
        table.row(vec![row.name, row.title, row.licence, row.gives.join(", "), here]);
    }
    print!("{}", table.text());
    Ok(())
}
