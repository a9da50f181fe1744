//! `margay config`: every setting with its value and its source.

use margay_env::Env;
use serde_json::{Value as Json, json};

use super::arguments::ServerArgs;
use crate::exit::Failure;
use crate::settings::Settings;

const EXAMPLES: &str = "Examples:
  margay config
  margay config --config /etc/margay/margay.toml --json
  MARGAY_LIMITS_CACHE_BYTES=1GiB margay config | grep cache

Precedence: flag, then environment (MARGAY_ and the name in capitals, dots as underscores), then file, then default.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let values = args.server.resolve(&Env::real())?;
    Settings::build(&values).map_err(Failure::usage)?;
    if args.json {
        let rows: Vec<Json> = values
            .iter()
            .map(|row| {
                json!({
                    "name": row.setting.name,
                    "value": row.value.show(row.setting.kind),
                    "source": row.source.to_string(),
                    "environment": row.setting.variable(),
                    "about": row.setting.about,
                })
            })
            .collect();
        println!("{:#}", Json::Array(rows));
        return Ok(());
    }
    let name_width = values.iter().map(|row| row.setting.name.len()).max().unwrap_or(0);
    let value_width = values.iter().map(|row| row.value.show(row.setting.kind).len()).max().unwrap_or(0);
    for row in &values {
        let value = row.value.show(row.setting.kind);
        println!("{:name_width$}  {value:value_width$}  {}", row.setting.name, row.source);
    }
    Ok(())
}
