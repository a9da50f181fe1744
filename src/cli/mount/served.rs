//! `margay serve --upstream s3://...`: this process serves a far bucket from its cache, and mounts it besides if it is told to.
//!
//! Not here:   the door (far_mount::gateway), a server of its own data (cli::serve).

use std::path::{Path, PathBuf};

use margay_env::Env;
use margay_listener::ConnectionLimits;
use margay_upstream::is_of_the_bucket;

use super::far::{self, Purpose};
use super::store_options::StoreOptions;
use super::{absolute, cache_limits, parse_size};
use crate::backup_location::StoreArgs;
use crate::cli::arguments::ServerArgs;
use crate::exit::Failure;
use crate::far_mount::CACHED;
use crate::far_mount::gateway::Gateway;
use crate::mounts::options::MountChoice;
use crate::open_files;
use crate::settings::Settings;

/// Flags of `margay serve` for a far bucket.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::cli) struct FarArgs {
    /// Serve a bucket of another store, s3://BUCKET or s3://BUCKET/PREFIX, from a durable cache; --mount DIR mounts it besides
    #[arg(long, value_name = "PLACE")]
    pub upstream: Option<String>,
    /// With --upstream: the bucket's name here [default: that of the far bucket]
    #[arg(long, value_name = "BUCKET", requires = "upstream")]
    name: Option<String>,
    /// With --upstream: store of the far bucket [default: as for `margay mount`]
    #[arg(long, value_name = "URL", requires = "upstream")]
    endpoint: Option<String>,
    /// With --upstream: where is kept what was read and what is not sent [default: below ~/.cache/margay]
    #[arg(long, value_name = "DIR", requires = "upstream")]
    cache: Option<PathBuf>,
    /// With --upstream: bytes that the cache takes of the disk, such as 50GiB [default: 10GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "upstream")]
    cache_size: Option<u64>,
    /// With --upstream: options as `margay mount` takes them: profile=, region=, ca=, addressing=, fsync=, open=, ttl=, writers=; of the mount: ro, uid=, ...
    #[arg(short = 'o', value_name = "WORD,...", requires = "upstream")]
    options: Vec<String>,
}

/// `server`: the flags of any server.
pub(in crate::cli) fn run(upstream: &str, args: &FarArgs, server: &ServerArgs) -> Result<(), Failure> {
    let env = Env::real();
    let (server, mounts) = server.without_mounts();
    if server.data.data.is_some() {
        return Err(Failure::usage("--data belongs to a server of its own data: with --upstream name --cache DIR"));
    }
    let mut words: Vec<String> = args.options.iter().flat_map(|one| one.split(',')).map(str::to_owned).collect();
    let store = StoreArgs { endpoint: args.endpoint.clone(), ..StoreArgs::default() };
    let flags =
        StoreOptions { store, cache: args.cache.clone(), cache_size: args.cache_size, ..StoreOptions::default() };
    let options = flags.take(&mut words)?;
    let (place, cache) = far::parse(upstream, &options.store, options.cache.as_deref())?;
    cache_limits::size(options.cache_size)?;
    let mount = mount_of(&env, &mounts, &cache, &words.join(","))?;
    let bucket = match &args.name {
        Some(name) => check_name(name)?,
        None => check_name(&place.bucket).unwrap_or_else(|_| CACHED.to_owned()),
    };
    let resolved = server.resolve(&env)?;
    let settings = Settings::build(&resolved).map_err(Failure::usage)?;
    if !settings.mounts.is_empty() {
        return Err(Failure::usage("mounts are set for a server of its own data: with --upstream name --mount DIR"));
    }
    if settings.shared.is_some() {
        return Err(Failure::usage(
            "--upstream serves a cache with rows of its own: without --metadata postgres://...",
        ));
    }
    let connections_max = open_files::allow(settings.connection.connections_max);
    let connection = ConnectionLimits { connections_max, ..settings.connection };
    let (mut far, runtime) = far::begin(&resolved, &env, (place, cache), options.cache_size, Purpose::Serve)?;
    far.metrics_address.clone_from(&settings.admin_address);
    options.set(&mut far);
    let gateway = Gateway { settings: Settings { connection, ..settings }, bucket };
    let mount = mount.as_ref().map(|(path, choice)| (path.as_path(), choice));
    runtime.block_on(far.run(&env, mount, Some(&gateway)))
}

/// Where it is mounted besides, and how.
fn mount_of(
    env: &Env,
    mounts: &[String],
    cache: &Path,
    words: &str,
) -> Result<Option<(PathBuf, MountChoice)>, Failure> {
    let choice = MountChoice::parse(words).map_err(Failure::usage)?;
    match mounts {
        [] if choice == MountChoice::default() => Ok(None),
        [] => Err(Failure::usage(format!("-o {words}: options of a mount need --mount DIR"))),
        [path] if path.contains('=') => {
            Err(Failure::usage(format!("--mount {path}: with --upstream write --mount DIR: there is one bucket")))
        }
        [path] => {
            let path = absolute(Path::new(path))?;
            far::check(env, &path, cache, words)?;
            Ok(Some((path, choice)))
        }
        _ => Err(Failure::usage("with --upstream there is one --mount DIR")),
    }
}

/// A name that S3 allows, and that no bucket of the cache has.
fn check_name(name: &str) -> Result<String, Failure> {
    if margay_s3::route::fits_bucket_name(name) && is_of_the_bucket(name) {
        return Ok(name.to_owned());
    }
    Err(Failure::usage(format!(
        "--name {name}: name another bucket, of 3 to 63 lower-case letters, digits, dots and hyphens"
    )))
}
