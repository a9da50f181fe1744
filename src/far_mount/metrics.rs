//! Metrics of a far mount.
//!
//! Not here:   counting (the meter of margay-client, margay-upstream).

use margay_metrics::{Exposition, Kind};

use super::running::Running;
use crate::process;

impl Running {
    pub(super) fn metrics(&self) -> String {
        let mut out = Exposition::default();
        out.family("margay_build_info", Kind::Gauge, "Always 1; the label is the version.");
        out.sample("margay_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        out.value("margay_uptime_seconds", Kind::Gauge, "Since the mount began.", self.uptime().as_secs());
        self.write_waiting(&mut out);
        self.write_requests(&mut out);
        if self.served.is_some() {
            self.seen.write_metrics(&mut out);
        }
        self.mounts.write_metrics(&mut out);
        self.storage.write_metrics(&mut out);
        process::write(&self.env, self.uptime(), &mut out);
        out.finish()
    }

    fn write_waiting(&self, out: &mut Exposition) {
        let backlog = self.far.backlog();
        let oldest = backlog.oldest.unwrap_or_default().as_secs();
        for (name, help, value) in [
            (
                "margay_far_waiting_files",
                "Files and directories that the bucket does not have as they are here.",
                backlog.files,
            ),
            ("margay_far_waiting_bytes", "Bytes of theirs that are to be sent.", backlog.bytes),
            ("margay_far_in_progress_files", "Those that are being sent.", backlog.in_progress),
            (
                "margay_far_oldest_seconds",
                "Age of the oldest change that the bucket lacks; at most that of the mount.",
                oldest,
            ),
            (
                "margay_far_failing_files",
                "Those that the bucket did not take, and that are tried again.",
                backlog.failing,
            ),
        ] {
            out.value(name, Kind::Gauge, help, value);
        }
        out.value(
            "margay_far_conflicts_total",
            Kind::Counter,
            "Files that were changed here and in the bucket: both contents are kept.",
            backlog.conflicts.len(),
        );
        out.family("margay_far_failures", Kind::Gauge, "Failing files by the code of the reason.");
        for (code, count) in &backlog.codes {
            out.sample("margay_far_failures", &[("code", code)], count);
        }
    }

    fn write_requests(&self, out: &mut Exposition) {
        let meter = self.far.meter();
        let (metered, contact) = (meter.read(), meter.contact());
        out.family("margay_far_requests_total", Kind::Counter, "Requests to the bucket, each try, by the answer.");
        for ((request, outcome), count) in &metered.requests {
            out.sample("margay_far_requests_total", &[("request", request), ("outcome", outcome)], count);
        }
        for (name, help, value) in [
            ("margay_far_retries_total", "Requests that were sent again.", metered.retries),
            ("margay_far_sent_bytes_total", "Bytes of requests that succeeded.", metered.sent_bytes),
            ("margay_far_fetched_bytes_total", "Bytes of answers.", metered.fetched_bytes),
        ] {
            out.value(name, Kind::Counter, help, value);
        }
        let flow = self.far.flow();
        for (name, help, value) in [
            ("margay_far_requests_in_progress", "Requests to the bucket in progress.", flow.in_progress),
            (
                "margay_far_requests_limit",
                "How many may be in progress: fewer while the store answers that it is too busy.",
                flow.limit,
            ),
        ] {
            out.value(name, Kind::Gauge, help, value);
        }
        let silent = contact.silent.map_or(0, |silence| silence.since.as_secs());
        out.value(
            "margay_far_silent_seconds",
            Kind::Gauge,
            "Since when requests are not answered; 0: they are.",
            silent,
        );
    }
}
