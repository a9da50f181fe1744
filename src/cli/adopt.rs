//! `margay cluster adopt`: moves a volume of one server into PostgreSQL, its segments stay.
//!
//! Not here:   how (`adopt`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_env::Env;
use margay_postgres::PostgresOptions;
use serde_json::json;

use crate::adopt::{self, Copied};
use crate::exit::Failure;
use crate::progress::{Far, Line};
use crate::settings::{Settings, StorageLimits};

pub(super) fn run(
    data: &Path,
    limits: &StorageLimits,
    postgres: &PostgresOptions,
    undo: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let env = Env::real();
    super::keep_private();
    let runtime = super::runtime(limits.io_threads_max)?;
    let _inside = runtime.enter();
    if undo {
        adopt::undo(&env, data, limits, postgres)?;
        match as_json {
            true => println!("{:#}", json!({ "undone": true })),
            false => println!("{} is a volume of its own again", data.display()),
        }
        return Ok(());
    }
    let copied = Arc::new(Copied::default());
    let (followed, clock) = (Arc::clone(&copied), Arc::clone(&env.clock));
    let began = clock.monotonic();
    let line = Line::follow(&env, "rows", move || {
        let (rows, all) = (followed.rows.load(Ordering::Relaxed), followed.all.load(Ordering::Relaxed));
        let seconds = clock.monotonic().saturating_sub(began).as_secs_f64();
        (all > 0).then(|| Far::Left(left(rows, all, seconds)))
    });
    let done = adopt::adopt(&env, data, limits, postgres, &copied)?;
    drop(line);
    if as_json {
        println!("{done:#}");
        return Ok(());
    }
    match done["was_there"] == true {
        true => println!("the rows were in PostgreSQL already; the move has ended now"),
        false => println!("{} rows are in PostgreSQL", done["rows"]),
    }
    println!("{}", adopt::advice(data));
    Ok(())
}

/// Refuses a database that is not empty, before anything is done.
pub(super) fn check_empty(settings: &Settings) -> Result<(), Failure> {
    settings.shared.as_ref().map_or(Ok(()), |shared| adopt::check_empty(&shared.postgres, &settings.data))
}

/// Moves a directory that was just made, if the settings name a database.
pub(super) fn after(env: &Env, settings: &Settings) -> Result<(), Failure> {
    let Some(shared) = &settings.shared else { return Ok(()) };
    let data = settings.data.display();
    let done = adopt::adopt(env, &settings.data, &settings.storage, &shared.postgres, &Copied::default());
    let done = done.map_err(|failure| Failure {
        message: format!(
            "{}. {data} is complete, only its rows are not in PostgreSQL yet: once that is mended, margay cluster adopt --data '{data}' \
             --metadata '{}' --set metadata_schema={}",
            failure.message, shared.postgres.config, shared.postgres.schema
        ),
        ..failure
    })?;
    eprintln!("margay: {} rows are in PostgreSQL", done["rows"]);
    Ok(())
}

fn left(rows: u64, all: u64, seconds: f64) -> String {
    let rate = rows as f64 / seconds.max(0.001);
    let more = all.saturating_sub(rows) as f64 / rate.max(1.0);
    format!("{rows} of {all}, {}/s, {} s left", rate as u64, more.ceil() as u64)
}
