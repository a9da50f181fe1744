//! `margay status`, `mounts`, `sync` and `unmount` of far mounts: they ask the process that has the cache.
//!
//! Invariants: F1 a cache is opened here only if no process has it.
//! Not here:   what is told (far_mount), mounting and sending without a mount (far).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use margay_env::{Env, OpenMode};
use margay_fuse::mount_point::{self, MOUNT_KIND, MountLine};
use serde_json::{Value, json};

use super::{Sync, Unmount, absolute, cache_limits};
use crate::control;
use crate::datadir::cache::{cache_source, is_in_use};
use crate::exit::Failure;
use crate::far_mount::registry::{self, KnownCache};
use crate::far_mount::{at_rest, text};
use crate::progress::{Far, Line};
use crate::settings::Settings;

/// The end of a process that has told how it ended is waited for so long.
const EXIT_TIME_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// With `--now`, programs that use the mount and its last writes get this long.
const NOW_SECONDS_MAX: u64 = 2;
/// Blocking threads of a command that reads a cache.
const THREADS: usize = 4;

/// A cache that nobody has open, and of which bucket it is, as far as that is known.
pub(super) struct Cache {
    pub(super) path: Option<PathBuf>,
    pub(super) source: Option<String>,
    pub(super) endpoint: Option<String>,
}

impl Cache {
    fn at(env: &Env, path: PathBuf) -> Cache {
        let source = cache_source(env, &path).unwrap_or_default();
        let mut words = source.split_whitespace().map(str::to_owned);
        Cache { source: words.next(), endpoint: words.next(), path: Some(path) }
    }
}

fn is_bucket(place: &str) -> bool {
    place.starts_with("s3://")
}

/// The cache that a place is mounted with, of a bucket that at `endpoint` if that is given; `None`: no entry names it.
pub(super) fn find(
    env: &Env,
    place: Option<&str>,
    endpoint: Option<&str>,
    cache: Option<&Path>,
) -> Result<Option<PathBuf>, Failure> {
    if let Some(cache) = cache {
        return absolute(cache).map(Some);
    }
    let (entries, place) = (registry::entries(env), place.unwrap_or_default());
    if !is_bucket(place) {
        let entries = registry::of_path(&entries, &absolute(Path::new(place))?);
        return Ok(newest(entries).map(|entry| entry.cache));
    }
    let same = |one: &str, other: &str| one.trim_end_matches('/') == other.trim_end_matches('/');
    let wanted =
        |one: &KnownCache| same(&one.source, place) && endpoint.is_none_or(|endpoint| same(&one.endpoint, endpoint));
    let mut found: Vec<KnownCache> = entries.into_iter().filter(wanted).collect();
    if found.len() > 1 {
        let caches: Vec<String> = found.iter().map(|one| one.cache.display().to_string()).collect();
        let caches = caches.join(" or ");
        return Err(Failure::usage(format!("{place} has several caches: name one with --cache {caches}")));
    }
    Ok(found.pop().map(|one| one.cache))
}

pub(super) fn not_far(place: &str) -> Failure {
    let hint = if is_bucket(place) { "name its cache with --cache DIR" } else { "name a path in one" };
    Failure::usage(format!("{place} is no far mount of this user: `margay mounts` shows them; {hint}"))
}

pub(super) fn ask(cache: &Path, path: &str) -> Result<Option<Value>, Failure> {
    crate::cli::runtime(1)?.block_on(control::ask(cache, Method::GET, path))
}

/// The state of a mount or of what it left, all conflicts included.
pub(in crate::cli) fn status(place: Option<&str>, cache: Option<&Path>, settings: &Settings) -> Result<Value, Failure> {
    let env = Env::real();
    let cache = find(&env, place, None, cache)?.ok_or_else(|| not_far(place.unwrap_or_default()))?;
    match ask(&cache, "/status?names")? {
        Some(status) => Ok(status),
        None => rest(&env, &cache, settings),
    }
}

/// The state of a cache that nobody has open.
fn rest(env: &Env, cache: &Path, settings: &Settings) -> Result<Value, Failure> {
    let mut limits = settings.storage;
    cache_limits::fit(&mut limits, u64::MAX, cache_limits::disk_bytes(env, cache));
    if !matches!(cache_source(env, cache), Ok(source) if !source.is_empty()) {
        return Err(Failure::usage(format!("{} is no cache of a far mount", cache.display())));
    }
    let runtime = crate::cli::runtime(THREADS)?;
    let _inside = runtime.enter();
    let backlog = at_rest::backlog(env, cache, &limits)?;
    let mut status = at_rest::status(env, cache, &backlog);
    let known = registry::entries(env).into_iter().find(|entry| entry.cache == cache);
    let dead = known.and_then(|entry| entry.path.filter(|path| is_mounted(env, path, &entry.source)));
    match dead {
        Some(path) => status["dead"] = json!(path.display().to_string()),
        None if backlog.files == 0 => registry::remove(env, cache),
        None => {}
    }
    Ok(status)
}

