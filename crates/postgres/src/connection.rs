//! One connection to the server, with what it warned of.
//!
//! Not here:   which statements go through it (lane, read).

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use margay_meta::EngineError;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, Config, Error, SimpleQueryMessage};

use crate::timeline::{TIMELINE, Timeline};
use crate::tls::Tls;

/// For every connection: plans that use the order of keys, and no wait for another connection's lock without an end.
/// Each statement of a commit sees what was committed before it (`commit_v2`), so the level of isolation is not the server's.
/// `synchronous_commit` is, since it says for which copies a commit waits.
const SETTINGS: &str = "-c jit=off -c plan_cache_mode=force_generic_plan -c enable_bitmapscan=off -c enable_sort=on \
                        -c enable_seqscan=off -c lock_timeout=5s -c statement_timeout=0 -c idle_in_transaction_session_timeout=0 \
                        -c idle_session_timeout=0 -c default_transaction_isolation=read\\ committed";

/// For each host that the URL names; `connect_timeout` in it counts more.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// What is sent and not acknowledged by the host; `tcp_user_timeout` in the URL counts more.
const UNANSWERED_TIME_MAX: Duration = Duration::from_secs(8);
/// Without traffic the host is asked whether it is there; `keepalives_interval` in the URL counts more.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVES_MAX: u32 = 3;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    has_warned: Arc<AtomicBool>,
}

/// How to connect to the schema of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    config: Config,
    tls: Tls,
    pub(crate) timeline: Arc<Timeline>,
}

impl Server {
    pub(crate) fn new(mut config: Config, tls: Tls, schema: &str) -> Server {
        be_impatient(&mut config);
        // A standby may lag behind what was answered.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.options(format!("{SETTINGS} -c search_path={schema}")).application_name("margay");
        Server { config, tls, timeline: Arc::default() }
    }

    pub(crate) async fn connect(&self) -> Result<Connection, EngineError> {
        let (client, mut driver) = self.config.connect(self.tls.clone()).await.map_err(|error| unavailable(&error))?;
        let has_warned = Arc::new(AtomicBool::new(false));
        let warned = Arc::clone(&has_warned);
        tokio::spawn(async move {
            // It ends with the client, or with the connection.
            while let Some(message) = poll_fn(|context| driver.poll_message(context)).await {
                match message {
                    Ok(AsyncMessage::Notice(notice)) if notice.parsed_severity() == Some(Severity::Warning) => {
                        tracing::warn!(warning = notice.message(), "PostgreSQL warns");
                        warned.store(true, Ordering::Release);
                    }
                    Ok(_) => {}
                    Err(error) => return tracing::warn!(%error, "a connection to PostgreSQL is lost"),
                }
            }
        });
        // What the server warns of at the start, such as another version of its collations, is about no statement.
        match client.simple_query(TIMELINE).await {
            Ok(told) => {
                let timeline = told.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0),
                    _ => None,
                });
                self.timeline.found(timeline.ok_or_else(|| nonsense("no timeline"))?);
            }
            // Servers that only speak PostgreSQL's language may have no log of this kind.
            Err(error) if error.as_db_error().is_some() => tracing::debug!(%error, "the server tells no timeline"),
            Err(error) => return Err(unavailable(&error)),
        }
        has_warned.store(false, Ordering::Release);
        Ok(Connection { client, has_warned })
    }
}

/// A host that is gone says nothing: without this the system would wait for it a quarter of an hour.
fn be_impatient(config: &mut Config) {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIME_MAX);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNANSWERED_TIME_MAX);
    }
    if config.get_keepalives_interval().is_none() {
        // While it works on a long commit nothing else is sent.
        config.keepalives_idle(KEEPALIVE_EVERY).keepalives_interval(KEEPALIVE_EVERY).keepalives_retries(KEEPALIVES_MAX);
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

pub(crate) fn nonsense(why: &str) -> EngineError {
    EngineError::Corrupt(format!("PostgreSQL answers what it should not: {why}"))
}
