//! `margay disk add`, `remove` and `ls`: the disks of a running server's volume.

use std::path::PathBuf;

use http::Method;
use margay_env::Env;
use serde_json::{Value, json};

use super::arguments::DataArgs;
use super::status::show;
use crate::control;
use crate::exit::Failure;

const EXAMPLES: &str = "Examples:
  margay disk ls
  margay disk add /d2
  margay disk remove /d1 --data /ssd

add takes a new directory, an empty one in the place of a disk that is out, or that disk itself; it is filled while the server
runs. remove moves all payload to other disks first. `margay status` shows how far that is.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the disks, what is wrong with them, and how far copying is
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Use a directory for payload, or again after its disk was replaced
    Add { directory: PathBuf },
    /// Move all payload away from a disk
    Remove { directory: PathBuf },
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let settings = args.data.settings(&Env::real())?;
    let wish = |word: &str, path: &PathBuf| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        json!({ "do": word, "path": path.display().to_string() })
    };
    let (method, path, body, is_json) = match &args.command {
        Command::Ls { json } => (Method::GET, "/status", None, *json),
        Command::Add { directory } => (Method::POST, "/disk", Some(wish("add", directory)), false),
        Command::Remove { directory } => (Method::POST, "/disk", Some(wish("remove", directory)), false),
    };
    let answer = super::runtime(1)?.block_on(control::ask_with(&settings.data, method, path, body.as_ref()))?;
    let answer = answer.ok_or_else(|| Failure::no_server(&settings.data))?;
    let data = settings.data.display();
    let disks = if body.is_some() { &answer } else { &answer["storage"]["disks"] };
    match disks {
        Value::Null => {
            return Err(Failure::failed(format!(
                "{data} has no disks; start it with: margay serve --data {data} --disk DIR"
            )));
        }
        disks if is_json => println!("{disks:#}"),
        disks => show("", disks),
    }
    Ok(())
}
