//! `margay client`: list, put, get and remove objects and buckets without any other tool.
//!
//! Why:        the first thing after `margay serve` must work on a machine that has neither curl nor an S3 client.
//! Invariants: names are printed one per line, exactly unless they contain control characters (--json has all exactly); an object
//!             goes to a file whole or not at all, and touches no other file.
//! Not here:   everything a full client does (multipart, sync, retries).

mod get;
mod put;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use margay_env::{Env, output};

use crate::error::BenchError;
use crate::target::{FoundKeys, TargetArgs};
use margay_client::client::{Client, DELETE_KEYS_MAX, ListQuery};
use margay_client::connection::Connection;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay client mb s3://pictures
  margay client put cat.jpg s3://pictures/2026/cat.jpg
  margay client ls s3://pictures/2026/
  margay client get s3://pictures/2026/cat.jpg copy.jpg
  margay client rm --recursive s3://pictures/2026/")]
pub struct ClientArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(subcommand)]
    pub command: ClientCommand,
}

#[derive(Debug, clap::Subcommand)]
pub enum ClientCommand {
    /// List buckets, or the keys and folders under a prefix
    Ls {
        /// s3://BUCKET[/PREFIX]; nothing lists the buckets
        url: Option<ObjectUrl>,
        /// All keys below, instead of one level
        #[arg(long, short)]
        recursive: bool,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Store a file (`-` for standard input) as an object
    Put {
        file: PathBuf,
        /// s3://BUCKET/KEY; a key that is empty or ends in / gets the file's name
        url: ObjectUrl,
        /// Content type to store with it
        #[arg(long, value_name = "TYPE")]
        content_type: Option<String>,
    },
    /// Fetch an object into a file, which has all of it or stays as it was
    Get {
        url: ObjectUrl,
        /// File to write, replaced when it exists; `-` for standard output [default: the last part of the key]
        file: Option<PathBuf>,
    },
    /// Remove an object, or with --recursive everything under a prefix
    Rm {
        url: ObjectUrl,
        #[arg(long, short)]
        recursive: bool,
    },
    /// Make a bucket
    Mb { url: ObjectUrl },
    /// Remove an empty bucket
    Rb { url: ObjectUrl },
}

/// `s3://bucket/key`, with or without `s3://` and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectUrl {
    pub bucket: String,
    pub key: String,
}

impl std::str::FromStr for ObjectUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<ObjectUrl, String> {
        let rest = text.strip_prefix("s3://").unwrap_or(text);
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err("give it as s3://BUCKET/KEY".to_owned());
        }
        Ok(ObjectUrl { bucket: bucket.to_owned(), key: key.to_owned() })
    }
}

/// Runs one command. Builds a tokio runtime: call it from a plain thread.
pub fn run(
    args: &ClientArgs,
    find: impl FnOnce() -> Result<FoundKeys, String>,
    listens: impl FnOnce() -> Option<String>,
) -> Result<(), BenchError> {
    let target = args.target.resolve_or(find, listens)?;
    let mut client = Client::new(Connection::new(Arc::clone(&target)));
    let env = Env::real();
    crate::runtime()?.block_on(async {
        match &args.command {
            ClientCommand::Ls { url: None, json, .. } => list_buckets(&mut client, *json).await,
            ClientCommand::Ls { url: Some(url), recursive, json } => list(&mut client, url, *recursive, *json).await,
            ClientCommand::Put { file, url, content_type } => {
                put::run(&mut client, &env, file, url, content_type.as_deref()).await
            }
            ClientCommand::Get { url, file } => get::run(&mut client, &env, url, file.as_deref()).await,
            ClientCommand::Rm { url, recursive: false } => Ok(client.delete(&url.bucket, keyed(url)?).await?),
            ClientCommand::Rm { url, recursive: true } => remove_all(&mut client, url).await,
            ClientCommand::Mb { url } => Ok(client.make_bucket(unkeyed(url)?).await?),
            ClientCommand::Rb { url } => Ok(client.remove_bucket(unkeyed(url)?).await?),
        }
    })
}

