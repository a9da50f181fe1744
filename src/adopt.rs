//! Moves a volume of one server into PostgreSQL: its rows are copied, its segments stay where they are.
//!
//! Why:        who outgrows one machine keeps terabytes of segments; only the rows have to move, and these are small.
//! Invariants: A1 no server has the directory open, and none can open it from before the commit of the rows until it is known
//!                whether they are there (`datadir::moving`). So what is there is what is here.
//!             A2 the rows of segments and of the store move too: the segment folder is the first store, with its number and
//!                identity, so every run is found where it was. A log with payload is one of its segments.
//!             A3 sessions and leases stay behind: they are of processes that have ended.
//! Durability: a kill before the commit leaves the volume as it was; after it the same command ends what was begun.
//! Not here:   the transaction (margay-postgres), the command (`cli::adopt`).

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_accounts::key_files;
use margay_env::Env;
use margay_meta::{Engine, EngineError};
use margay_postgres::{FillError, Filling, PostgresEngine, PostgresOptions};
use margay_segment::{Segments, Store};
use margay_volume::{KeyFile, is_of_process, store_identity};
use serde_json::{Value, json};

use crate::datadir::DataDir;
use crate::datadir::moving::{LEFT_TREE, Moving, begin_to_move};
use crate::exit::Failure;
use crate::restore::missing_keys;
use crate::settings::StorageLimits;
use crate::wiring::{Storage, segment_options};

/// Rows counted and copied so far, for progress.
#[derive(Debug, Default)]
pub struct Copied {
    pub rows: AtomicU64,
    /// 0 while they are counted.
    pub all: AtomicU64,
}

/// Where rows go, in words that a second call can compare.
fn place_of(postgres: &PostgresOptions) -> String {
    format!("{} schema {}", postgres.config, postgres.schema)
}

fn open(postgres: &PostgresOptions) -> Result<PostgresEngine, Failure> {
    PostgresEngine::open(postgres).map_err(|error| Failure::failed(format!("{}: {error}", postgres.config)))
}

/// Moves the volume of a directory, or ends what an earlier call has begun; blocks. Must be called inside a tokio runtime.
pub fn adopt(
    env: &Env,
    data: &Path,
    limits: &StorageLimits,
    postgres: &PostgresOptions,
    copied: &Copied,
) -> Result<Value, Failure> {
    let (dir, moving) = DataDir::open_to_move(env, data)?;
    let engine = open(postgres)?;
    let was_there = match moving {
        Moving::NotBegun => false,
        Moving::Begun(place) => {
            check_place(data, &place, postgres)?;
            match is_there(&dir, limits, &engine)? {
                true => true,
                false => {
                    dir.stay().map_err(|error| fail(data, &error))?;
                    false
                }
            }
        }
    };
    let dir = if was_there { dir } else { copy_rows(env, dir, limits, &engine, postgres, copied)? };
    let left = dir.moved().map_err(|error| fail(data, &error))?;
    let rows = copied.rows.load(Ordering::Relaxed);
    Ok(json!({ "rows": rows, "was_there": was_there, "left": left.display().to_string() }))
}

/// Makes the directory one of a volume of its own again, if its rows have not arrived; blocks.
pub fn undo(env: &Env, data: &Path, limits: &StorageLimits, postgres: &PostgresOptions) -> Result<(), Failure> {
    let (dir, moving) = DataDir::open_to_move(env, data)?;
    let Moving::Begun(place) = moving else {
        return Err(Failure::refused(format!("{} is a volume of its own: there is nothing to undo", data.display())));
    };
    check_place(data, &place, postgres)?;
    if is_there(&dir, limits, &open(postgres)?)? {
        return Err(Failure::refused(format!(
            "the rows of {} are in PostgreSQL: end the move with margay cluster adopt, without --undo",
            data.display()
        )));
    }
    dir.stay().map_err(|error| fail(data, &error))
}

/// Whether a volume can move there.
pub fn check_empty(postgres: &PostgresOptions, data: &Path) -> Result<(), Failure> {
    match open(postgres)?.fill() {
        Ok(_) => Ok(()),
        Err(FillError::NotEmpty) => Err(of_another(data)),
        Err(error) => Err(fail(data, &error)),
    }
}

fn fail(data: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("{}: {error}", data.display()))
}

