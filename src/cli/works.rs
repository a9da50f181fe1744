//! `margay du`, `scrub` and `compact`: by the running server, or by this process when none runs.

use std::sync::Arc;

use http::Method;
use margay_env::Env;
use serde_json::Value;

use super::reach::AdminArgs;
use crate::checks::Checks;
use crate::control;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure};
use crate::progress::{Far, Line};
use crate::settings::Settings;
use crate::settings::parse::show_bytes;
use crate::wiring::Storage;
use crate::works::Work;

const DU_EXAMPLES: &str = "Examples:
  margay du
  margay du photos --data /srv/margay
  margay du --endpoint https://s3.example.org --json

The numbers are kept up to date by every change, so asking costs nothing.";

const SCRUB_EXAMPLES: &str = "Examples:
  margay scrub
  margay scrub --data /srv/margay --json
  margay scrub --endpoint https://s3.example.org

A running server is asked to do it, at limits.scrub_rate_max; otherwise it runs here. Exit code 4 when data is damaged.";

const COMPACT_EXAMPLES: &str = "Examples:
  margay compact
  margay compact --data /srv/margay
  margay compact --endpoint https://s3.example.org

A running server gives space back by itself; this does all of it now.";

#[derive(Debug, clap::Args)]
#[command(after_help = DU_EXAMPLES)]
pub(super) struct Du {
    #[command(flatten)]
    admin: AdminArgs,
    /// Only this bucket
    bucket: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = SCRUB_EXAMPLES)]
pub(super) struct Scrub {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = COMPACT_EXAMPLES)]
pub(super) struct Compact {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run_du(args: &Du) -> Result<(), Failure> {
    let mut done = run(&args.admin, Work::Du)?;
    if let (Some(wanted), Some(rows)) = (&args.bucket, done["buckets"].as_array_mut()) {
        rows.retain(|row| row["bucket"] == wanted.as_str());
        if rows.is_empty() {
            return Err(Failure::failed(format!("there is no bucket {wanted}; `margay du` shows all of them")));
        }
    }
    if args.json {
        println!("{done:#}");
        return Ok(());
    }
    for row in done["buckets"].as_array().into_iter().flatten() {
        let number = |name: &str| row[name].as_u64().unwrap_or_default();
        println!("{:>14} {:>12}  {}", number("bytes"), number("objects"), row["bucket"].as_str().unwrap_or_default());
    }
    Ok(())
}

pub(super) fn run_scrub(args: &Scrub) -> Result<(), Failure> {
    let done = run(&args.admin, Work::Scrub)?;
    let number = |name: &str| done[name].as_u64().unwrap_or_default();
    if args.json {
        println!("{done:#}");
    } else {
        for damaged in done["shown"].as_array().into_iter().flatten() {
            let text = |name: &str| damaged[name].as_str().unwrap_or_default();
            println!("damaged: {}: {}", text("what"), text("error"));
        }
        println!("{} verified in {} rows, {} damaged", show_bytes(number("bytes")), number("rows"), number("damaged"));
    }
    if number("damaged") > 0 {
        let message = "data is damaged; restore these objects from another copy, then remove or overwrite them";
        return Err(Failure { code: Code::Found, message: message.to_owned() });
    }
    if done["complete"] == false {
        return Err(Failure::failed("the server stopped before everything was read; run it again"));
    }
    Ok(())
}

pub(super) fn run_compact(args: &Compact) -> Result<(), Failure> {
    let done = run(&args.admin, Work::Compact)?;
    if args.json {
        println!("{done:#}");
    } else {
        super::status::show("", &done);
    }
    Ok(())
}

/// Lets the running server do it, or does it here.
fn run(args: &AdminArgs, work: Work) -> Result<Value, Failure> {
    let env = Env::real();
    let (settings, reach) = args.reach()?;
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    runtime.block_on(async {
        {
            // The work has the connection of `reach` to a server at a URL until it ends, so the line follows only one that is here.
            let (here, data) = (tokio::runtime::Handle::current(), settings.data.clone());
            let is_there = reach.is_there();
            let ask = move || match is_there {
                true => None,
                false => here.block_on(control::ask(&data, Method::GET, "/status")).ok().flatten(),
            };
            let far = move || ask().and_then(|status| Far::from_json(&status["storage"][work.name()]));
            let _line = Line::follow(&env, work.name(), far);
            if let Some(done) = reach.ask(&settings, Method::POST, &format!("/{}", work.name()), None).await? {
                return Ok(done);
            }
        }
        let storage = open_at_rest(&env, &settings)?;
        let followed = Arc::clone(&storage);
        let _line = Line::follow(&env, work.name(), move || work.far(&followed));
        let done = work.run(Arc::clone(&storage), None).await.map_err(Failure::failed)?;
        if work == Work::Scrub {
            Checks::open(&storage.env, &settings.data).scrubbed(&done);
        }
        storage.close()?;
        Ok(done)
    })
}

/// The storage of a directory that no server uses: with its rows in PostgreSQL, if the settings say so. Must be called inside a tokio runtime.
pub(super) fn open_at_rest(env: &Env, settings: &Settings) -> Result<Arc<Storage>, Failure> {
    super::keep_private();
    if let Some(shared) = &settings.shared {
        let dir = DataDir::open_shared(env, &settings.data)?;
        return Ok(Arc::new(Storage::open_shared_at_rest(dir, &settings.storage, (&shared.postgres, shared.tls))?));
    }
    let dir = DataDir::open(env, &settings.data)?;
    Ok(Arc::new(Storage::open_at_rest(dir, &settings.storage)?))
}