fn is_mounted(env: &Env, path: &Path, source: &str) -> bool {
    let lines = mount_point::mounts(env).unwrap_or_default();
    lines.iter().any(|line| line.path == path && line.kind == MOUNT_KIND && line.source == source)
}

/// A row for each far mount that this user has, for each cache with something that waits, and for far mounts of others.
pub(super) fn rows(settings: &Settings) -> Result<Vec<Value>, Failure> {
    let env = Env::real();
    let mut rows = Vec::new();
    for entry in registry::entries(&env) {
        let told = match ask(&entry.cache, "/status") {
            Ok(Some(status)) => Ok(status),
            Ok(None) => rest(&env, &entry.cache, settings),
            Err(failure) => Err(failure),
        };
        match told {
            Ok(status) if status["running"] == false && status["waiting"]["files"] == 0 && status["dead"].is_null() => {
            }
            Ok(status) => rows.push(status),
            Err(failure) => rows.push(json!({
                "far": true,
                "source": entry.source,
                "endpoint": entry.endpoint,
                "cache": entry.cache.display().to_string(),
                "path": entry.path.map(|path| path.display().to_string()),
                "unknown": failure.message,
            })),
        }
    }
    let is_other = |line: &MountLine| {
        let path = line.path.to_str();
        let is_here = rows.iter().any(|row| row["path"].as_str() == path || row["dead"].as_str() == path);
        line.kind == MOUNT_KIND && is_bucket(&line.source) && !is_here
    };
    let lines = mount_point::mounts(&env).unwrap_or_default();
    let others = lines.iter().filter(|line| is_other(line)).map(|line| {
        let (path, why) = (line.path.display().to_string(), "another user has it, or its process is gone");
        json!({ "far": true, "source": line.source, "path": path, "mounted": true, "unknown": why })
    });
    let others: Vec<Value> = others.collect();
    rows.extend(others);
    Ok(rows)
}

/// What a process that has the cache made of a wish to send.
pub(super) enum Synced {
    /// It tells how it went.
    Done(Value),
    /// There is none.
    Left(Cache),
}

/// Lets the process of a mount send a file or everything.
pub(super) fn sync(args: &Sync) -> Result<Synced, Failure> {
    let env = Env::real();
    let place = args.place.as_deref();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let endpoint = args.store.endpoint.clone();
    let endpoint = endpoint.or_else(|| variable("AWS_ENDPOINT_URL_S3")).or_else(|| variable("AWS_ENDPOINT_URL"));
    let Some(cache) = find(&env, place, endpoint.as_deref(), args.cache.as_deref())? else {
        return match place.filter(|place| is_bucket(place)) {
            // The cache may be the default one of the bucket.
            Some(_) => Ok(Synced::Left(Cache { path: None, source: None, endpoint: None })),
            None => Err(not_far(place.unwrap_or_default())),
        };
    };
    let own = Cache::at(&env, cache.clone());
    let other = |place: &str| own.source.as_deref().is_some_and(|source| source != place.trim_end_matches('/'));
    if place.is_some_and(|place| is_bucket(place) && other(place)) {
        // Opening it says whose it is.
        return Ok(Synced::Left(own));
    }
    let wish = match place.filter(|place| !is_bucket(place)) {
        Some(path) => wish_of(&env, Path::new(path))?,
        None => json!({}),
    };
    let done = follow(&env, "sync", &cache, "/sync", &wish)?;
    Ok(done.map_or(Synced::Left(own), Synced::Done))
}

/// Prints how it went, also if it failed; `None`: it has not begun.
pub(super) fn tell(is_json: bool, what: &str, done: Result<Option<Value>, Failure>) -> Result<Option<Value>, Failure> {
    let told = match &done {
        Ok(told) => told.clone(),
        Err(failure) => Some(json!({ what: false, "error": failure.message })),
    };
    if let Some(told) = told.filter(|_| is_json) {
        println!("{told:#}");
    }
    done
}

/// The number of a directory, or of a file whose writes are published.
fn wish_of(env: &Env, path: &Path) -> Result<Value, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let found = std::fs::metadata(path).map_err(failed)?;
    if found.is_dir() {
        return Ok(json!({ "directory": found.ino() }));
    }
    if !found.is_file() {
        return Ok(json!({}));
    }
    // Closing it publishes what others have written to it.
    drop(env.disk.open(path, OpenMode::Read).map_err(failed)?);
    Ok(json!({ "file": found.ino() }))
}

