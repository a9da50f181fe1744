//! The engine that holds a volume's rows, as the server's pages show it.
//!
//! Why:        an embedded engine has a log and a tree on this disk, PostgreSQL has neither here.
//! Not here:   what rows mean (margay-volume), how an engine opens (wiring).

use std::sync::Arc;

use margay_meta::embedded::{self, EmbeddedEngine};
use margay_meta::{Engine, EngineError};
use margay_metrics::{Exposition, Kind};
use margay_postgres::PostgresEngine;
use serde_json::{Value, json};

/// The engine of a volume.
#[derive(Clone, Debug)]
pub enum Rows {
    Embedded(Arc<EmbeddedEngine>),
    Postgres(Arc<PostgresEngine>),
}

impl Rows {
    pub fn engine(&self) -> Arc<dyn Engine> {
        match self {
            Rows::Embedded(engine) => Arc::clone(engine) as Arc<dyn Engine>,
            Rows::Postgres(engine) => Arc::clone(engine) as Arc<dyn Engine>,
        }
    }

    /// Why nothing can be written until a restart.
    pub fn fault(&self) -> Option<String> {
        match self {
            Rows::Embedded(engine) => engine.fault().map(|fault| fault.to_string()),
            Rows::Postgres(_) => None,
        }
    }

    pub fn checkpoint(&self) -> Result<(), EngineError> {
        self.engine().checkpoint()
    }

    /// Bytes of rows on this disk.
    pub fn tree_bytes(&self) -> u64 {
        match self {
            Rows::Embedded(engine) => engine.statistics().tree_file_bytes,
            Rows::Postgres(_) => 0,
        }
    }

    pub fn write_metrics(&self, out: &mut Exposition) {
        match self {
            Rows::Embedded(engine) => write_embedded(engine, out),
            Rows::Postgres(engine) => write_calls(&engine.calls(), out),
        }
    }

    /// For `margay status`.
    pub fn status(&self) -> Value {
        match self {
            Rows::Embedded(engine) => {
                let statistics = engine.statistics();
                json!({
                    "commits": statistics.commits,
                    "log_syncs": statistics.log_syncs,
                    "checkpoints": statistics.checkpoints,
                    "rows_in_memory": statistics.overlay_rows + statistics.sealed_rows,
                    "tree_bytes": statistics.tree_file_bytes,
                    "tree_damaged_pages": statistics.damaged_pages,
                    "tree_checksums": match statistics.tree_checksums {
                        true => "every page",
                        false => "not every page yet: margay scrub adds them",
                    },
                })
            }
            Rows::Postgres(engine) => {
                let commits = engine.calls().into_iter().find(|(operation, _)| *operation == "commit");
                json!({ "metadata": "PostgreSQL", "commits": commits.map_or(0, |(_, count)| count) })
            }
        }
    }
}

fn write_calls(calls: &[(&'static str, u64)], out: &mut Exposition) {
    out.family("margay_metadata_calls_total", Kind::Counter, "Calls of the metadata engine, by operation.");
    for (operation, count) in calls {
        out.sample("margay_metadata_calls_total", &[("operation", operation)], *count);
    }
}

fn write_embedded(engine: &EmbeddedEngine, out: &mut Exposition) {
    let statistics = engine.statistics();
    let seconds = statistics.checkpoint_nanoseconds as f64 / 1e9;
    let behind = engine.last_cursor().0.saturating_sub(engine.durable_cursor().0);
    let counter = Kind::Counter;
    out.value("margay_log_commits_total", counter, "Metadata commits since the volume was made.", statistics.commits);
    write_calls(&statistics.calls, out);
    out.value("margay_log_syncs_total", counter, "Syncs of the log.", statistics.log_syncs);
    out.value("margay_log_written_bytes_total", counter, "Bytes written to the log.", statistics.log_bytes_written);
    out.value("margay_log_bytes", Kind::Gauge, "Bytes in use of the log file being written.", statistics.log_bytes);
    out.value("margay_log_unsynced_commits", Kind::Gauge, "Commits that are not yet durable.", behind);
    out.value("margay_checkpoints_total", counter, "Checkpoints.", statistics.checkpoints);
    out.value("margay_checkpoint_rows_total", counter, "Rows folded into the tree file.", statistics.checkpoint_rows);
    out.family("margay_checkpoint_seconds", Kind::Histogram, "How long a checkpoint took.");
    let ends = embedded::CHECKPOINT_BUCKETS_MS.map(|end| end as f64 / 1e3);
    let buckets = ends.into_iter().zip(statistics.checkpoints_by_time);
    out.histogram("margay_checkpoint_seconds", &[], buckets, (statistics.checkpoints, seconds));
    out.value("margay_overlay_rows", Kind::Gauge, "Rows in memory since the last seal.", statistics.overlay_rows);
    out.value("margay_overlay_bytes", Kind::Gauge, "Memory of those rows.", statistics.overlay_bytes);
    out.value("margay_overlay_sealed_rows", Kind::Gauge, "Rows waiting to be folded.", statistics.sealed_rows);
    out.value("margay_tree_file_bytes", Kind::Gauge, "Bytes of the tree file.", statistics.tree_file_bytes);
    out.value(
        "margay_tree_damaged_pages",
        Kind::Gauge,
        "Pages of the tree found damaged since the start.",
        statistics.damaged_pages,
    );
}
