//! `margay bench` and `margay client`: the benchmarks and the small client of margay-bench, with the keys of a data
//! directory of this machine, or those that AWS's tools have here (the client).
//!
//! Not here: what they do (margay-bench).

use std::sync::Arc;

use http::Method;
use margay_accounts::root_keys;
use margay_bench::target::{Target, TargetArgs};
use margay_bench::{BenchCommand, BenchError, Credentials, FoundKeys};
use margay_client::KeyChain;
use margay_client::credentials::{Places, Profile, Variables};
use margay_env::Env;

use super::arguments::DataArgs;
use crate::control;
use crate::exit::{Code, Failure};

/// Variables that name where keys are.
const PLACES: [&str; 3] = ["AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_PROFILE"];

const BENCH_EXAMPLES: &str = "Examples:
  margay bench ls
  margay bench load --endpoint http://127.0.0.1:9000
  margay bench small --rival ext4,margay,s3fs           (`margay bench rivals` shows which there are)

Keys come from --access-key and --secret-key, the environment, or the file `keys` of the data directory (--data).
Every benchmark makes a bucket or a directory of its own, and removes it.";

#[derive(Debug, clap::Args)]
#[command(after_help = BENCH_EXAMPLES)]
pub(super) struct Bench {
    #[command(flatten)]
    data: DataArgs,
    #[command(subcommand)]
    command: Box<BenchCommand>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Client {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    client: margay_bench::ClientArgs,
}

pub(super) fn run_bench(args: &Bench) -> Result<(), Failure> {
    margay_bench::run_bench(&args.command, found(&args.data)?).map_err(|error| failure(&error))
}

pub(super) fn run_client(args: &Client) -> Result<(), Failure> {
    let of_directory = found(&args.data)?;
    match margay_bench::run_client(&args.client, || find(&args.data, of_directory), || named(&args.data)) {
        Err(BenchError::ReaderGone) => Ok(()),
        done => done.map_err(|error| failure(&error)),
    }
}

/// The server that these arguments name, with keys as the client finds them.
pub(super) fn target(data: &DataArgs, args: &TargetArgs) -> Result<Arc<Target>, Failure> {
    let of_directory = found(data)?;
    args.resolve_or(|| find(data, of_directory), || named(data)).map_err(|error| failure(&error))
}

/// Keys of the data directory, or those of the places of AWS's tools; these first, if a variable names one of them and nobody
/// has named the directory.
fn find(args: &DataArgs, of_directory: Option<Credentials>) -> Result<FoundKeys, String> {
    let env = Env::real();
    let variables = Variables::of_process(&env);
    let names_place = args.data.is_none() && variables.first(&PLACES).is_some();
    if let Some(pair) = of_directory.filter(|_| !names_place) {
        return Ok(FoundKeys { keys: pair.into(), endpoint: listens(&env, args), region: None });
    }
    if let Some(data) = &args.data {
        return Err(format!("{data} has no file `keys` that you may read: is it the data directory of a server?"));
    }
    let profile = Profile::load(&env, &variables, None)?;
    let region = variables.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).or_else(|| profile.get("region"));
    let (region, endpoint) = (region.map(str::to_owned), profile.endpoint("s3").map(str::to_owned));
    let keys = KeyChain::looked_for(&env, Places { variables, profile: None });
    Ok(FoundKeys { keys, endpoint, region })
}

/// Where the server of a directory that was named listens.
fn named(args: &DataArgs) -> Option<String> {
    args.data.as_ref().and_then(|_| listens(&Env::real(), args))
}

/// Where the server of this data directory listens, if one runs.
fn listens(env: &Env, args: &DataArgs) -> Option<String> {
    let data = args.settings(env).ok()?.data;
    let status = super::runtime(1).ok()?.block_on(control::ask(&data, Method::GET, "/status")).ok()??;
    status["endpoint"].as_str().map(str::to_owned)
}

/// The keys of the data directory, if this user may read them.
fn found(args: &DataArgs) -> Result<Option<Credentials>, Failure> {
    let env = Env::real();
    let settings = args.settings(&env)?;
    let keys = root_keys::read(&env, &settings.data);
    Ok(keys.map(|keys| Credentials { access_key: keys.access_key, secret_key: keys.secret_key }))
}

pub(super) fn failure(error: &BenchError) -> Failure {
    let code = match error.exit_code() {
        2 => Code::Usage,
        3 => Code::Refused,
        4 => Code::Found,
        130 => Code::Interrupted,
        _ => Code::Failed,
    };
    Failure { code, message: error.to_string() }
}
