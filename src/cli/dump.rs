//! `margay dump` and `margay load`.

use std::io::{BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_body_util::BodyExt;
use margay_env::{Env, Front, OpenMode, Written};
use serde_json::{Value, json};

use super::adopt;
use super::arguments::DataArgs;
use crate::control;
use crate::dump::{self, Counted, DumpWish};
use crate::exit::{Code, Failure};
use crate::load;
use crate::progress::{Line, Progress};
use crate::restore;
use crate::settings::Settings;
use crate::settings::parse::show_bytes;

/// Bytes per read or write.
const BUFFER_BYTES: usize = 256 << 10;
/// Suffix of a file that is not complete yet.
const UNFINISHED: &str = ".unfinished";

const DUMP_EXAMPLES: &str = "Examples:
  margay dump --out /mnt/margay.dump
  margay dump | zstd | ssh other 'zstd -d | margay load --data /srv/margay'
  margay dump --rows | sha256sum

One stream: all rows of one moment, then the data that they name, each piece with its checksum, without dead bytes. A
running server writes it while clients go on; it gives nothing back to the disk until the stream has ended, and breaks it off when
its reader takes nothing for limits.stall_time_max. --rows writes the rows alone: equal rows give equal streams. Without
--with-keys the key files stay behind: without encryption-keys nobody can read objects that are encrypted at rest.";

const LOAD_EXAMPLES: &str = "Examples:
  margay load /mnt/margay.dump --data /srv/margay-new
  zstd -d < margay.dump.zst | margay load --data /srv/margay-new
  margay load /mnt/margay.dump --data /srv/margay-new --metadata postgres://margay@db/margay

Makes a new data directory of a dump; an existing one is never touched. A stream that is damaged or cut short is refused. Then
all that was loaded is read again and verified: exit code 4 when it does not fit together. With --metadata its rows are moved into that
database then, as by margay cluster adopt, which also moves them later.";

#[derive(Debug, clap::Args)]
#[command(after_help = DUMP_EXAMPLES)]
pub(super) struct Dump {
    #[command(flatten)]
    data: DataArgs,
    /// The database of a volume of several servers, if no server runs on the directory: postgres://USER@HOST,HOST/DATABASE
    #[arg(long, value_name = "URL")]
    metadata: Option<String>,
    /// A new file for the dump [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Only the rows, without data
    #[arg(long, conflicts_with = "with_keys")]
    rows: bool,
    /// Include the key files: keep the dump as secret as they are
    #[arg(long)]
    with_keys: bool,
    /// Print JSON, on standard error when the dump goes to standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = LOAD_EXAMPLES)]
pub(super) struct Load {
    /// The dump; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    from: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// An empty database for the rows, which several servers can share then: postgres://USER@HOST,HOST/DATABASE
    #[arg(long, value_name = "URL")]
    metadata: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run_dump(args: &Dump) -> Result<(), Failure> {
    let env = Env::real();
    super::keep_private();
    let settings = args.data.settings_with_metadata(&env, args.metadata.as_deref())?;
    let wish = DumpWish { only_rows: args.rows, with_keys: args.with_keys };
    let bytes = match &args.out {
        Some(out) => dump_to_file(&env, &settings, wish, out)?,
        None if std::io::stdout().is_terminal() => {
            return Err(Failure::usage("a dump is not for a terminal; name a file with --out, or redirect it"));
        }
        None => {
            let to = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout().lock());
            dump_to(&env, &settings, wish, to)?.1
        }
    };
    let told = match (&args.out, args.json) {
        (_, true) => format!("{:#}", json!({ "bytes": bytes, "only_rows": args.rows, "keys": args.with_keys })),
        (_, false) => format!("{} written", show_bytes(bytes)),
    };
    if args.out.is_some() {
        println!("{told}")
    } else {
        eprintln!("{told}")
    }
    Ok(())
}

/// Writes under a temporary name; the file gets its name when it is complete and durable.
fn dump_to_file(env: &Env, settings: &Settings, wish: DumpWish, out: &Path) -> Result<u64, Failure> {
    let fail = |error: std::io::Error| {
        let remedy = margay_env::files::remedy(&error);
        Failure::failed(format!("{} cannot be written: {error}; {remedy}", out.display()))
    };
    if env.disk.exists(out).map_err(fail)? {
        return Err(Failure::refused(format!("{} exists; name a new file with --out", out.display())));
    }
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(UNFINISHED);
    let unfinished = out.with_file_name(name);
    let file = env.disk.open(&unfinished, OpenMode::OpenOrCreate).map_err(fail)?;
    file.set_len(0).map_err(fail)?;
    let to = BufWriter::with_capacity(BUFFER_BYTES, Written::begin(file));
    let (to, bytes) = match dump_to(env, settings, wish, to) {
        Ok(done) => done,
        Err(failure) => {
            // Half a dump is useless; if it cannot be removed, load refuses it.
            let _ = env.disk.remove(&unfinished);
            return Err(failure);
        }
    };
    to.get_ref().sync().map_err(fail)?;
    env.disk.rename(&unfinished, out).map_err(fail)?;
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    env.disk.sync_dir(folder).map_err(fail)?;
    Ok(bytes)
}

/// Lets the running server write the dump, or writes it here; returns its size in bytes.
fn dump_to<W: Write>(env: &Env, settings: &Settings, wish: DumpWish, to: W) -> Result<(W, u64), Failure> {
    let progress = Arc::new(Progress::default());
    let followed = Arc::clone(&progress);
    let _line = Line::follow(env, "dump", move || followed.now());
    let mut to = Counted::new(to, &progress);
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    let _inside = runtime.enter();
    let written = |error: std::io::Error| Failure::failed(format!("the dump cannot be written: {error}"));
    let asked = runtime.block_on(control::ask_for_stream(&settings.data, "/dump", &wish.to_json()))?;
    match asked {
        Some(mut body) => {
            while let Some(frame) = runtime.block_on(body.frame()) {
                let frame = frame.map_err(|error| {
                    Failure::failed(format!("the server broke the dump off ({error}); its log says why"))
                })?;
                if let Some(bytes) = frame.data_ref() {
                    to.write_all(bytes).map_err(written)?;
                }
            }
        }
        None => {
            let storage = super::works::open_at_rest(env, settings)?;
            dump::make(&storage, wish, &mut to).map_err(Failure::failed)?;
            storage.close()?;
        }
    }
    to.flush().map_err(written)?;
    let bytes = to.done();
    Ok((to.into_inner(), bytes))
}

pub(super) fn run_load(args: &Load) -> Result<(), Failure> {
    let env = Env::real();
    super::keep_private();
    let settings = args.data.settings_with_metadata(&env, args.metadata.as_deref())?;
    adopt::check_empty(&settings)?;
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    let _inside = runtime.enter();
    let data = &settings.data;
    let (mut stream, from): (Box<dyn Read>, String) = if args.from.as_os_str() == "-" {
        if std::io::stdin().is_terminal() {
            return Err(Failure::usage("name the file of a dump, or send one to standard input"));
        }
        (Box::new(std::io::stdin().lock()), "standard input".to_owned())
    } else {
        let shown = args.from.display().to_string();
        let file = env.disk.open(&args.from, OpenMode::Read);
        let file = file.map_err(|error| {
            Failure::failed(format!("{shown} cannot be read: {error}; {}", margay_env::files::remedy(&error)))
        })?;
        (Box::new(Front::of(file)), shown)
    };
    let mut stream = BufReader::with_capacity(BUFFER_BYTES, &mut stream);
    let done = load::load(&env, &mut stream, &from, data, &settings.storage)?;
    show_loaded(&done, args.json, data)?;
    adopt::after(&env, &settings)
}

fn show_loaded(done: &Value, json: bool, data: &Path) -> Result<(), Failure> {
    let number = |name: &str| done[name].as_u64().unwrap_or_default();
    let findings = done["findings"].as_array().map_or(0, Vec::len);
    if json {
        println!("{done:#}");
    } else {
        done["findings"].as_array().into_iter().flatten().filter_map(Value::as_str).for_each(|what| println!("{what}"));
        println!(
            "{} rows: {} buckets, {} files with {} in {}; {findings} findings",
            number("rows"),
            number("buckets"),
            number("files"),
            show_bytes(number("bytes")),
            data.display(),
        );
    }
    if let Some(advice) = restore::advice(done, data) {
        eprintln!("margay: {advice}");
    }
    if findings == 0 {
        return Ok(());
    }
    let message =
        "what was loaded does not fit together; make another dump, after margay fsck of its source".to_owned();
    Err(Failure { code: Code::Found, message })
}
