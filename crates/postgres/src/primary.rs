//! Finds the server that takes writes, and asks it each second whether it still does.
//!
//! Why:        a server that hangs answers nothing and refuses nothing; one whose place another server has taken may not know it. Who waits
//!             for either waits without an end.
//! Invariants: B1 of several that take writes the one with the newest history counts, and none with an older one than was known.
//!             B2 a server counts, and others connect to it, once it has confirmed a commit: until then there is one connection to it.
//!             B3 a server that has not confirmed a commit for `STILL_MAX` is lost: all connections to it end, and it is looked for anew.
//! Not here:   what the answers are worth (trust), the connections of calls (connection).

use std::time::Duration;

use margay_meta::EngineError;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connection::{Connection, Server, nonsense, said};
use crate::trust::BEAT;

/// Where nothing depends on it.
const LOOK: &str = "select 1";
const BEAT_EVERY: Duration = Duration::from_millis(500);
/// How often it is looked whether the connection is there, between two beats.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// B3.
const STILL_MAX: Duration = Duration::from_secs(5);
/// With one host nobody else can take its place, so a disk that is slow for a moment may be.
const ALONE_STILL_MAX: Duration = Duration::from_secs(15);
/// The others are waited for so long when one was found that takes writes.
const GRACE: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Who may not ask waits, and so does who gets no answer.
const TOLD_TIME_MAX: Duration = Duration::from_secs(3);
/// Whether the history that is the server's now began a moment ago.
const MAY_BE_NEW: &str = "select timeline_id > 1 and clock_timestamp() - checkpoint_time < interval '20 s' or timeline_id <> \
                          ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int from pg_control_checkpoint()";

/// One that takes writes.
pub(crate) struct Found {
    host: usize,
    connection: Connection,
}

type Asked = JoinSet<(usize, Result<Connection, EngineError>)>;

fn ask(server: &Server, asked: &mut Asked, host: usize, pause: Duration) {
    let server = server.clone();
    asked.spawn(async move {
        tokio::time::sleep(pause).await;
        (host, server.connect_to(host).await)
    });
}

/// Until one is found, or all have said that they take no writes, or nothing.
pub(crate) async fn find(server: &Server) -> Result<Found, EngineError> {
    let mut asked = JoinSet::new();
    (0..server.hosts.len()).for_each(|host| ask(server, &mut asked, host, Duration::ZERO));
    let known = server.timeline.known();
    let mut whys: Vec<Option<String>> = vec![None; server.hosts.len()];
    let mut best: Option<Found> = None;
    loop {
        // That the standbys answer sooner says nothing about the primary; a host that is gone is waited for only as long as no other is there.
        let next = if best.is_none() {
            asked.join_next().await
        } else {
            timeout(GRACE, asked.join_next()).await.unwrap_or_default()
        };
        let (host, why) = match next {
            None => break,
            Some(Err(error)) => return Err(nonsense(&error.to_string())),
            Some(Ok((host, Err(error)))) => (host, error.to_string()),
            Some(Ok((host, Ok(connection)))) => {
                let timeline = connection.timeline.as_ref();
                if server.trust.is_leased() && timeline < known.as_ref() {
                    (host, "it has an older history than the server before".to_owned())
                } else {
                    if best.as_ref().is_none_or(|best| best.connection.timeline.as_ref() < timeline) {
                        best = Some(Found { host, connection });
                    }
                    continue;
                }
            }
        };
        whys[host] = Some(format!("{}: {why}", server.hosts[host].name));
        if best.is_none() {
            if whys.iter().all(Option::is_some) {
                break;
            }
            // A standby may become the primary while one that is gone is still waited for.
            ask(server, &mut asked, host, LOOK_AGAIN);
        }
    }
    best.ok_or_else(|| {
        let whys: Vec<String> = whys.into_iter().flatten().collect();
        EngineError::Unavailable(format!("no server of PostgreSQL takes writes: {}", whys.join("; ")))
    })
}

/// Takes it for the one that counts.
pub(crate) async fn begin(server: &Server, found: &Found) -> Result<(), EngineError> {
    let (known, timeline) = (server.timeline.known(), &found.connection.timeline);
    let may_be_new = if known.is_some() {
        known != *timeline
    } else {
        let told = timeout(TOLD_TIME_MAX, found.connection.client.query_one(MAY_BE_NEW, &[]));
        server.trust.is_leased() && !matches!(told.await.map(|told| told.and_then(|row| row.try_get(0))), Ok(Ok(false)))
    };
    if may_be_new && server.hosts.len() > 1 {
        tracing::info!(host = server.hosts[found.host].name, timeline, "PostgreSQL: this server takes writes");
    }
    server.trust.found(found.host, may_be_new);
    let begun = beat(server, &found.connection).await;
    if begun.is_err() {
        // Before the process may end for it.
        server.give_up(&found.connection).await;
    }
    begun
}

/// A commit, confirmed.
async fn beat(server: &Server, connection: &Connection) -> Result<(), EngineError> {
    let began = server.trust.now();
    let (statement, time_max) = if server.trust.is_leased() { (BEAT, STILL_MAX) } else { (LOOK, ALONE_STILL_MAX) };
    let why = match timeout(time_max, connection.client.simple_query(statement)).await {
        Ok(Ok(_)) if !connection.has_warned() => {
            server.trust.confirm(began);
            return Ok(());
        }
        Ok(Ok(_)) => "PostgreSQL gave up waiting for a standby".to_owned(),
        Ok(Err(error)) => said(&error),
        Err(_) => {
            format!("PostgreSQL confirmed no commit for {} s: it hangs, or no standby is there", time_max.as_secs())
        }
    };
    Err(EngineError::Unavailable(why))
}

/// Until the engine ends.
pub(crate) async fn keep(server: Server, mut found: Found) {
    loop {
        let error = loop {
            if let Err(error) = beat(&server, &found.connection).await {
                break error;
            }
            let mut left = BEAT_EVERY;
            while !left.is_zero() && !found.connection.client.is_closed() {
                tokio::time::sleep(LOOK_EVERY).await;
                left = left.saturating_sub(LOOK_EVERY);
            }
        };
        let host = &server.hosts[found.host].name;
        tracing::warn!(host, %error, "PostgreSQL is lost: it is looked for");
        server.trust.lose(&error.to_string());
        drop(tokio::spawn(server.give_up(&found.connection)));
        drop(found);
        found = look(&server).await;
    }
}

/// Until there is one.
async fn look(server: &Server) -> Found {
    loop {
        match find(server).await {
            Ok(found) => match begin(server, &found).await {
                Ok(()) => return found,
                Err(error) => server.trust.lose(&error.to_string()),
            },
            Err(error) => server.trust.miss(&error.to_string()),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
