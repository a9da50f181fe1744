//! `margay status`: the state of a data directory's server, or of a mount of a far bucket.

use std::path::PathBuf;

use http::Method;
use margay_env::Env;
use serde_json::{Value, json};

use super::arguments::DataArgs;
use super::mount;
use crate::control;
use crate::exit::Failure;
use crate::far_mount::text;

const EXAMPLES: &str = "Examples:
  margay status
  margay status --data /srv/margay --json
  margay status /mnt/photos
  margay status s3://photos/2026 --conflicts
  margay status --cache /var/cache/photos --json

Exit code 1 when no server runs on the directory.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// An s3://BUCKET/PREFIX that is mounted here, or a path in its mount, instead of a server
    place: Option<String>,
    /// The cache of a mount of s3://BUCKET/PREFIX, instead of a server
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Of such a mount: all files that were changed here and in the bucket
    #[arg(long)]
    conflicts: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let settings = args.data.settings(&Env::real())?;
    if args.place.is_some() || args.cache.is_some() {
        let status = mount::status(args.place.as_deref(), args.cache.as_deref(), &settings);
        let status = status.inspect_err(|failure| {
            if args.json {
                println!("{:#}", json!({ "error": failure.message }));
            }
        })?;
        match args.json {
            true => println!("{status:#}"),
            false => print!("{}", text::status(&status, args.conflicts)),
        }
        return Ok(());
    }
    if args.conflicts {
        return Err(Failure::usage("--conflicts belongs to a mount of s3://BUCKET/PREFIX: name it, or its --cache"));
    }
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
