//! The running server, as its pages and commands see it.
//!
//! Not here: storage (`wiring`), sockets (margay-listener).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use margay_accounts::identities::Identities;
use margay_env::Env;
use margay_jobs::access_log::AccessLog;
use margay_jobs::lifecycle::Expiry;
use margay_jobs::notify::Notifier;
use margay_jobs::reclaimer::Reclaimer;
use margay_jobs::session_keeper::SessionKeeper;
use margay_listener::Traffic;
use margay_listener::tls::Tls;
use margay_metrics::Requests;
use margay_metrics::{Exposition, Kind};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::audit::Audit;
use crate::buckets;
use crate::checks::Checks;
use crate::mounts::{MountWish, Mounts};
use crate::process;
use crate::screen;
use crate::spans::Spans;
use crate::trace::Trace;
use crate::watching::{self, Watched};
use crate::wiring::{self, Storage};

/// State that pages and commands read; shared by all listeners.
#[derive(Debug)]
pub struct Server {
    pub env: Env,
    pub data: PathBuf,
    pub storage: Arc<Storage>,
    pub reclaimer: Reclaimer,
    pub session: SessionKeeper,
    pub expiry: Expiry,
    pub notifier: Notifier,
    pub access_log: Arc<AccessLog>,
    pub mounts: Mounts,
    pub identities: Arc<Identities>,
    /// Read rate of a scrub, in bytes per second.
    pub scrub_rate_max: u64,
    pub requests: Arc<Requests>,
    pub traffic: Arc<Traffic>,
    pub audit: Audit,
    pub trace: Arc<Trace>,
    pub watched: Watched,
    pub checks: Arc<Checks>,
    pub spans: Arc<Spans>,
    /// Its name in `aws:RequestedRegion`.
    pub region: String,
    /// The certificate of the S3 address.
    pub tls: Option<Tls>,
    /// Start of the server, on the monotonic clock.
    pub begun: Duration,
    /// Addresses of the S3 door and the admin port, once they listen.
    pub addresses: Mutex<(Option<SocketAddr>, Option<SocketAddr>)>,
}

impl Server {
    /// `Err` says what cannot be read or written.
    pub fn health(&self) -> Result<(), String> {
        self.storage.health()
    }

    /// `Err` says why a request would wait or fail now, though a restart may not help.
    pub fn ready(&self) -> Result<(), String> {
        self.health()?;
        self.session.ready()
    }

    /// Stops the background jobs and prevents new ones.
    pub fn stop_background(&self) {
        // They have no end of their own, and the doors wait for what runs.
        self.trace.close();
        self.storage.stop_works();
        self.reclaimer.stop();
        self.expiry.stop();
        self.notifier.stop();
    }

