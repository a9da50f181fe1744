//! Engines on PostgreSQL: on a server of this test program, or for all tests on one that `MARGAY_TEST_POSTGRES` names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_meta::Engine;
use margay_postgres::{PostgresEngine, PostgresOptions};

#[path = "../../../postgres/tests/server/mod.rs"]
mod server;

/// How to reach a server, as `PostgresOptions` takes it: then all rows of tests are there.
const POSTGRES: &str = "MARGAY_TEST_POSTGRES";

/// What tests of this process have named so far.
static SCHEMAS: AtomicU64 = AtomicU64::new(0);

fn next_schema() -> String {
    format!("v{}_{}", std::process::id(), SCHEMAS.fetch_add(1, Ordering::Relaxed))
}

/// Whether all rows of tests are on a server.
pub fn is_told() -> bool {
    std::env::var_os(POSTGRES).is_some()
}

/// An engine on the server that is told, else this one.
pub fn as_told(engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
    let Ok(config) = std::env::var(POSTGRES) else { return engine };
    let options = PostgresOptions { config, password: None, schema: next_schema(), lanes: 2, readers: 2 };
    Arc::new(PostgresEngine::open(&options).unwrap())
}

/// A server; each volume has a schema of its own.
pub struct Database {
    server: server::Server,
}

impl Database {
    /// `None` on a machine without PostgreSQL, and that is said.
    pub fn start() -> Option<Database> {
        server::Server::start().map(|server| Database { server })
    }

    /// As many processes as are asked for, each with connections of its own, over the empty rows of a new volume.
    pub fn engines<const COUNT: usize>(&self) -> [Arc<dyn Engine>; COUNT] {
        let options = self.server.options(&next_schema());
        [(); COUNT].map(|()| Arc::new(PostgresEngine::open(&options).unwrap()) as Arc<dyn Engine>)
    }
}
