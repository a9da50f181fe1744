//! Engines on a PostgreSQL server of this test program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_meta::Engine;
use margay_postgres::PostgresEngine;

#[path = "../../../postgres/tests/server/mod.rs"]
mod server;

/// A server; each volume has a schema of its own.
pub struct Database {
    server: server::Server,
    schemas: AtomicU64,
}

impl Database {
    /// `None` on a machine without PostgreSQL, and that is said.
    pub fn start() -> Option<Database> {
        server::Server::start().map(|server| Database { server, schemas: AtomicU64::new(0) })
    }

    /// As many processes as are asked for, each with connections of its own, over the empty rows of a new volume.
    pub fn engines<const COUNT: usize>(&self) -> [Arc<dyn Engine>; COUNT] {
        let schema = format!("v{}", self.schemas.fetch_add(1, Ordering::Relaxed));
        let options = self.server.options(&schema);
        [(); COUNT].map(|()| Arc::new(PostgresEngine::open(&options).unwrap()) as Arc<dyn Engine>)
    }
}
