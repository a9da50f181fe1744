//! `margay status`: the state of a data directory's server.

use http::Method;
use margay_env::Env;
use serde_json::Value;

use super::arguments::DataArgs;
use crate::control;
use crate::exit::Failure;

const EXAMPLES: &str = "Examples:
  margay status
  margay status --data /srv/margay --json

Exit code 1 when no server runs on the directory.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let settings = args.data.settings(&Env::real())?;
    let answer = super::runtime(1)?.block_on(control::ask(&settings.data, Method::GET, "/status"))?;
    let Some(status) = answer else {
        let data = settings.data.display();
        return Err(Failure::failed(format!("no server runs on {data}; start one with: margay serve --data {data}")));
    };
    if args.json {
        println!("{status:#}");
    } else {
        show("", &status);
    }
    Ok(())
}

/// One line per value, nested names joined by dots.
pub(super) fn show(prefix: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                show(&if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") }, value);
            }
        }
        Value::String(text) => println!("{prefix:<28} {text}"),
        other => println!("{prefix:<28} {other}"),
    }
}
