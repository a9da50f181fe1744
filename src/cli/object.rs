//! `margay object where` and `recover`: which stores and servers have the bytes of an object, and whether these are right.
//!
//! Not here:   finding them (`places`), checking and mending them (`recover`).

use http::Method;
use margay_env::Env;
use margay_meta::Engine;
use margay_postgres::PostgresEngine;
use serde_json::{Value, json};

use super::reach::{AdminArgs, Reach};
use crate::exit::{Code, Failure};
use crate::places;
use crate::recover;
use crate::settings::Settings;
use crate::settings::parse::show_bytes;

const EXAMPLES: &str = "Examples:
  margay object where photos/2026/cat.jpg --data /srv/margay
  margay object where photos/2026/cat.jpg --endpoint https://s3.example.org
  margay object where photos/2026/cat.jpg --metadata postgres://margay@db/margay --json

With --metadata the rows are read in the database, also while no server runs; else the server at the URL or of the directory
is asked, or the directory is read here. It says what the rows say: `margay object recover` reads the bytes. Exit code 4 when a copy is missing.";
const RECOVER_EXAMPLES: &str = "Examples:
  margay object recover photos/2026/cat.jpg --data /srv/margay
  margay object recover photos/2026/cat.jpg --endpoint https://s3.example.org --json

Each store reads what it has of the object and compares it with the checksums; one whose bytes are damaged or missing fetches them from
another store. The server of the directory does it, or this program while none runs. Exit code 4 when something is not right at the end.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The database of a volume of several servers: postgres://USER@HOST,HOST/DATABASE
    #[arg(long, value_name = "URL", global = true)]
    metadata: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the segments of an object, the stores that have them, and copies that are missing
    Where {
        /// BUCKET/KEY
        #[arg(value_name = "BUCKET/KEY")]
        object: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check each copy of an object, and fetch what is damaged or missing from another one
    #[command(after_help = RECOVER_EXAMPLES)]
    Recover {
        /// BUCKET/KEY
        #[arg(value_name = "BUCKET/KEY")]
        object: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (Command::Where { object, json } | Command::Recover { object, json }) = &args.command;
    let Some((bucket, name)) = object.split_once('/').filter(|(bucket, name)| !bucket.is_empty() && !name.is_empty())
    else {
        return Err(Failure::usage(format!("{object} names no object; write BUCKET/KEY")));
    };
    let (settings, reach) = args.admin.reach_or(args.metadata.as_deref())?;
    if matches!(args.command, Command::Recover { .. }) {
        return recover_one(&settings, &reach, (bucket, name), *json);
    }
    let found = find(&settings, &reach, bucket, name)?;
    if *json {
        println!("{found:#}");
    } else {
        show(&found);
    }
    let missing = found["segments"].as_array().into_iter().flatten().any(|segment| segment["missing_copies"] != 0);
    if missing {
        let message = "copies are missing; running servers make them: margay cluster status".to_owned();
        return Err(Failure { code: Code::Found, message });
    }
    Ok(())
}

fn find(settings: &Settings, reach: &Reach, bucket: &str, name: &str) -> Result<Value, Failure> {
    let of = |engine: &dyn Engine| {
        let found = places::find(engine, bucket, name);
        found.map_err(|error| Failure::failed(format!("{bucket}/{name}: {error}")))
    };
    // Of a server at a URL the settings of this machine say nothing.
    if let Some(shared) = settings.shared.as_ref().filter(|_| !reach.is_there()) {
        let engine = PostgresEngine::open(&shared.postgres);
        let engine = engine.map_err(|error| Failure::failed(format!("{}: {error}", shared.postgres.config)))?;
        return of(&engine);
    }
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    let asked = json!({ "bucket": bucket, "key": name });
    let asked = runtime.block_on(reach.ask(settings, Method::POST, "/where", Some(&asked)))?;
    if let Some(found) = asked {
        return Ok(found);
    }
    let _inside = runtime.enter();
    let storage = super::works::open_at_rest(&Env::real(), settings)?;
    let found = of(&*storage.rows.engine())?;
    storage.close()?;
    Ok(found)
}

/// Lets the running server do it, or does it here.
fn recover_one(settings: &Settings, reach: &Reach, (bucket, name): (&str, &str), json: bool) -> Result<(), Failure> {
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    let asked = json!({ "bucket": bucket, "key": name });
    let done = match runtime.block_on(reach.ask(settings, Method::POST, "/recover", Some(&asked)))? {
        Some(done) => done,
        None => {
            let _inside = runtime.enter();
            let storage = super::works::open_at_rest(&Env::real(), settings)?;
            let done = recover::object(&storage, bucket, name);
            let done = done.map_err(|error| Failure::failed(format!("{bucket}/{name}: {error}")))?;
            storage.close()?;
            done
        }
    };
    if json {
        println!("{done:#}");
    } else {
        show_recovered(&done);
    }
    let number = |name: &str| done[name].as_u64().unwrap_or_default();
    let message = match (done["lost"] == true, number("left_bad"), number("unreached"), number("missing_copies")) {
        (true, ..) => "no store has all of it; restore it from a backup, or remove it",
        (_, 1.., ..) => "copies are damaged or missing still; start the other servers and run it again",
        (.., 1.., _) => "stores were not reached; start their servers and run it again",
        (.., 1..) => "copies are missing; running servers make them: margay cluster status",
        _ => return Ok(()),
    };
    Err(Failure { code: Code::Found, message: message.to_owned() })
}

fn show_recovered(done: &Value) {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let segments = done["segments"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (bytes, bad, left) = (number(&done["bytes"]), number(&done["bad_copies"]), number(&done["left_bad"]));
    println!("{}: {bad} bad copies, {} mended", show_bytes(bytes), bad.saturating_sub(left));
    if segments.is_empty() {
        println!("all of it is in its row: every copy of the metadata has it");
    }
    for segment in segments {
        println!("{:016x}: {}", number(&segment["segment"]), show_bytes(number(&segment["bytes"])));
        for store in segment["stores"].as_array().into_iter().flatten() {
            let text = |name: &str| store[name].as_str().unwrap_or_default();
            let done = match (text("done"), text("now")) {
                ("", _) => String::new(),
                (done, now) => format!(": {done}; now {now}"),
            };
            println!("  store {:<5} {}{done}", number(&store["store"]), text("found"));
        }
    }
}

fn show(found: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let segments = found["segments"].as_array().map(Vec::as_slice).unwrap_or_default();
    println!("{}, copies {}", show_bytes(number(&found["bytes"])), number(&found["copies"]));
    if segments.is_empty() {
        println!("all of it is in its row: every copy of the metadata has it");
        return;
    }
    for segment in segments {
        let id = format!("{:016x}", number(&segment["segment"]));
        let file = segment["file"].as_str().map_or(id, str::to_owned);
        println!("{file}: {}", show_bytes(number(&segment["bytes"])));
        for store in segment["stores"].as_array().into_iter().flatten() {
            let (state, address, host) = (text(&store["state"]), text(&store["address"]), text(&store["host"]));
            println!("  store {:<5} {state:<12} {address} {host}", number(&store["store"]));
        }
        match (segment["lost"] == true, number(&segment["missing_copies"])) {
            (true, _) => println!("  LOST: no store that is part of the volume has it"),
            (false, 0) => {}
            (false, missing) => println!("  {missing} copies are missing"),
        }
    }
}