/// Asks for something that takes long, with a line that shows what is left.
fn follow(env: &Env, label: &'static str, cache: &Path, path: &str, wish: &Value) -> Result<Option<Value>, Failure> {
    let runtime = crate::cli::runtime(1)?;
    let (here, own) = (runtime.handle().clone(), cache.to_owned());
    let waiting = wish["directory"].as_u64().map_or("/waiting".to_owned(), |number| format!("/waiting?{number}"));
    let status = move || here.block_on(control::ask(&own, Method::GET, &waiting)).ok().flatten();
    let _line = Line::follow(env, label, move || status().map(|status| Far::Left(text::waiting(&status))));
    runtime.block_on(control::ask_with(cache, Method::POST, path, Some(wish)))
}

/// Of the caches that were last mounted at one place: the one that is mounted there now, else one whose process still sends,
/// else any. The others were left by processes that were killed.
fn newest(entries: Vec<KnownCache>) -> Option<KnownCache> {
    let rank = |entry: &KnownCache| match ask(&entry.cache, "/status") {
        Ok(Some(status)) if status["mounted"] == true => 2,
        Ok(Some(_)) => 1,
        _ => 0,
    };
    if entries.len() < 2 { entries.into_iter().next() } else { entries.into_iter().max_by_key(rank) }
}

/// Unmounts a far mount and waits until its process has ended. False: the path is none.
pub(super) fn unmount(args: &Unmount, path: &Path) -> Result<bool, Failure> {
    let env = Env::real();
    let lines = mount_point::mounts(&env).unwrap_or_default();
    let mounted = lines.iter().rev().find(|line| line.path == path && line.kind == MOUNT_KIND);
    // An entry may be of a mount that is long gone, with another one in its place.
    let fits = |entry: &KnownCache| mounted.is_none_or(|line| line.source == entry.source);
    let entries =
        registry::entries(&env).into_iter().filter(|entry| entry.path.as_deref() == Some(path) && fits(entry));
    let Some(KnownCache { cache, source, .. }) = newest(entries.collect()) else {
        return match args.now {
            true => tell(args.json, "sent", Err(not_far(&path.display().to_string()))).map(|_| false),
            false => Ok(false),
        };
    };
    let wish = json!({ "seconds": if args.now { args.wait.min(NOW_SECONDS_MAX) } else { args.wait }, "now": args.now });
    let Some(ended) = tell(args.json, "sent", follow(&env, "unmount", &cache, "/unmount", &wish))? else {
        let freed = unmount_dead(args, &env, path, mounted.is_some(), &cache);
        return tell(args.json, "sent", freed.map(|()| Some(json!({ "sent": true })))).map(|_| true);
    };
    let begun = env.clock.monotonic();
    while ended["goes_on"] != true
        && is_in_use(&env, &cache)
        && env.clock.monotonic().saturating_sub(begun) < EXIT_TIME_MAX
    {
        env.clock.sleep(LOOK_EVERY);
    }
    if ended["error"].is_null() {
        return match ended["users"].as_str() {
            None => Ok(true),
            Some(users) => Err(detached(path, users)),
        };
    }
    let number = |name: &str| ended[name].as_u64().unwrap_or_default();
    let left = at_rest::left(&cache, number("files"), number("bytes"));
    if args.now {
        eprintln!("margay: {source} was unmounted: {left}");
        return Ok(true);
    }
    Err(Failure::failed(format!("{source} was unmounted: {left} ({})", ended["error"].as_str().unwrap_or_default())))
}

/// Programs used the mount longer than it was waited for them.
pub(super) fn detached(path: &Path, users: &str) -> Failure {
    Failure::failed(format!("{} was still in use and was detached; it was used by: {users}", path.display()))
}

/// The process of the mount is gone.
fn unmount_dead(args: &Unmount, env: &Env, path: &Path, is_mounted: bool, cache: &Path) -> Result<(), Failure> {
    if is_mounted {
        let failed = |error| Failure::failed(format!("{} cannot be unmounted: {error}", path.display()));
        mount_point::unmount(path, true).map_err(failed)?;
    }
    let left = rest(env, cache, &args.data.settings(env)?)?;
    let number = |name: &str| left["waiting"][name].as_u64().unwrap_or_default();
    match number("files") {
        0 => Ok(()),
        files => Err(Failure::failed(format!("its process is gone: {}", at_rest::left(cache, files, number("bytes"))))),
    }
}
