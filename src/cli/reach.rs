//! Where a command of administration is done: by the server of a data directory here, or by one at a URL.
//!
//! Why:        the same command must work on the server's machine, without keys, and from any other one, with them.
//! Invariants: C1 `--endpoint` counts most, then `--data` or `--metadata`, then MARGAY_ENDPOINT; without any of them the directory is meant.
//!             C2 the exit codes are those of `exit`: nobody answers there, or the key has no right, the process there does not do it: 3; the server did not
//!                understand: 2; it failed: 1.
//! Not here:   the control socket (`control`), signatures (margay-client).

use std::path::PathBuf;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use margay_bench::BenchError;
use margay_bench::target::TargetArgs;
use margay_client::client::{Ask, Client};
use margay_client::connection::Connection;
use margay_env::Env;
use serde_json::Value;
use tokio::sync::Mutex;

use super::arguments::DataArgs;
use super::bench;
use crate::control;
use crate::exit::Failure;
use crate::settings::Settings;

/// Maximum size of an answer that is read whole, in bytes: all users of a large server.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// What the path of a work is below: the first part is where S3 has a bucket.
const FOLDER: &str = "-";
const BELOW: &str = "admin/v1";

/// The arguments of a command of administration.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct AdminArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// S3 address of a server on another machine, instead of a data directory here [default: $MARGAY_ENDPOINT]. Keys come from
    /// MARGAY_ACCESS_KEY and MARGAY_SECRET_KEY, else from where `margay client` finds them
    #[arg(long, value_name = "URL", global = true, help_heading = "Another machine")]
    pub endpoint: Option<String>,
    /// Region named in signatures [default: us-east-1]
    #[arg(long, value_name = "NAME", global = true, help_heading = "Another machine")]
    pub region: Option<String>,
    /// PEM file of the authority that signed its certificate [default: $AWS_CA_BUNDLE or the system's]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Another machine")]
    pub ca: Option<PathBuf>,
}

/// Where it is done.
#[derive(Debug)]
pub(super) enum Reach {
    Here,
    There(Box<There>),
}

/// A server at a URL.
#[derive(Debug)]
pub(super) struct There {
    client: Mutex<Client>,
    url: String,
    is_protected: bool,
}

impl AdminArgs {
    /// The settings, and where the command is done.
    pub(super) fn reach(&self) -> Result<(Settings, Reach), Failure> {
        self.reach_or(None)
    }

    /// As `reach`, for a command that may name the database of a shared volume.
    pub(super) fn reach_or(&self, metadata: Option<&str>) -> Result<(Settings, Reach), Failure> {
        if self.endpoint.is_some() && metadata.is_some() {
            return Err(Failure::usage("--endpoint asks a server, --metadata a database: name one of them"));
        }
        let settings = self.data.settings_with_metadata(&Env::real(), metadata)?;
        let of_environment = std::env::var("MARGAY_ENDPOINT").ok().filter(|url| !url.is_empty());
        // C1.
        let names_place = self.data.data.is_some() || metadata.is_some();
        let url = self.endpoint.clone().or_else(|| of_environment.filter(|_| !names_place));
        let Some(url) = url else { return Ok((settings, Reach::Here)) };
        let args = TargetArgs {
            endpoint: Some(url),
            region: self.region.clone(),
            ca: self.ca.clone(),
            ..TargetArgs::default()
        };
        let target = bench::target(&self.data, &args)?;
        let (url, is_protected) = (target.url(), target.is_protected());
        let client = Mutex::new(Client::new(Connection::new(target)));
        Ok((settings, Reach::There(Box::new(There { client, url, is_protected }))))
    }
}

impl Reach {
    /// Says that a secret travels where others can read it, if it does.
    pub(super) fn warn_of_secrets(&self) {
        if let Reach::There(there) = self
            && !there.is_protected
        {
            eprintln!(
                "margay: note: {} has no TLS, so whoever is on the way can read the secret; use https",
                there.url
            );
        }
    }

    /// Whether a server at a URL is meant.
    pub(super) fn is_there(&self) -> bool {
        matches!(self, Reach::There(_))
    }

    /// Sends a request; `Ok(None)` when no server runs on the directory.
    pub(super) async fn ask(
        &self,
        settings: &Settings,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Option<Value>, Failure> {
        match self {
            Reach::Here => control::ask_with(&settings.data, method, path, body).await,
            Reach::There(there) => {
                let response = there.send(method, path, body).await?;
                there.value(response).await.map(Some)
            }
        }
    }

    /// Sends a request whose answer is a stream of lines.
    pub(super) async fn stream(
        &self,
        settings: &Settings,
        path: &str,
        body: &Value,
    ) -> Result<Option<Incoming>, Failure> {
        let there = match self {
            Reach::Here => return control::ask_for_stream(&settings.data, path, body).await,
            Reach::There(there) => there,
        };
        let response = there.send(Method::POST, path, Some(body)).await?;
        if response.status().is_success() {
            return Ok(Some(response.into_body()));
        }
        Err(match there.value(response).await {
            Ok(_) => Failure::failed(format!("{} answers something else", there.url)),
            Err(failure) => failure,
        })
    }
}

impl There {
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Response<Incoming>, Failure> {
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let ask = Ask { body, ..Ask::new(method, FOLDER, &format!("{BELOW}{path}")) };
        let sent = self.client.lock().await.send(&ask).await;
        sent.map_err(|error| bench::failure(&BenchError::Client(error)))
    }

    async fn value(&self, response: Response<Incoming>) -> Result<Value, Failure> {
        let (status, url) = (response.status(), &self.url);
        let broken = |what: &dyn std::fmt::Display| Failure::failed(format!("the answer of {url} broke off: {what}"));
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| broken(&error))?.to_bytes();
        let value = serde_json::from_slice::<Value>(&body);
        if status.is_success() {
            return value.map_err(|error| broken(&error));
        }
        let value = value.unwrap_or_default();
        let is_absent = value["absent"] == true;
        let said = value["error"].as_str().map(str::to_owned);
        let Some(said) = said else {
            let message = format!(
                "{url} answers {status} and knows no administration: is it the S3 address of a margay of this version?"
            );
            return Err(Failure::refused(message));
        };
        // C2.
        Err(match status {
            StatusCode::NOT_FOUND if is_absent => Failure::failed(said),
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => Failure::refused(said),
            StatusCode::BAD_REQUEST => Failure::usage(said),
            _ => Failure::failed(said),
        })
    }
}
