//! Metrics of mounts on /metrics.
//!
//! Not here: counting (margay-fuse).

use margay_fuse::metrics::{BUCKETS_US, Measured};
use margay_metrics::{Exposition, Kind};

use super::{MountedSession, Mounts};

impl Mounts {
    pub fn write_metrics(&self, out: &mut Exposition) {
        let sessions = self.sessions.lock();
        let rows: Vec<(String, Vec<Measured>)> =
            sessions.iter().map(|session| (session.wish.bucket.clone(), session.mounted.metrics().read())).collect();
        out.value("margay_mounts", Kind::Gauge, "Buckets mounted by this server.", rows.len());
        write_requests(out, &rows);
        let mut each = |name, kind, about, value: &dyn Fn(&MountedSession) -> u64| {
            out.family(name, kind, about);
            for session in sessions.iter() {
                out.sample(name, &[("bucket", &session.wish.bucket)], value(session));
            }
        };
        each("margay_mount_open_files", Kind::Gauge, "Files open in a mount.", &|session| {
            session.mounted.state().open_files as u64
        });
        each(
            "margay_mount_notices_total",
            Kind::Counter,
            "Changes of S3 that a mount's kernel was told of.",
            &|session| session.mounted.metrics().notices(),
        );
        each(
            "margay_mount_known_files",
            Kind::Gauge,
            "Files of a mount that its kernel may ask for by number.",
            &|session| session.mounted.mount().known() as u64,
        );
        each(
            "margay_mount_pruned_files_total",
            Kind::Counter,
            "Files of a mount that its kernel forgot because it was asked to.",
            &|session| session.mounted.metrics().pruned(),
        );
        if let Some(first) = sessions.first() {
            let mount = first.mounted.mount();
            out.value(
                "margay_mount_late_notices_total",
                Kind::Counter,
                "Answers to S3 that did not wait until every kernel had forgotten what they changed.",
                mount.late_notices(),
            );
        }
    }
}

fn write_requests(out: &mut Exposition, rows: &[(String, Vec<Measured>)]) {
    let all = || rows.iter().flat_map(|(bucket, lines)| lines.iter().map(move |line| (bucket, line)));
    out.family("margay_mount_failed_total", Kind::Counter, "Requests of the kernel answered with an error number.");
    for (bucket, line) in all() {
        out.sample("margay_mount_failed_total", &[("bucket", bucket), ("operation", line.name)], line.failed);
    }
    out.family("margay_mount_request_seconds", Kind::Histogram, "Time in the server for a request of the kernel.");
    for (bucket, line) in all() {
        let labels = [("bucket", &**bucket), ("operation", line.name)];
        let mut below = 0;
        for (end, count) in BUCKETS_US.iter().zip(line.buckets) {
            below += count;
            let end = (*end as f64 / 1e6).to_string();
            out.sample("margay_mount_request_seconds_bucket", &[labels[0], labels[1], ("le", &end)], below);
        }
        out.sample("margay_mount_request_seconds_bucket", &[labels[0], labels[1], ("le", "+Inf")], line.count);
        out.sample("margay_mount_request_seconds_sum", &labels, line.seconds);
        out.sample("margay_mount_request_seconds_count", &labels, line.count);
    }
}
