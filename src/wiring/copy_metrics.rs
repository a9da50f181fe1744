//! The metrics of copies at other servers and in pools.
//!
//! Not here:   counting (margay-cluster), other metrics of the storage (wiring).

use margay_cluster::CopyStatistics;
use margay_metrics::{Exposition, Kind};

pub(super) fn write(copies: &CopyStatistics, out: &mut Exposition) {
    let (gauge, counter) = (Kind::Gauge, Kind::Counter);
    out.value("margay_copies_wanted", gauge, "Stores that each segment is to be at.", copies.copies);
    out.value("margay_copies_stores", gauge, "Other stores that copies can be sent to now.", copies.stores);
    out.value(
        "margay_copies_incomplete_segments",
        gauge,
        "Own segments that are written now, or are at too few stores.",
        copies.incomplete_segments,
    );
    out.value("margay_copies_sent_bytes_total", counter, "Bytes sent to other stores.", copies.sent_bytes);
    out.value("margay_copies_failed_total", counter, "Batches that a store did not take.", copies.failed_sends);
    out.value(
        "margay_copies_repaired_total",
        counter,
        "Segments copied again because a copy was missing.",
        copies.repaired_segments,
    );
    out.value("margay_copies_pooled_total", counter, "Segments put into pools.", copies.pooled_segments);
    out.value("margay_copies_removed_total", counter, "Copies removed that no row named.", copies.removed_copies);
    out.value("margay_copies_trimmed_total", counter, "Copies removed that were one too many.", copies.trimmed_copies);
    out.value(
        "margay_copies_given_up_total",
        counter,
        "Segments of detached stores given up because nothing refers to them.",
        copies.given_up_segments,
    );
    out.value(
        "margay_copies_scrubbed_bytes_total",
        counter,
        "Bytes of copies at other stores that were read to find damage.",
        copies.scrubbed_bytes,
    );
    out.value(
        "margay_copies_damaged_total",
        counter,
        "Copies that were found damaged, and made again.",
        copies.damaged_copies,
    );
    out.value(
        "margay_copies_refused_writes_total",
        counter,
        "Writes refused because too few stores had them.",
        copies.refused_writes,
    );
}
