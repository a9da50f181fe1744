//! `margay bucket ls`, `du`, `quota` and `inventory`: by the running server, or by this process when none runs.

use http::Method;
use margay_env::Env;
use serde_json::Value;

use super::inventory;
use super::reach::AdminArgs;
use super::tables;
use super::works::open_at_rest;
use crate::buckets::{self, QuotaChange};
use crate::exit::Failure;
use crate::settings::parse::{parse_bytes, show_bytes};

const EXAMPLES: &str = "Examples:
  margay bucket ls
  margay bucket du photos
  margay bucket quota photos --bytes 100GiB --objects 1000000
  margay bucket quota photos --bytes none
  margay bucket ls --endpoint https://s3.example.org

The numbers are kept up to date by every change, so asking costs nothing. A bucket that is over its quota keeps what it
has; adding to it is refused (S3: QuotaExceeded, mounts: EDQUOT).";

/// What a size may look like.
const BYTES_FORMS: &str = "size; write bytes (500000), KiB, MiB, GiB, TiB (100GiB), kB, MB, GB, TB (500MB), or none";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show every bucket, its creation time, its usage and its quota
    Ls(Show),
    /// Show the number of objects and bytes of each bucket, or of one
    Du(Show),
    /// Show or change a bucket's quota
    Quota(QuotaArgs),
    /// List all objects of a bucket
    Inventory(inventory::Inventory),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Only this bucket
    bucket: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct QuotaArgs {
    bucket: String,
    /// Maximum size in bytes, for example 100GiB; `none` removes the limit
    #[arg(long, value_name = "SIZE")]
    bytes: Option<String>,
    /// Maximum number of objects; `none` removes the limit
    #[arg(long, value_name = "COUNT")]
    objects: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Ls(show) => print(&select(ask(&args.admin, None)?, show)?, show.json, (&HEADS, &cells)),
        Command::Du(show) => print(&select(ask(&args.admin, None)?, show)?, show.json, (&DU_HEADS, &du_cells)),
        Command::Quota(quota) => {
            let change = quota.change()?;
            let row = ask(&args.admin, Some((&quota.bucket, change)))?;
            if quota.json {
                println!("{row:#}");
            } else {
                print!("{}", tables::table(&HEADS, &[cells(&row)]));
            }
        }
        Command::Inventory(inventory) => inventory::run(&args.admin, inventory)?,
    }
    Ok(())
}

impl QuotaArgs {
    fn change(&self) -> Result<QuotaChange, Failure> {
        let read =
            |text: &Option<String>, parse: fn(&str) -> Option<u64>, (flag, what): (&str, &str)| match text.as_deref() {
                None => Ok(None),
                Some("none") => Ok(Some(None)),
                Some(text) => parse(text)
                    .map(|most| Some(Some(most)))
                    .ok_or_else(|| Failure::usage(format!("{flag} {text}: {text:?} is no {what}"))),
            };
        let count = |text: &str| text.parse::<u64>().ok();
        Ok(QuotaChange {
            objects: read(
                &self.objects,
                count,
                ("--objects", "count of objects; write a number such as 1000000, or none"),
            )?,
            bytes: read(&self.bytes, parse_bytes, ("--bytes", BYTES_FORMS))?,
        })
    }
}

fn select(mut rows: Value, show: &Show) -> Result<Vec<Value>, Failure> {
    let rows = rows["buckets"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let Some(wanted) = &show.bucket else { return Ok(rows) };
    let rows: Vec<Value> = rows.into_iter().filter(|row| row["bucket"] == wanted.as_str()).collect();
    if rows.is_empty() {
        return Err(Failure::failed(format!("there is no bucket {wanted}; `margay bucket ls` shows all of them")));
    }
    Ok(rows)
}

/// The headings of a table, and the cells of a row.
type Shown<'a> = (&'a [&'a str], &'a dyn Fn(&Value) -> Vec<String>);

fn print(rows: &[Value], json: bool, (heads, cells): Shown<'_>) {
    if json {
        println!("{:#}", serde_json::json!({ "buckets": rows }));
    } else {
        let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        print!("{}", tables::table(heads, &rows));
    }
}

const DU_HEADS: [&str; 3] = [">BYTES", ">OBJECTS", "BUCKET"];

fn du_cells(row: &Value) -> Vec<String> {
    let number = |name: &str| row[name].as_u64().unwrap_or_default().to_string();
    vec![number("bytes"), number("objects"), row["bucket"].as_str().unwrap_or_default().to_owned()]
}

const HEADS: [&str; 6] = ["CREATED", ">BYTES", ">QUOTA", ">OBJECTS", ">QUOTA", "BUCKET"];

fn cells(row: &Value) -> Vec<String> {
    let most = |name: &str, show: fn(u64) -> String| row[name].as_u64().map_or_else(|| "-".to_owned(), show);
    let number = |name: &str| row[name].as_u64().unwrap_or_default().to_string();
    vec![
        row["created"].as_i64().map_or_else(|| "-".to_owned(), tables::date),
        number("bytes"),
        most("bytes_max", show_bytes),
        number("objects"),
        most("objects_max", |most| most.to_string()),
        row["bucket"].as_str().unwrap_or_default().to_owned(),
    ]
}

/// Asks the running server, or opens the directory: lists all buckets, or changes one's quota.
fn ask(args: &AdminArgs, change: Option<(&str, QuotaChange)>) -> Result<Value, Failure> {
    let env = Env::real();
    let (settings, reach) = args.reach()?;
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    runtime.block_on(async {
        let asked = match change {
            None => reach.ask(&settings, Method::GET, "/buckets", None).await?,
            Some((bucket, change)) => {
                let body = change.to_json(bucket);
                reach.ask(&settings, Method::POST, "/quota", Some(&body)).await?
            }
        };
        if let Some(answer) = asked {
            return Ok(answer);
        }
        let storage = open_at_rest(&env, &settings)?;
        let done = match change {
            None => buckets::list(&storage.volume).await,
            Some((bucket, change)) => buckets::change_quota(&storage.volume, bucket, change).await,
        };
        let done = done.map_err(|error| Failure::failed(error.to_string()))?;
        storage.close()?;
        Ok(done)
    })
}