fn keyed(url: &ObjectUrl) -> Result<&str, BenchError> {
    if url.key.is_empty() {
        return Err(BenchError::Usage(format!("s3://{}/ names no object; add its key", url.bucket)));
    }
    Ok(&url.key)
}

fn unkeyed(url: &ObjectUrl) -> Result<&str, BenchError> {
    if !url.key.is_empty() {
        return Err(BenchError::Usage(format!("a bucket has no key: s3://{}", url.bucket)));
    }
    Ok(&url.bucket)
}

/// Writes a line to standard output; a reader that went away ends the program quietly.
fn say(line: &str) -> Result<(), BenchError> {
    output::exactly(format!("{line}\n").as_bytes()).map_err(stdout_failed)
}

fn stdout_failed(source: io::Error) -> BenchError {
    match source.kind() {
        io::ErrorKind::BrokenPipe => BenchError::ReaderGone,
        _ => BenchError::File { path: "standard output".to_owned(), source },
    }
}

fn json_line(value: &serde_json::Value) -> String {
    output::safe_json(&value.to_string()).into_owned()
}

async fn list_buckets(client: &mut Client, json: bool) -> Result<(), BenchError> {
    for bucket in client.list_buckets().await? {
        match json {
            true => say(&serde_json::json!({ "bucket": bucket.name, "created": bucket.created }).to_string())?,
            false => say(&format!("{:>24}  s3://{}", bucket.created, bucket.name))?,
        }
    }
    Ok(())
}

async fn list(client: &mut Client, url: &ObjectUrl, recursive: bool, json: bool) -> Result<(), BenchError> {
    let mut token: Option<String> = None;
    loop {
        let query = ListQuery {
            prefix: &url.key,
            delimiter: (!recursive).then_some("/"),
            token: token.as_deref(),
            encoded: true,
            ..ListQuery::default()
        };
        let page = client.list(&url.bucket, &query).await?;
        // Keys and folders come in two lists, each in order; people read them as one.
        let mut lines: Vec<(&str, String)> = Vec::with_capacity(page.entries.len() + page.prefixes.len());
        for prefix in &page.prefixes {
            let line = match json {
                true => json_line(&serde_json::json!({ "prefix": prefix })),
                false => format!("{:>24} {:>14}  s3://{}/{}", "", "DIR", url.bucket, output::shown(prefix)),
            };
            lines.push((prefix, line));
        }
        for entry in &page.entries {
            let line = match json {
                true => json_line(&serde_json::json!({
                    "key": entry.key, "size": entry.size, "modified": entry.modified,
                    "etag": entry.etag.trim_matches('"'),
                })),
                false => {
                    let key = output::shown(&entry.key);
                    format!("{:>24} {:>14}  s3://{}/{key}", entry.modified, entry.size, url.bucket)
                }
            };
            lines.push((&entry.key, line));
        }
        lines.sort_by_key(|(name, _)| *name);
        for (_, line) in &lines {
            say(line)?;
        }
        match page.next_token {
            Some(next) if page.truncated => token = Some(next),
            _ => return Ok(()),
        }
    }
}

async fn remove_all(client: &mut Client, url: &ObjectUrl) -> Result<(), BenchError> {
    let mut last: Option<String> = None;
    loop {
        let query = ListQuery { prefix: &url.key, start_after: last.as_deref(), encoded: true, ..ListQuery::default() };
        let page = client.list(&url.bucket, &query).await?;
        let keys: Vec<&str> = page.entries.iter().map(|entry| entry.key.as_str()).collect();
        for keys in keys.chunks(DELETE_KEYS_MAX) {
            client.delete_many(&url.bucket, keys).await?;
        }
        match page.entries.into_iter().next_back() {
            Some(entry) if page.truncated => last = Some(entry.key),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_or_refused() {
        let url = |bucket: &str, key: &str| Ok(ObjectUrl { bucket: bucket.to_owned(), key: key.to_owned() });
        assert_eq!("s3://b/a//k".parse(), url("b", "a//k"));
        assert_eq!("b".parse(), url("b", ""));
        assert_eq!("b/".parse(), url("b", ""));
        assert!("s3://".parse::<ObjectUrl>().is_err());
        assert!("/x".parse::<ObjectUrl>().is_err());
    }
}
