//! `margay trace`: each request of a running server as it ends.

use std::io;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use margay_env::output;
use serde_json::{Value, json};

use super::reach::AdminArgs;
use super::tables::{micros, printable, size};
use crate::exit::Failure;
use crate::settings::Settings;

/// The longest line of an answer, in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;

const EXAMPLES: &str = "Examples:
  margay trace
  margay trace --errors --bucket photos --endpoint https://s3.example.org
  margay trace --operation PutObject --slower-than 500 --json

One line for each request: when it ended, status, operation, from where, as whom, how long, bytes in and out, and on what. The
server keeps back what the filters leave out. A reader that is too slow is told how many it lost. A key needs admin:Trace.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminArgs,
    /// Only requests that were refused or failed
    #[arg(long)]
    errors: bool,
    /// Only this operation of S3, STS or IAM, such as GetObject
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Only this bucket
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
    /// Only requests that took so long
    #[arg(long, value_name = "MILLISECONDS")]
    slower_than: Option<u64>,
    /// End after so many requests
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let wish = json!({
        "errors": args.errors, "operation": args.operation, "bucket": args.bucket, "slower_than_ms": args.slower_than,
    });
    show(&args.admin, "/trace", &wish, args.count, |line| if args.json { format!("{line}\n") } else { row(line) })
}

/// Prints what a work shows line by line, `count` lines or until it ends.
pub(super) fn show(
    admin: &AdminArgs,
    path: &str,
    wish: &Value,
    count: Option<u64>,
    text: impl Fn(&Value) -> String,
) -> Result<(), Failure> {
    let (settings, reach) = admin.reach()?;
    super::runtime(1)?.block_on(async {
        let Some(mut body) = reach.stream(&settings, path, wish).await? else { return Err(no_server(&settings)) };
        let mut left = count;
        lines(&mut body, |line| {
            output::exactly(text(line).as_bytes())?;
            left = left.map(|left| left.saturating_sub(1));
            Ok(left != Some(0))
        })
        .await
    })
}

pub(super) fn no_server(settings: &Settings) -> Failure {
    let failure = Failure::no_server(&settings.data);
    Failure { message: format!("{}; of another machine, name it: --endpoint URL", failure.message), ..failure }
}

/// Hands each line of an answer without an end on, until `take` has enough. A reader that is gone ends it quietly.
async fn lines(body: &mut Incoming, mut take: impl FnMut(&Value) -> io::Result<bool>) -> Result<(), Failure> {
    let broken = |what: &dyn std::fmt::Display| Failure::failed(format!("the answer broke off: {what}"));
    let mut held = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
        held.extend_from_slice(&data);
        while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = held.drain(..=end).collect();
            if line.trim_ascii().is_empty() {
                continue;
            }
            let line = serde_json::from_slice(&line).map_err(|error| broken(&error))?;
            match take(&line) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(Failure::failed(format!("the line cannot be written: {error}"))),
            }
        }
        if held.len() > LINE_BYTES_MAX {
            return Err(broken(&"a line has no end"));
        }
    }
    Err(Failure::failed("the server ended the answer: it stops, or the key or its right was taken away"))
}

/// One request for people.
fn row(line: &Value) -> String {
    if let Some(lost) = line["lost"].as_u64() {
        return format!("({lost} requests are not shown: this reader is too slow)\n");
    }
    let number = |name: &str| line[name].as_u64().unwrap_or_default();
    let text = |name: &str| printable(line[name].as_str().unwrap_or_default());
    let on = match (text("bucket"), text("key")) {
        (bucket, key) if key.is_empty() => bucket,
        (bucket, key) => format!("{bucket}/{key}"),
    };
    let who = Some(text("requester")).filter(|who| !who.is_empty()).unwrap_or_else(|| "-".to_owned());
    let code = Some(text("code")).filter(|code| !code.is_empty()).map(|code| format!(" {code}")).unwrap_or_default();
    let cut = if line["complete"] == false { " (the client left)" } else { "" };
    format!(
        "{} {}{code} {} {} {who} {} in {} out {}  {on}{cut}\n",
        text("time"),
        number("status"),
        text("operation"),
        text("peer"),
        micros(number("total_us")),
        size(number("bytes_in")),
        size(number("bytes_out")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_one_line_whatever_the_key_is() {
        let line = json!({
            "time": "T", "status": 404, "code": "NoSuchKey", "operation": "GetObject", "peer": "::1", "requester": "",
            "total_us": 1500, "bytes_in": 0, "bytes_out": 2048, "bucket": "b", "key": "k\n\u{1b}[2J", "complete": true,
        });
        let text = row(&line);
        assert_eq!(text, "T 404 NoSuchKey GetObject ::1 - 1.5 ms in 0 B out 2.0 KiB  b/k\\n\\x1b[2J\n");
        assert!(row(&json!({ "lost": 7 })).starts_with("(7 requests"));
    }
}
