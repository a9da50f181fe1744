//! The audit log: who administered the server, what, from where, and with which outcome.
//!
//! Why:        a change of users, keys or quotas must have a name beside it, also months later.
//! Layout:     a line of the server's log (`margay::audit`) each, and the same as JSON in the file `audit_log` if there is one.
//! Invariants: U1 a line holds only fields that this file names: no secret, no policy document, no body.
//!             U2 the line of a work is written before its answer is sent.
//!             U3 requests without a valid signature get at most `UNKNOWN_LINES_MAX` lines in `UNKNOWN_TIME`, since anybody can
//!                send them; the counter counts all.
//! Durability: none is promised: a line is written, not synced.
//! Locking:    one lock, held while a line is written to the file.
//! Not here:   requests of S3, STS and IAM (`margay-jobs::access_log`).

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_env::{Env, OpenMode};
use margay_metrics::{Exposition, Kind};
use margay_s3::iso_time;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Lines about requests without a valid signature, in such a time.
const UNKNOWN_LINES_MAX: u32 = 20;
const UNKNOWN_TIME: Duration = Duration::from_secs(60);
/// Bytes of one value in a line.
const VALUE_BYTES_MAX: usize = 256;
/// The fields of a work's wish that a line repeats (U1).
const FIELDS: [&str; 17] = [
    "order",
    "name",
    "user",
    "group",
    "role",
    "policy",
    "access_key",
    "of",
    "account",
    "bucket",
    "key",
    "prefix",
    "path",
    "options",
    "objects_max",
    "bytes_max",
    "operation",
];

/// How a request of administration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditOutcome {
    Done,
    Failed,
    /// The caller has no right to it.
    Denied,
    /// No valid signature.
    Unknown,
}

const OUTCOMES: [(AuditOutcome, &str); 4] = [
    (AuditOutcome::Done, "done"),
    (AuditOutcome::Failed, "failed"),
    (AuditOutcome::Denied, "denied"),
    (AuditOutcome::Unknown, "unknown"),
];

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct AuditLine<'a> {
    /// An ARN, or `local` for the control socket.
    pub who: &'a str,
    /// Empty where there is none.
    pub access_key: &'a str,
    /// The address, or `socket`.
    pub from: &'a str,
    /// `admin:CreateUser`.
    pub action: &'a str,
    pub resource: &'a str,
    pub wish: &'a Value,
    pub outcome: AuditOutcome,
    /// One line; empty when it is done.
    pub error: &'a str,
    pub took: Duration,
}

#[derive(Debug)]
pub struct Audit {
    env: Env,
    file: Option<PathBuf>,
    turn: Mutex<()>,
    /// Since when lines about unknown callers are counted, and how many there were.
    unknown: Mutex<(Duration, u32)>,
    counts: [AtomicU64; OUTCOMES.len()],
    failed_lines: AtomicU64,
}

impl Audit {
    pub fn new(env: &Env, file: Option<PathBuf>) -> Audit {
        Audit {
            env: env.clone(),
            file,
            turn: Mutex::default(),
            unknown: Mutex::default(),
            counts: Default::default(),
            failed_lines: AtomicU64::new(0),
        }
    }

    /// Notes a request that ended.
    pub fn note(&self, line: &AuditLine<'_>) {
        let at = OUTCOMES.iter().position(|(outcome, _)| *outcome == line.outcome).unwrap_or_default();
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        if line.outcome == AuditOutcome::Unknown && !self.may_show_unknown() {
            return;
        }
        let (outcome, wish) = (OUTCOMES[at].1, shown(line.wish));
        let AuditLine { who, access_key, from, action, resource, error, .. } = *line;
        tracing::info!(
            target: "margay::audit", who, access_key, from, action, resource, %wish, outcome, error, "administration"
        );
        let Some(path) = &self.file else { return };
        let text = json!({
            "time": iso_time(self.env.clock.now()), "who": who, "access_key": access_key, "from": from,
            "action": action, "resource": resource, "wish": wish, "outcome": outcome, "error": error,
            "milliseconds": u64::try_from(line.took.as_millis()).unwrap_or(u64::MAX),
        });
        let _turn = self.turn.lock();
        // Opened each time: after a rename (log rotation) a new file is made.
        let append = || -> io::Result<()> {
            let file = self.env.disk.open(path, OpenMode::OpenOrCreate)?;
            file.write_all_at(format!("{text}\n").as_bytes(), file.len()?)
        };
        if let Err(error) = append() {
            tracing::error!(%error, path = %path.display(), "the audit log cannot be written");
            self.failed_lines.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn may_show_unknown(&self) -> bool {
        let now = self.env.clock.monotonic();
        let mut unknown = self.unknown.lock();
        if now.saturating_sub(unknown.0) >= UNKNOWN_TIME {
            *unknown = (now, 0);
        }
        unknown.1 = unknown.1.saturating_add(1);
        unknown.1 <= UNKNOWN_LINES_MAX
    }

    pub fn write_metrics(&self, out: &mut Exposition) {
        out.family("margay_admin_requests_total", Kind::Counter, "Requests of administration, by outcome.");
        for ((_, outcome), count) in OUTCOMES.iter().zip(&self.counts) {
            out.sample("margay_admin_requests_total", &[("outcome", outcome)], count.load(Ordering::Relaxed));
        }
        let failed = self.failed_lines.load(Ordering::Relaxed);
        out.value("margay_audit_failed_lines_total", Kind::Counter, "Lines that the audit log's file lacks.", failed);
    }
}

/// The fields of a wish that may be shown (U1).
fn shown(wish: &Value) -> Value {
    let mut shown = serde_json::Map::new();
    for name in FIELDS {
        match wish.get(name) {
            Some(Value::String(text)) => {
                shown.insert(name.to_owned(), json!(text[..text.floor_char_boundary(VALUE_BYTES_MAX)]));
            }
            Some(value @ (Value::Number(_) | Value::Bool(_))) => drop(shown.insert(name.to_owned(), value.clone())),
            _ => {}
        }
    }
    Value::Object(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_and_no_document_is_shown() {
        let wish = json!({
            "order": "create-user", "name": "ann", "access_key": "ANN", "secret_key": "SECRET", "document": "SECRET",
            "trust": "SECRET", "keys": { "name": "SECRET" }, "bytes_max": 7, "bucket": "b".repeat(1000),
        });
        let shown = shown(&wish);
        assert!(!shown.to_string().contains("SECRET"), "{shown}");
        assert_eq!((shown["name"].as_str(), shown["bytes_max"].as_u64()), (Some("ann"), Some(7)));
        assert_eq!(shown["bucket"].as_str().unwrap().len(), VALUE_BYTES_MAX);
    }

    #[test]
    fn strangers_cannot_fill_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let (env, path) = (Env::real(), folder.path().join("audit"));
        let audit = Audit::new(&env, Some(path.clone()));
        let line = AuditLine {
            who: "",
            access_key: "X",
            from: "192.0.2.1",
            action: "",
            resource: "",
            wish: &Value::Null,
            outcome: AuditOutcome::Unknown,
            error: "no",
            took: Duration::ZERO,
        };
        (0..100).for_each(|_| audit.note(&line));
        audit.note(&AuditLine { outcome: AuditOutcome::Done, ..line });
        let lines = margay_env::files::read(&env, &path, 1 << 20).unwrap();
        assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), UNKNOWN_LINES_MAX as usize + 1);
        let mut out = Exposition::default();
        audit.write_metrics(&mut out);
        assert!(out.finish().contains("margay_admin_requests_total{outcome=\"unknown\"} 100"));
    }
}
