//! `margay health`: whether a server works, for the health checks of containers and scripts.
//!
//! Why:        an image from scratch has no shell and no curl, so the program is its own check.
//! Invariants: L1 only 0 (works) and 1 (does not, or nobody answers in time) beside wrong words (2): Docker knows no others.
//!             L2 without --ready only what a restart may mend counts: who restarts what is not healthy must not restart all
//!             servers because their PostgreSQL is away.
//! Not here:   what healthy means (`server`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use http_body_util::{BodyExt, Limited};
use margay_client::endpoint::Endpoint;
use margay_env::Env;
use serde_json::Value;

use super::arguments::DataArgs;
use crate::admin::{HEALTH, READY};
use crate::control;
use crate::exit::{Code, Failure};

const EXAMPLES: &str = "Examples:
  margay health
  margay health --data /srv/margay
  margay health --endpoint http://127.0.0.1:9000
  margay health --ready
  margay health --endpoint https://s3.example.org --ca /etc/margay/ca.pem --timeout 2

Without --endpoint it asks the server of the data directory over its control socket, whatever addresses and certificates that has.
Exit code 0 when the server can read and write, 1 when it cannot or nobody answers; one line on stderr says why. A server whose
PostgreSQL is away is healthy, since a restart would not help it, and not ready.";

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Address of its S3 door, instead of the control socket of a data directory
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// PEM file of the authority that signed the server's certificate, for https [default: the system's]
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    ca: Option<PathBuf>,
    /// Also whether requests are served now: the metadata answers
    #[arg(long)]
    ready: bool,
    /// How long an answer may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let env = Env::real();
    let longest = Duration::from_secs(args.timeout);
    let endpoint = match &args.endpoint {
        Some(url) => Some(endpoint(url, if args.ready { READY } else { HEALTH }, args.ca.as_deref())?),
        None => None,
    };
    let data = args.data.settings(&env)?.data;
    let asked = super::runtime(1)?.block_on(async {
        let asked = async {
            match &endpoint {
                Some(endpoint) => over_http(endpoint).await,
                None => over_socket(&data, if args.ready { "ready" } else { "health" }).await,
            }
        };
        tokio::time::timeout(longest, asked).await
    });
    let missed = if args.ready { "not ready" } else { "not healthy" };
    match asked {
        Ok(Ok(())) => Ok(()),
        Ok(Err(reason)) => Err(Failure { code: Code::Failed, message: format!("{missed}: {reason}") }),
        Err(_) => Err(Failure::failed(format!("{missed}: no answer within {} s", args.timeout))),
    }
}

fn endpoint(url: &str, page: &str, authority: Option<&Path>) -> Result<Endpoint, Failure> {
    let wrong = |error: String| Failure::usage(format!("--endpoint {url}: {error}"));
    let mut endpoint = Endpoint::parse(&format!("{}{page}", url.trim_end_matches('/'))).map_err(wrong)?;
    if endpoint.is_secure() {
        endpoint.trust_authorities(authority).map_err(|error| Failure::usage(error.to_string()))?;
    }
    Ok(endpoint)
}

async fn over_http(endpoint: &Endpoint) -> Result<(), String> {
    let request = endpoint.request(Method::GET, Vec::new())?;
    let mut sender = endpoint.connect().await.map_err(|error| format!("{endpoint:?}: {error}"))?;
    let answer = sender.send_request(request).await.map_err(|error| format!("{endpoint:?}: {error}"))?;
    if answer.status().is_success() {
        return Ok(());
    }
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let told = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()).unwrap_or_default();
    Err(format!("{endpoint:?} says {status}: {told}"))
}

async fn over_socket(data: &Path, what: &str) -> Result<(), String> {
    let status = control::ask(data, Method::GET, "/status").await.map_err(|failure| failure.message)?;
    let status = status.ok_or_else(|| format!("no server runs on {}", data.display()))?;
    match status.get(what).or_else(|| status.get("health")).and_then(Value::as_str) {
        Some("ok") => Ok(()),
        other => Err(other.unwrap_or("its answer does not say").to_owned()),
    }
}
