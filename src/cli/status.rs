//! `margay status`: the state of a data directory's server, or of a mount of a far bucket.

use std::path::PathBuf;

use http::Method;
use serde_json::{Value, json};

use super::mount;
use super::reach::AdminArgs;
use super::tables;
use crate::exit::Failure;
use crate::far_mount::text;

const EXAMPLES: &str = "Examples:
  margay status
  margay status --data /srv/margay --json
  margay status --endpoint https://s3.example.org
  margay status /mnt/photos
  margay status s3://photos/2026 --conflicts
  margay status --cache /var/cache/photos --json

Exit code 3 when no server runs on the directory, or none answers at the URL, or the key may not do admin:Status.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminArgs,
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
    let (settings, reach) = args.admin.reach()?;
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
    let answer = super::runtime(1)?.block_on(reach.ask(&settings, Method::GET, "/status", None))?;
    let status = answer.ok_or_else(|| Failure::no_server(&settings.data))?;
    if args.json {
        println!("{status:#}");
    } else {
        show_for_people("", &status);
    }
    Ok(())
}

/// As `show`, with sizes, times and dates.
fn show_for_people(prefix: &str, value: &Value) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Object(_) => show_for_people(&path, value),
            Value::Array(items) if items.iter().any(Value::is_object) => {
                for (index, item) in items.iter().enumerate() {
                    show_for_people(&format!("{path}.{index}"), item);
                }
            }
            value => println!("{path:<28} {}", tables::shown(name, value)),
        }
    }
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
