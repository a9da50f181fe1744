//! The start screen: what runs, where, with which properties, and three commands to paste.
//!
//! Invariants: S1 keys appear only on a terminal.  S2 the commands need no tool that this machine lacks.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use margay_accounts::root_keys::RootKeys;

use crate::probe;

/// What the screen shows.
#[derive(Debug)]
pub struct Screen<'a> {
    pub data: &'a Path,
    /// The bucket of another store that is served; then `data` is its cache.
    pub far: Option<FarBucket<'a>>,
    /// One line for each configured mount.
    pub mounts: &'a [String],
    pub sync: Option<Duration>,
    pub address: SocketAddr,
    pub admin: Option<SocketAddr>,
    /// Its URL.
    pub console: Option<String>,
    pub tls: bool,
    pub region: &'a str,
    pub keys: &'a RootKeys,
    /// Whether stdout is a terminal.
    pub terminal: bool,
    pub curl: bool,
}

/// A bucket of another store.
#[derive(Clone, Copy, Debug)]
pub struct FarBucket<'a> {
    /// `s3://BUCKET/PREFIX`.
    pub source: &'a str,
    pub endpoint: &'a str,
    /// Its name here.
    pub bucket: &'a str,
}

/// The URL of an S3 door from this machine.
pub fn endpoint(mut address: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    format!("{scheme}://{address}")
}

/// Whether curl can sign requests (7.75 and later).
pub fn curl_signs() -> bool {
    let mut curl = Command::new("curl");
    curl.args(["--aws-sigv4", "aws:amz", "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    curl.status().is_ok_and(|status| status.success())
}

impl Screen<'_> {
    pub fn text(&self) -> String {
        let mut out = format!("margay {}\n", env!("CARGO_PKG_VERSION"));
        let mut row = |name: &str, value: &str| writeln!(out, "  {name:<9} {value}").expect("a string takes all text");
        if let Some(far) = self.far {
            row("upstream", &format!("{} at {}", far.source, far.endpoint));
            row("bucket", far.bucket);
        }
        row(if self.far.is_some() { "cache" } else { "data" }, &self.data.display().to_string());
        match self.sync {
            Some(sync) => row("fsync", &format!("{} here (median of {})", show_time(sync), probe::SYNCS)),
            None => row("fsync", "not measured"),
        }
        row("S3", &format!("{}   region {}", endpoint(self.address, self.tls), self.region));
        if let Some(admin) = self.admin {
            row("admin", &format!("http://{admin}/health  http://{admin}/metrics"));
        }
        if let Some(console) = &self.console {
            row("console", &format!("{console}   sign in with an access key"));
        }
        for line in self.mounts {
            row("mount", line);
        }
        match &self.keys.file {
            Some(file) => row("keys", &file.display().to_string()),
            None => row("keys", "from MARGAY_ACCESS_KEY and MARGAY_SECRET_KEY"),
        }
        if self.terminal && self.keys.file.is_some() {
            row("", &format!("access key {}   secret key {}", self.keys.access_key, self.keys.secret_key));
        }
        out.push_str("\nPaste into another terminal:\n");
        for command in self.commands() {
            writeln!(out, "  {command}").expect("a string takes all text");
        }
        out.push_str("\nCtrl-C stops it.\n");
        out
    }

    /// Create a bucket, unless it is there, put an object, list.
    fn commands(&self) -> Vec<String> {
        let mut commands = self.all_commands();
        if self.far.is_some() {
            commands.remove(0);
        }
        commands
    }

    fn all_commands(&self) -> Vec<String> {
        let endpoint = endpoint(self.address, self.tls);
        let bucket = self.far.map_or("first", |far| far.bucket);
        if self.curl {
            let insecure = if self.tls { " -k" } else { "" };
            let curl = format!(
                "curl -sS{insecure} --aws-sigv4 aws:amz:{}:s3 -u {} -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD'",
                self.region,
                self.credentials()
            );
            return vec![
                format!("{curl} -X PUT {endpoint}/{bucket}"),
                format!("{curl} -T /etc/hostname {endpoint}/{bucket}/hello.txt"),
                format!("{curl} '{endpoint}/{bucket}?list-type=2'"),
            ];
        }
        let margay = std::env::current_exe().map_or_else(|_| "margay".to_owned(), |path| path.display().to_string());
        let data = quote(&self.data.display().to_string());
        let client = format!("{} client --data {data} --endpoint {endpoint}", quote(&margay));
        vec![
            format!("{client} mb s3://{bucket}"),
            format!("{client} put /etc/hostname s3://{bucket}/hello.txt"),
            format!("{client} ls s3://{bucket}/"),
        ]
    }

    fn credentials(&self) -> String {
        match &self.keys.file {
            None => "\"$MARGAY_ACCESS_KEY:$MARGAY_SECRET_KEY\"".to_owned(),
            Some(_) if self.terminal => format!("{}:{}", self.keys.access_key, self.keys.secret_key),
            Some(file) => {
                let file = quote(&file.display().to_string());
                format!("\"$(awk -F' = ' '/^aws_/{{printf s $2; s=\":\"}}' {file})\"")
            }
        }
    }
}

/// Quotes a word for a shell.
fn quote(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if text.bytes().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn show_time(time: Duration) -> String {
    let micros = time.as_micros();
    if micros < 1000 { format!("{micros} us") } else { format!("{:.1} ms", micros as f64 / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> RootKeys {
        RootKeys {
            access_key: "ACCESS".to_owned(),
            secret_key: "SECRET".to_owned(),
            file: Some("/data dir/keys".into()),
        }
    }

    fn text(terminal: bool, curl: bool) -> String {
        let keys = keys();
        let screen = Screen {
            data: Path::new("/data dir"),
            far: None,
            mounts: &[],
            sync: Some(Duration::from_micros(2345)),
            address: "0.0.0.0:9000".parse().unwrap(),
            admin: None,
            console: None,
            tls: false,
            region: "us-east-1",
            keys: &keys,
            terminal,
            curl,
        };
        screen.text()
    }

    #[test]
    fn secrets_are_for_terminals_only() {
        assert!(text(true, true).contains("SECRET") && text(true, false).contains("SECRET"));
        assert!(!text(false, true).contains("SECRET") && !text(false, false).contains("SECRET"));
    }

    #[test]
    fn commands_reach_the_server_and_survive_the_shell() {
        let screen = text(false, true);
        assert!(screen.contains("http://127.0.0.1:9000/first"), "{screen}");
        assert!(screen.contains("'/data dir/keys'") && screen.contains("2.3 ms"), "{screen}");
        assert_eq!(quote("it's"), "'it'\\''s'");
    }
}
