//! One connection to the server, with what it warned of.
//!
//! Not here:   which statements go through it (lane, read).

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use margay_env::Clock;
use margay_meta::EngineError;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, Config, Error, SimpleQueryMessage, Socket};

use crate::hosts::{self, OneHost};
use crate::timeline::{TIMELINE, Timeline};
use crate::tls::{Protected, Tls};
use crate::trust::{BEAT, Place, Trust};

/// For every connection: plans that use the order of keys, and no wait for another connection's lock without an end.
/// Each statement of a commit sees what was committed before it (`commit_v3`), so the level of isolation is not the server's.
/// `synchronous_commit` is, since it says for which copies a commit waits.
const SETTINGS: &str = "-c jit=off -c plan_cache_mode=force_generic_plan -c enable_bitmapscan=off -c enable_sort=on \
                        -c enable_seqscan=off -c lock_timeout=5s -c statement_timeout=0 -c idle_in_transaction_session_timeout=0 \
                        -c idle_session_timeout=0 -c default_transaction_isolation=read\\ committed";

/// Of a new connection, until a standby has what it shows.
const CONFIRM_TIME_MAX: Duration = Duration::from_secs(5);
const GIVE_UP_TIME_MAX: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    has_warned: Arc<AtomicBool>,
    /// Of which history the server's rows are; servers that only speak PostgreSQL's language have none.
    pub(crate) timeline: Option<String>,
    /// When it was opened (`Trust`).
    pub(crate) losses: u64,
}

/// How to connect to the schema of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// At least one.
    pub(crate) hosts: Arc<[OneHost]>,
    tls: Tls,
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) trust: Arc<Trust>,
    /// The threads of the engine. What opened a connection may be gone when something is still to be done for it.
    background: Handle,
}

impl Server {
    pub(crate) fn new(mut config: Config, tls: Tls, schema: &str, clock: Arc<dyn Clock>, background: Handle) -> Server {
        config.options(format!("{SETTINGS} -c search_path={schema}")).application_name("margay");
        let hosts: Arc<[OneHost]> = hosts::split(&config).into();
        let trust = Arc::new(Trust::new(clock, hosts.len() > 1));
        Server { hosts, tls, timeline: Arc::default(), trust, background }
    }

    /// To the server that takes writes, once it may be used.
    pub(crate) async fn connect(&self) -> Result<Connection, EngineError> {
        let place = self.trust.place()?;
        tokio::time::sleep(place.wait).await;
        self.connect_at(place).await
    }

    /// Fails instead of waiting until it may be used: for who is waited for by others.
    pub(crate) async fn connect_now(&self) -> Result<Connection, EngineError> {
        let place = self.trust.place()?;
        if !place.wait.is_zero() {
            let why = "a server of PostgreSQL has just taken over, and another one may still be read".to_owned();
            return Err(EngineError::Unavailable(why));
        }
        self.connect_at(place).await
    }

    async fn connect_at(&self, place: Place) -> Result<Connection, EngineError> {
        let connection = self.connect_to(place.host).await?;
        if connection.losses != place.losses {
            return Err(EngineError::Unavailable("PostgreSQL was lost while this process connected to it".to_owned()));
        }
        if let Some(timeline) = &connection.timeline {
            self.timeline.found(timeline);
        }
        if self.trust.is_leased() {
            // After a crash it shows what no standby has yet; this waits until one has.
            let confirmed = timeout(CONFIRM_TIME_MAX, connection.client.simple_query(BEAT)).await;
            if !matches!(confirmed, Ok(Ok(_))) {
                drop(self.background.spawn(self.give_up(&connection)));
            }
            confirmed.map_err(|_| unconfirmed())?.map_err(|error| unavailable(&error))?;
            if connection.has_warned() {
                return Err(unconfirmed());
            }
        }
        Ok(connection)
    }

    /// To a host, if it takes writes: a standby may lag behind what was answered.
    pub(crate) async fn connect_to(&self, host: usize) -> Result<Connection, EngineError> {
        let host = &self.hosts[host];
        let silent = || EngineError::Unavailable("it does not answer".to_owned());
        let unknown = |error: io::Error| EngineError::Unavailable(format!("its name has no address: {error}"));
        let places = timeout(host.connect_time_max, host.places()).await.map_err(|_| silent())?.map_err(unknown)?;
        let mut why = EngineError::Unavailable("its name has no address".to_owned());
        for place in &places {
            // One that hangs takes the connection, and says nothing.
            match timeout(host.connect_time_max, self.greet(place)).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => why = error,
                Err(_) => why = silent(),
            }
        }
        Err(why)
    }

    /// Ends the wait for a standby of a `BEAT` whose answer is not waited for any more. The server does not notice that the other end is
    /// gone, and would keep a connection for each until a standby is there. Never for a commit: it would succeed on no copy.
    pub(crate) fn give_up(&self, connection: &Connection) -> impl Future<Output = ()> + Send + use<> {
        let (cancel, tls) = (connection.client.cancel_token(), self.tls.clone());
        async move {
            match timeout(GIVE_UP_TIME_MAX, cancel.cancel_query(tls)).await {
                Ok(Ok(())) => {}
                other => tracing::debug!(?other, "a server that is given up is not told so"),
            }
        }
    }

    async fn greet(&self, place: &Config) -> Result<Connection, EngineError> {
        let lost = self.trust.losses();
        let losses = *lost.borrow();
        let (client, driver) = place.connect(self.tls.clone()).await.map_err(|error| unavailable(&error))?;
        let has_warned = Arc::new(AtomicBool::new(false));
        tokio::spawn(drive(driver, lost, losses, Arc::clone(&has_warned)));
        // What the server warns of at the start, such as another version of its collations, is about no statement.
        let timeline = match client.simple_query(TIMELINE).await {
            Ok(told) => {
                let timeline = told.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0),
                    _ => None,
                });
                let standby = || EngineError::Unavailable("it is a standby".to_owned());
                Some(timeline.ok_or_else(standby)?.to_owned())
            }
            Err(error) if error.as_db_error().is_some() => {
                tracing::debug!(%error, "the server tells no timeline");
                None
            }
            Err(error) => return Err(unavailable(&error)),
        };
        has_warned.store(false, Ordering::Release);
        Ok(Connection { client, has_warned, timeline, losses })
    }
}

fn unconfirmed() -> EngineError {
    EngineError::Unavailable("PostgreSQL confirms no commits: it hangs, or no standby is there".to_owned())
}

/// Until the client or the connection ends, or the server is lost (`Trust`): what is under way fails then.
async fn drive(
    mut driver: tokio_postgres::Connection<Socket, Protected>,
    mut lost: watch::Receiver<u64>,
    losses: u64,
    warned: Arc<AtomicBool>,
) {
    loop {
        let message = tokio::select! {
            message = poll_fn(|context| driver.poll_message(context)) => message,
            _ = lost.wait_for(|now| *now != losses) => return,
        };
        match message {
            Some(Ok(AsyncMessage::Notice(notice))) if notice.parsed_severity() == Some(Severity::Warning) => {
                tracing::warn!(warning = notice.message(), "PostgreSQL warns");
                warned.store(true, Ordering::Release);
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return tracing::warn!(%error, "a connection to PostgreSQL is lost"),
            None => return,
        }
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
