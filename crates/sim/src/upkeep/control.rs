//! The control socket of a server, asked by a thread that waits for the answer.
//!
//! Why:      `margay compact` would do the work itself when the server is gone, beside the next server's start.
//! Not here: what is asked (`upkeep`).

use std::io::{Error, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest wait for an answer: the machine may be busy.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);

/// The body of the answer.
pub(super) fn ask(data: &Path, method: &str, path: &str) -> Result<String> {
    let mut stream = UnixStream::connect(data.join(margay::control::NAME))?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: margay\r\n{length}Connection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| Error::other("the answer broke off"))?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    match head.split(' ').nth(1) {
        Some("200") if length == Some(body.len()) => Ok(body.to_owned()),
        Some("200") => Err(Error::other("the answer broke off")),
        _ => Err(Error::other(format!("{}: {body}", head.lines().next().unwrap_or_default()))),
    }
}

/// A number of a JSON object, by its name.
pub(super) fn number(json: &str, name: &str) -> Option<u64> {
    let rest = json.split_once(&format!("\"{name}\":"))?.1.trim_start();
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
    digits.parse().ok()
}
