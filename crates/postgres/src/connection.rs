//! One connection to the server, with what it warned of.
//!
//! Not here:   which statements go through it (lane, read).

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_meta::EngineError;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls};

/// For every connection: plans that use the order of keys, and no wait for another connection's lock without an end.
/// `synchronous_commit` is the server's, since it says for which copies a commit waits.
const SETTINGS: &str = "-c jit=off -c plan_cache_mode=force_generic_plan -c enable_bitmapscan=off -c enable_sort=on \
                        -c enable_seqscan=off -c lock_timeout=5s -c statement_timeout=0 -c idle_in_transaction_session_timeout=0";

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    has_warned: Arc<AtomicBool>,
}

/// How to connect to the schema of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    config: Config,
}

impl Server {
    pub(crate) fn new(mut config: Config, schema: &str) -> Server {
        config.options(format!("{SETTINGS} -c search_path={schema}")).application_name("margay");
        Server { config }
    }

    pub(crate) async fn connect(&self) -> Result<Connection, EngineError> {
        let (client, mut driver) = self.config.connect(NoTls).await.map_err(|error| unavailable(&error))?;
        let has_warned = Arc::new(AtomicBool::new(false));
        let warned = Arc::clone(&has_warned);
        tokio::spawn(async move {
            // It ends with the client, or with the connection.
            while let Some(message) = poll_fn(|context| driver.poll_message(context)).await {
                match message {
                    Ok(AsyncMessage::Notice(notice)) if notice.severity() == "WARNING" => {
                        tracing::warn!(warning = notice.message(), "PostgreSQL warns");
                        warned.store(true, Ordering::Release);
                    }
                    Ok(_) => {}
                    Err(error) => return tracing::warn!(%error, "a connection to PostgreSQL is lost"),
                }
            }
        });
        // What the server warns of at the start, such as another version of its collations, is about no statement.
        client.simple_query("").await.map_err(|error| unavailable(&error))?;
        has_warned.store(false, Ordering::Release);
        Ok(Connection { client, has_warned })
    }
}

impl Connection {
    /// Since it was open. A warning arrives before the answer that it is about.
    pub(crate) fn has_warned(&self) -> bool {
        self.has_warned.load(Ordering::Acquire)
    }
}

/// Nothing was done, as far as a read or a new connection is concerned.
pub(crate) fn unavailable(error: &Error) -> EngineError {
    EngineError::Unavailable(said(error))
}

/// What the server said, or what became of the connection.
pub(crate) fn said(error: &Error) -> String {
    match error.as_db_error() {
        Some(told) => format!("PostgreSQL: {} ({})", told.message(), told.code().code()),
        None => match std::error::Error::source(error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    }
}