/// Another database would be empty, and the rows would be in two.
fn check_place(data: &Path, place: &str, postgres: &PostgresOptions) -> Result<(), Failure> {
    if place == place_of(postgres) {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "the rows of {} were on their way to {place}: name that database again",
        data.display()
    )))
}

/// Whether the rows have arrived. Waits for the transaction of a call that was killed.
fn is_there(dir: &DataDir, limits: &StorageLimits, engine: &PostgresEngine) -> Result<bool, Failure> {
    match engine.fill() {
        Ok(_) => return Ok(false),
        Err(FillError::NotEmpty) => {}
        Err(error) => return Err(fail(&dir.path, &error)),
    }
    let store = Store::open(dir.env.clone(), segment_options(dir, limits)).map_err(|error| fail(&dir.path, &error))?;
    let name = Segments::name(&*store);
    let there = store_identity(engine, name.number).map_err(|error| fail(&dir.path, &error))?;
    if there == Some(name.identity) { Ok(true) } else { Err(of_another(&dir.path)) }
}

fn of_another(data: &Path) -> Failure {
    Failure::refused(format!(
        "the database has a volume already, which is not that of {}: name another database, or another schema with \
         --set metadata_schema=NAME",
        data.display()
    ))
}

fn copy_rows(
    env: &Env,
    dir: DataDir,
    limits: &StorageLimits,
    engine: &PostgresEngine,
    postgres: &PostgresOptions,
    copied: &Copied,
) -> Result<DataDir, Failure> {
    let data = dir.path.clone();
    let broke_off = |error: FillError| match error {
        FillError::NotEmpty => of_another(&data),
        FillError::Unknown(why) => fail(&data, &format!("{why}; the same command finds out what became of it")),
        error => fail(&data, &format!("{error}; nothing has changed")),
    };
    // Refuses a database that is not empty before anything is opened here.
    drop(engine.fill().map_err(broke_off)?);
    {
        // Replays the log, and brings rows of an older format to the newest.
        let storage = Storage::open_at_rest(dir, limits)?;
        let mut missing = missing_keys(&storage)?;
        // The root keys may come from the environment of each server.
        missing.retain(|name| *name != key_files::name(KeyFile::Root));
        if !missing.is_empty() {
            let missing = missing.join(", ");
            return Err(Failure::refused(format!("{} lacks {missing}: put that there first", data.display())));
        }
        // Segments of a dump of several servers are found by their rows alone.
        storage.volume.record_all_segments().map_err(|error| fail(&data, &error))?;
        // Then the tree that stays behind has all rows.
        storage.close()?;
        let own = storage.rows.engine();
        let all = visit(&*own, &mut |_, _| Ok(())).map_err(broke_off)?;
        copied.all.store(all, Ordering::Relaxed);
        let mut filling = engine.fill().map_err(broke_off)?;
        let put = fill(&*own, &mut filling, copied).map_err(broke_off)?;
        assert!(put == all && put == filling.put_so_far(), "nobody changes the rows meanwhile");
        let place = place_of(postgres);
        let begin = || begin_to_move(env, &data, &place).map_err(EngineError::Io);
        filling.commit(begin).map_err(broke_off)?;
    }
    let (dir, moving) = DataDir::open_to_move(env, &data)?;
    assert!(moving != Moving::NotBegun, "the format was written before the rows were committed");
    Ok(dir)
}

fn fill(own: &dyn Engine, filling: &mut Filling, copied: &Copied) -> Result<u64, FillError> {
    visit(own, &mut |key, value| {
        copied.rows.fetch_add(1, Ordering::Relaxed);
        filling.put(key, value)
    })
}

/// Receives key and value.
type Visitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), FillError> + 'a;

/// Every row that moves; returns how many these are.
fn visit(engine: &dyn Engine, row: &mut Visitor<'_>) -> Result<u64, FillError> {
    let (mut rows, mut failed) = (0, None);
    engine.scan(&[], &[0xff], &mut |found| {
        if is_of_process(found.key) {
            return ControlFlow::Continue(());
        }
        rows += 1;
        match row(found.key, found.value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(rows), Err)
}

/// What is said when all is done.
pub fn advice(data: &Path) -> String {
    let data = data.display();
    format!(
        "start it with: margay serve --metadata postgres://... --data {data}\n\
         {data}/{LEFT_TREE} has the rows as they were, and nothing reads it any more: remove it when the server has run"
    )
}