    /// Mounts a bucket, which is made if it is absent and `creates`. The error is one line.
    pub async fn mount(self: &Arc<Server>, wish: MountWish, creates: bool) -> Result<(), String> {
        let (volume, bucket) = (&self.storage.volume, &wish.bucket);
        match volume.head_bucket(bucket).await {
            Err(margay_volume::Error::NoSuchBucket) if !creates => {
                return Err(format!(
                    "there is no bucket {bucket}: `margay bucket ls` shows all of them, and with --create (-o create) mounting makes it"
                ));
            }
            Err(margay_volume::Error::NoSuchBucket) => {
                buckets::make(volume, bucket).await.map_err(|failure| failure.message)?;
            }
            // What else is wrong the mount will tell.
            _ => {}
        }
        let server = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || server.mounts.mount(&wish));
        work.await.map_err(|error| format!("mounting broke off: {error}"))?
    }

    pub async fn metrics(&self) -> String {
        self.watched.look(&self.env, &self.storage.volume).await;
        let mut out = Exposition::default();
        write_head(self.health().is_ok(), self.ready().is_ok(), self.uptime(), &mut out);
        self.requests.write(&mut out);
        self.traffic.write(&mut out);
        self.storage.write_metrics(&mut out);
        write_reclaim(&self.reclaimer, &self.storage, &mut out);
        self.expiry.write_metrics(&mut out);
        self.notifier.write_metrics(&mut out);
        self.access_log.write_metrics(&mut out);
        self.mounts.write_metrics(&mut out);
        self.audit.write_metrics(&mut out);
        self.watched.write(&mut out);
        self.checks.write_metrics(&mut out);
        self.spans.write_metrics(&mut out);
        watching::write_space(&self.env, &self.data, &mut out);
        watching::write_certificate(self.tls.as_ref(), &mut out);
        process::write(&self.env, self.uptime(), &mut out);
        out.finish()
    }

    /// The content of `margay status`.
    pub fn status(&self) -> Value {
        let (address, admin) = *self.addresses.lock();
        let memory = process::memory(&self.env).map(|memory| memory.resident_bytes).ok();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "process": std::process::id(),
            "data": self.data.display().to_string(),
            "address": address.map(|address| address.to_string()),
            "endpoint": address.map(|address| screen::endpoint(address, self.tls.is_some())),
            "admin_address": admin.map(|address| address.to_string()),
            "health": wiring::told(self.health()),
            "ready": wiring::told(self.ready()),
            "uptime_seconds": self.uptime().as_secs(),
            "connections": self.traffic.open(),
            "requests_running": self.traffic.running(),
            "requests_answered": self.requests.answered(),
            "resident_bytes": memory,
            "space": self.env.disk.space(&self.data).ok().map(|space| json!({
                "free_bytes": space.free_bytes, "total_bytes": space.total_bytes,
            })),
            "certificate_ends_seconds": self.tls.as_ref().and_then(Tls::ends_at),
            "clock": self.expiry.clock.status(),
            "mounts": self.mounts.status(),
            "storage": self.storage.status(),
            "quarantine": self.reclaimer.quarantine_status(&self.storage.segments),
            "check": self.reclaimer.check_status(),
            "checks": self.checks.status(),
        })
    }

    fn uptime(&self) -> Duration {
        self.env.clock.monotonic().saturating_sub(self.begun)
    }
}

/// Which program this is, whether it works, and for how long.
pub(crate) fn write_head(is_healthy: bool, is_ready: bool, uptime: Duration, out: &mut Exposition) {
    out.family("margay_build_info", Kind::Gauge, "Always 1; the label is the version.");
    out.sample("margay_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    out.value("margay_healthy", Kind::Gauge, "1 while everything can be read and written.", u8::from(is_healthy));
    let what = "1 while requests are served: healthy, and the metadata answers.";
    out.value("margay_ready", Kind::Gauge, what, u8::from(is_ready));
    out.value("margay_uptime_seconds", Kind::Gauge, "Since the server began.", uptime.as_secs());
}

/// What reclaim and checks of a store have done.
pub(crate) fn write_reclaim(reclaimer: &Reclaimer, storage: &Storage, out: &mut Exposition) {
    let passes = reclaimer.passes();
    let total = passes.total;
    for (name, help, value) in [
        ("margay_reclaim_passes_total", "Passes that looked for dead space.", passes.count),
        ("margay_reclaim_failed_total", "Passes that failed.", passes.failed),
        ("margay_reclaim_removed_segments_total", "Segment files removed.", total.removed_segments),
        ("margay_reclaim_removed_bytes_total", "Bytes of the device that they occupied.", total.removed_bytes),
        ("margay_reclaim_moved_bytes_total", "Live bytes moved to free their segment.", total.moved_bytes),
        ("margay_reclaim_punched_bytes_total", "Bytes given back inside segments.", total.punched_bytes),
        ("margay_reclaim_damaged_runs_total", "Runs that could not be read.", total.damaged_runs),
        ("margay_quarantine_entered_total", "Segments set aside as dead.", total.set_aside_segments),
        (
            "margay_quarantine_disputed_total",
            "Segments that counters called dead and rows or readers still named: any is a wrong counter.",
            storage.segments.taken_back(),
        ),
    ] {
        out.value(name, Kind::Counter, help, value);
    }
    let held = storage.segments.quarantined();
    out.value("margay_quarantine_segments", Kind::Gauge, "Segments in quarantine.", held.len() as u64);
    let bytes: u64 = held.iter().map(|held| held.used_bytes).sum();
    out.value("margay_quarantine_bytes", Kind::Gauge, "Bytes of the device that they occupy.", bytes);
    if let Some(check) = reclaimer.last_check() {
        let findings = check.report.findings.values().sum::<u64>();
        out.value("margay_check_findings", Kind::Gauge, "What the last check found wrong.", findings);
        let at = check.at.seconds().max(0) as u64;
        out.value("margay_check_timestamp_seconds", Kind::Gauge, "When the last check ended.", at);
    }
}
