//! `margay cluster pool`: buckets of other S3 stores that have copies of what is written no more.
//!
//! Why:        the bucket is tried before the rows name it, so a wrong name or key is told to whoever made it.
//! Not here:   what is put there and when (margay-cluster).

use std::path::Path;

use margay_client::credentials::Variables;
use margay_client::target::Addressing;
use margay_env::Env;
use margay_meta::Engine;
use margay_segment::{StoreIdentity, StoreNumber};
use margay_volume::{CopiesRecord, Pool, add_pool, read_copies};
use serde_json::{Value, json};

use super::status::Found;
use super::{fail, status};
use crate::backup_location::{BackupLocation, StoreArgs};
use crate::exit::Failure;
use crate::places;

const EXAMPLES: &str = "Examples:
  margay cluster pool add cold --url s3://margay-pool/prod --endpoint https://s3.example --count 2 --metadata postgres://margay@db/margay
  margay cluster pool list --metadata postgres://margay@db/margay
  margay cluster pool remove cold --metadata postgres://margay@db/margay

Segments that are written no more are put there, each as one object, and read back; from then on the pool counts as --count copies, and
copies at servers that are too many go. What a server wrote stays on its own disk too. Keys are not kept in the volume: this command and
each server look for their own where AWS's tools do (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, the machine's role).";

/// Random bytes in the name of a pool's folder.
const FOLDER_BYTES: usize = 8;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Put what is written no more into this bucket, too
    Add {
        /// What it is called here
        name: String,
        /// s3://BUCKET/PREFIX
        #[arg(long, value_name = "URL")]
        url: String,
        /// As how many copies a segment in it counts, 1 to 8
        #[arg(long, value_name = "N", default_value_t = 1)]
        count: u8,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Show the pools and what they have
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Use it no more: the servers make the copies elsewhere that it counted for. Its objects stay
    Remove {
        name: String,
        /// Even if some segments are nowhere else, and are lost then
        #[arg(long)]
        lose: bool,
    },
}

pub(super) fn run(engine: &dyn Engine, args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Add { name, url, count, store } => add(engine, name, (url, *count, store)),
        Command::List { json } => list(engine, *json),
        Command::Remove { name, lose } => remove(engine, name, *lose),
    }
}

fn in_use(copies: &CopiesRecord) -> impl Iterator<Item = (&StoreNumber, &Pool)> {
    copies.pools.iter().filter(|(number, _)| !copies.detached.contains(number))
}

fn add(engine: &dyn Engine, name: &str, (url, count, store): (&str, u8, &StoreArgs)) -> Result<(), Failure> {
    if !margay_volume::is_rack(name) {
        return Err(Failure::usage(format!("{name:?} is no name of a pool: up to 64 bytes without spaces")));
    }
    if !(1..=8).contains(&count) {
        return Err(Failure::usage("a segment in a pool counts as 1 to 8 copies".to_owned()));
    }
    if let Some((_, pool)) = in_use(&read_copies(engine).map_err(fail)?).next() {
        return Err(Failure::usage(format!(
            "the volume has the pool {}, and has one at a time: `margay cluster pool remove {}` first",
            pool.name, pool.name
        )));
    }
    let env = Env::real();
    let place = BackupLocation::parse(&env, Path::new(url), store, &Variables::of_process(&env));
    let BackupLocation::Bucket(place) = place.map_err(Failure::usage)? else {
        return Err(Failure::usage(format!("--url {url}: a pool is a bucket, write s3://BUCKET/PREFIX")));
    };
    let opened = BackupLocation::Bucket(place.clone()).open(&env).map_err(Failure::failed)?;
    // Whoever may not write is told now.
    let mark = opened.put_mark().map_err(Failure::failed)?;
    if let Some(mark) = mark {
        let is_own = places::find(engine, &place.bucket, &mark).is_ok();
        opened.remove_mark(&mark).map_err(Failure::failed)?;
        if is_own {
            return Err(Failure::usage(format!(
                "--url {url}: that is a bucket of this very volume; name another store"
            )));
        }
    }
    let (mut folder, mut identity) = ([0; FOLDER_BYTES], [0; 16]);
    env.random.fill(&mut folder);
    env.random.fill(&mut identity);
    let pool = Pool {
        name: name.to_owned(),
        bucket: place.bucket.clone(),
        prefix: place.prefix.clone(),
        endpoint: place.endpoint.clone(),
        region: place.region.clone(),
        folder: base16ct::lower::encode_string(&folder),
        is_virtual: place.addressing == Addressing::Virtual,
        copies: count,
    };
    if !pool.is_valid() {
        return Err(Failure::usage("its URL or endpoint is too long".to_owned()));
    }
    let make = |copies: &CopiesRecord| in_use(copies).next().is_none().then(|| pool.clone());
    let number = add_pool(engine, StoreIdentity(identity), &make).map_err(fail)?;
    let Some(number) = number else {
        return Err(Failure::failed("somebody else has added a pool at the same time".to_owned()));
    };
    println!("pool {name} is store {} and counts as {count} copies of each segment in it", number.0);
    println!("each server needs keys for {}: `margay cluster status` shows what is there", address(&pool));
    Ok(())
}

/// Where it is, for people.
pub(super) fn address(pool: &Pool) -> String {
    let slash = if pool.prefix.is_empty() { "" } else { "/" };
    format!("s3://{}{slash}{} at {}", pool.bucket, pool.prefix, pool.endpoint)
}

fn list(engine: &dyn Engine, as_json: bool) -> Result<(), Failure> {
    let Found { copies, segments, .. } = status::find(engine)?;
    let state = |number: &StoreNumber| if copies.detached.contains(number) { "removed" } else { "used" };
    if as_json {
        let pools: Vec<Value> = copies
            .pools
            .iter()
            .map(|(number, pool)| {
                let has = segments.of(*number);
                json!({"store": number.0, "name": pool.name, "state": state(number), "count": pool.copies,
                    "bucket": pool.bucket, "prefix": pool.prefix, "folder": pool.folder, "endpoint": pool.endpoint,
                    "region": pool.region, "segments": has.segments, "bytes": has.bytes})
            })
            .collect();
        println!("{:#}", Value::Array(pools));
        return Ok(());
    }
    println!("{:>5}  {:<12} {:<8} {:>5} {:>9} {:>10}  ADDRESS", "STORE", "NAME", "STATE", "COUNT", "SEGMENTS", "MiB");
    for (number, pool) in &copies.pools {
        let has = segments.of(*number);
        println!(
            "{:>5}  {:<12} {:<8} {:>5} {:>9} {:>10}  {}",
            number.0,
            pool.name,
            state(number),
            pool.copies,
            has.segments,
            has.bytes >> 20,
            address(pool)
        );
    }
    Ok(())
}

fn remove(engine: &dyn Engine, name: &str, lose: bool) -> Result<(), Failure> {
    let copies = read_copies(engine).map_err(fail)?;
    let Some((number, pool)) = in_use(&copies).find(|(_, pool)| pool.name == name) else {
        return Err(Failure::usage(format!("there is no pool {name}; `margay cluster pool list` shows them")));
    };
    super::detach(engine, *number, lose, false)?;
    println!(
        "once all segments have their copies (`margay cluster status`), what is below margay/{} in {} may be removed",
        pool.folder,
        address(pool)
    );
    Ok(())
}
