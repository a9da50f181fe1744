//! `margay bucket inventory`: all objects of a bucket, page by page.

use std::io::{ErrorKind, IsTerminal};

use http::Method;
use margay_env::{Env, output};
use serde_json::{Value, json};

use super::reach::AdminArgs;
use super::works::open_at_rest;
use crate::exit::Failure;
use crate::inventory;

const EXAMPLES: &str = "Examples:
  margay bucket inventory photos --csv > photos.csv
  margay bucket inventory photos --prefix 2026/ --data /srv/margay

One line for each object: bucket, key, size, time modified, ETag. Lines come as they are read; with --json each is an object.
A running server is asked page by page, otherwise the directory is read here.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Inventory {
    bucket: String,
    /// Only keys that begin with this
    #[arg(long, default_value = "")]
    prefix: String,
    /// Print CSV with a header line (RFC 4180)
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Output format.
#[derive(Clone, Copy, Debug)]
enum Form {
    Columns,
    Csv,
    /// CSV that a person looks at.
    CsvOnTerminal,
    Json,
}

pub(super) fn run(admin: &AdminArgs, args: &Inventory) -> Result<(), Failure> {
    let env = Env::real();
    let (settings, reach) = admin.reach()?;
    let form = match (args.csv, args.json) {
        (true, _) if std::io::stdout().is_terminal() => Form::CsvOnTerminal,
        (true, _) => Form::Csv,
        (false, true) => Form::Json,
        (false, false) => Form::Columns,
    };
    super::runtime(settings.storage.io_threads_max)?.block_on(async {
        let mut after: Option<String> = None;
        let mut storage = None;
        if args.csv {
            print("bucket,key,size,modified,etag\r\n")?;
        }
        loop {
            let page = match &storage {
                None => {
                    let wish = json!({ "bucket": args.bucket, "prefix": args.prefix, "after": after });
                    reach.ask(&settings, Method::POST, "/inventory", Some(&wish)).await?
                }
                Some(_) => None,
            };
            let page = match page {
                Some(page) => page,
                None => {
                    let storage = match &mut storage {
                        Some(storage) => storage,
                        none => none.insert(open_at_rest(&env, &settings)?),
                    };
                    inventory::page(&storage.volume, &args.bucket, &args.prefix, after.as_deref())
                        .await
                        .map_err(|error| Failure::failed(error.to_string()))?
                }
            };
            let mut text = String::new();
            for object in page["objects"].as_array().into_iter().flatten() {
                text.push_str(&line(&args.bucket, object, form));
            }
            let is_read = print(&text)?;
            match page["next"].as_str() {
                Some(next) if is_read => after = Some(next.to_owned()),
                _ => break,
            }
        }
        storage.map_or(Ok(()), |storage| storage.close())
    })
}

/// False when nobody reads any more.
fn print(text: &str) -> Result<bool, Failure> {
    match output::exactly(text.as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::failed(format!("the list cannot be written: {error}"))),
    }
}

fn line(bucket: &str, object: &Value, form: Form) -> String {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let size = object["size"].as_u64().unwrap_or_default();
    match form {
        Form::Columns => format!("{} {size:>14}  {}\n", text("modified"), output::shown(text("key"))),
        Form::Csv | Form::CsvOnTerminal => {
            // A program needs the key as it is.
            let key = if let Form::Csv = form { text("key").into() } else { output::shown(text("key")) };
            let (key, modified, etag) = (quoted(&key), text("modified"), text("etag"));
            format!("{bucket},{key},{size},{modified},{etag}\r\n")
        }
        Form::Json => format!("{}\n", output::safe_json(&object.to_string())),
    }
}

/// Quotes a field as RFC 4180 requires.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let object = json!({ "key": "a,\"b\"", "size": 7, "modified": "2026", "etag": "e" });
        assert_eq!(line("b", &object, Form::Csv), "b,\"a,\"\"b\"\"\",7,2026,e\r\n");
        assert_eq!(
            line("b", &json!({ "key": "k", "size": 7, "modified": "t" }), Form::Columns),
            "t              7  k\n"
        );
        assert!(line("b", &object, Form::Json).starts_with('{'));
        let hostile = json!({ "key": "a\u{1b}]0;x\u{7}\nb\u{9b}", "size": 7, "modified": "t", "etag": "e" });
        assert!(line("b", &hostile, Form::Columns).ends_with("  a\\x1b]0;x\\x07\\nb\\u{9b}\n"));
        assert_eq!(line("b", &hostile, Form::CsvOnTerminal), "b,a\\x1b]0;x\\x07\\nb\\u{9b},7,t,e\r\n");
        assert!(line("b", &hostile, Form::Csv).contains('\u{1b}'), "a program gets the key as it is");
        assert!(!line("b", &hostile, Form::Json).trim_end().contains(char::is_control));
    }
}
