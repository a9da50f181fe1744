//! The seed's own measurement: `time s3cmd ls s3://bucket/prefix/ > /dev/null`.
//!
//! Why:        people see the whole command, and s3cmd's own work bounds how fast it can look.
//! Invariants: keys reach s3cmd by a file that only this user can read, removed afterwards.
//! Not here:   installing s3cmd; without it (or without bash, whose `time` reads the CPU times) the part is left out.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde::Serialize;
use tempfile::NamedTempFile;

use crate::error::BenchError;
use crate::ls::pages::Prefix;
use crate::scratch::Scratch;
use crate::summary::median;
use crate::target::Target;

/// One run, in seconds, as the shell's `time` tells them.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub real_s: f64,
    pub user_s: f64,
    pub sys_s: f64,
}

/// The runs for one prefix.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub keys: u64,
    pub runs: Vec<Run>,
    pub median_real_s: f64,
    /// Median of user and system time together: what s3cmd itself works.
    pub median_cpu_s: f64,
}

/// An s3cmd that is ready to use.
#[derive(Debug)]
pub(super) struct S3cmd {
    config: NamedTempFile,
    pub version: String,
}

fn config(target: &Target, ca: Option<&str>) -> String {
    let authority = &target.authority;
    let secure = if target.tls.is_some() { "True" } else { "False" };
    let pair = target.credentials.fixed_pair();
    let (access_key, secret_key) = pair.map_or(("", ""), |pair| (&pair.access_key, &pair.secret_key));
    let ca = ca.map(|path| format!("ca_certs_file = {path}\n")).unwrap_or_default();
    format!(
        "[default]\naccess_key = {}\nsecret_key = {}\nhost_base = {authority}\nhost_bucket = {authority}\n\
         bucket_location = {}\nuse_https = {secure}\nsignature_v2 = False\n{ca}",
        access_key, secret_key, target.region
    )
}

impl S3cmd {
    /// None when this machine has no s3cmd or no bash.
    pub(super) fn find(target: &Target, ca: Option<&str>) -> Result<Option<S3cmd>, BenchError> {
        let Ok(version) = Command::new("s3cmd").arg("--version").output() else { return Ok(None) };
        if !version.status.success() || Command::new("bash").arg("-c").arg(":").status().is_err() {
            return Ok(None);
        }
        let failed = |source| BenchError::File { path: "configuration file for s3cmd".to_owned(), source };
        let mut file = NamedTempFile::new().map_err(failed)?;
        file.write_all(config(target, ca).as_bytes()).map_err(failed)?;
        file.flush().map_err(failed)?;
        let version = String::from_utf8_lossy(&version.stdout).trim().replace("version ", "");
        Ok(Some(S3cmd { config: file, version }))
    }

    /// Times `runs` listings of a prefix after one that is checked and not timed.
    pub(super) fn measure(&self, scratch: &Scratch, prefix: &Prefix, runs: usize) -> Result<Row, BenchError> {
        let url = format!("s3://{}/{}", scratch.bucket, prefix.name);
        let lines = self.list(&url)?;
        if lines as u64 != prefix.keys {
            return Err(wrong(&url, format!("{lines} lines for {} keys", prefix.keys)));
        }
        let mut measured = Vec::with_capacity(runs);
        for _ in 0..runs {
            scratch.stop().check()?;
            measured.push(self.time(&url)?);
        }
        Ok(Row {
            keys: prefix.keys,
            median_real_s: median(measured.iter().map(|run| run.real_s)),
            median_cpu_s: median(measured.iter().map(|run| run.user_s + run.sys_s)),
            runs: measured,
        })
    }

    fn list(&self, url: &str) -> Result<usize, BenchError> {
        let output = Command::new("s3cmd")
            .arg("-c")
            .arg(self.config.path())
            .args(["ls", url])
            .stdin(Stdio::null())
            .output()
            .map_err(|source| BenchError::File { path: "s3cmd".to_owned(), source })?;
        if !output.status.success() {
            return Err(wrong(url, String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(output.stdout.iter().filter(|&&byte| byte == b'\n').count())
    }

    fn time(&self, url: &str) -> Result<Run, BenchError> {
        let output = Command::new("bash")
            .args(["-c", "TIMEFORMAT='%3R %3U %3S'; time s3cmd -c \"$1\" ls \"$2\" >/dev/null", "time"])
            .arg(self.config.path())
            .arg(url)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| BenchError::File { path: "bash".to_owned(), source })?;
        let said = String::from_utf8_lossy(&output.stderr);
        let numbers: Vec<f64> =
            said.lines().next_back().unwrap_or_default().split(' ').filter_map(|word| word.parse().ok()).collect();
        match (output.status.success(), numbers.as_slice()) {
            (true, &[real_s, user_s, sys_s]) => Ok(Run { real_s, user_s, sys_s }),
            _ => Err(wrong(url, said.trim().to_owned())),
        }
    }
}

fn wrong(url: &str, reason: String) -> BenchError {
    BenchError::Nonsense { request: format!("s3cmd ls {url}"), reason }
}
