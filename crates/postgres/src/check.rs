//! Whether the server is set up so that nothing that was answered gets lost.
//!
//! Why:        some settings lose commits only when a machine dies, so nobody sees them before.
//! Not here:   `synchronous_commit`, which is asked at each start too (engine); what Patroni does.

use margay_meta::EngineError;

use crate::connection::{Server, nonsense, unavailable};

/// Oldest that is tested.
const VERSION_MIN: i64 = 150_000;
/// Locks of as many connections as there may be: each call of a lane takes at most about so many.
const LOCKS_MIN: i64 = 20_000;
/// Connections of four servers.
const CONNECTIONS_MIN: i64 = 75;

/// What a setting means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Fine,
    /// Works, and may hurt.
    Weak,
    /// What was answered may get lost.
    Unsafe,
}

/// A setting of the server, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSetting {
    pub name: &'static str,
    pub value: String,
    pub verdict: Verdict,
    /// What to do; empty if it is fine.
    pub advice: &'static str,
}

type Judge = fn(&str) -> Verdict;

fn on_or(verdict: Verdict, value: &str) -> Verdict {
    if value == "on" { Verdict::Fine } else { verdict }
}

fn at_least(min: i64, verdict: Verdict, value: &str) -> Verdict {
    if value.parse().is_ok_and(|number: i64| number >= min) { Verdict::Fine } else { verdict }
}

/// Each with its question, which answers one text.
const ALL: [(&str, &str, Judge, &str); 9] = [
    (
        "server_version_num",
        "select current_setting('server_version_num')",
        |value| at_least(VERSION_MIN, Verdict::Unsafe, value),
        "PostgreSQL 15 is the oldest that is tested",
    ),
    (
        "synchronous_commit",
        "select current_setting('synchronous_commit')",
        |value| if ["on", "remote_apply"].contains(&value) { Verdict::Fine } else { Verdict::Unsafe },
        "set it to on: commits that were answered get lost at a crash (off) or a fail-over (local, remote_write)",
    ),
    (
        "fsync",
        "select current_setting('fsync')",
        |value| on_or(Verdict::Unsafe, value),
        "set it to on: a power cut loses commits, or the whole database",
    ),
    (
        "full_page_writes",
        "select current_setting('full_page_writes')",
        |value| on_or(Verdict::Unsafe, value),
        "set it to on: a page that a power cut tears cannot be repaired",
    ),
    (
        "data_checksums",
        "select current_setting('data_checksums')",
        |value| on_or(Verdict::Weak, value),
        "pg_checksums --enable, while it is stopped: damaged pages are noticed then",
    ),
    (
        "synchronous_standby_names",
        "select current_setting('synchronous_standby_names')",
        |value| if value.is_empty() { Verdict::Weak } else { Verdict::Fine },
        "no standby confirms commits: with this machine's disk, all rows since the last backup are lost",
    ),
    (
        "max_connections",
        "select current_setting('max_connections')",
        |value| at_least(CONNECTIONS_MIN, Verdict::Weak, value),
        "each server has up to 20 connections: raise it, or the fifth server does not start",
    ),
    (
        "max_locks_per_transaction * max_connections",
        "select (current_setting('max_locks_per_transaction')::bigint * current_setting('max_connections')::bigint)::text",
        |value| at_least(LOCKS_MIN, Verdict::Weak, value),
        "set max_locks_per_transaction to 256: calls with many keys wait for room in the table of locks",
    ),
    (
        "age of the oldest transaction number",
        "select max(age(datfrozenxid))::text from pg_database",
        |value| if value.parse().is_ok_and(|age: i64| age < 1_000_000_000) { Verdict::Fine } else { Verdict::Weak },
        "vacuum does not keep up: at 2 billion the database stops",
    ),
];

pub(crate) async fn settings(server: &Server) -> Result<Vec<ServerSetting>, EngineError> {
    let connection = server.connect().await?;
    let mut all = Vec::with_capacity(ALL.len());
    for (name, question, judge, advice) in ALL {
        let row = connection.client.query_one(question, &[]).await.map_err(|error| unavailable(&error))?;
        let value: String = row.try_get(0).map_err(|error| nonsense(&error.to_string()))?;
        let verdict = judge(&value);
        all.push(ServerSetting { name, value, verdict, advice: if verdict == Verdict::Fine { "" } else { advice } });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_lose_commits_are_unsafe() {
        let verdict = |name: &str, value: &str| {
            let (.., judge, _) = ALL.into_iter().find(|one| one.0 == name).unwrap();
            judge(value)
        };
        for (name, value, expected) in [
            ("synchronous_commit", "on", Verdict::Fine),
            ("synchronous_commit", "remote_write", Verdict::Unsafe),
            ("fsync", "off", Verdict::Unsafe),
            ("synchronous_standby_names", "", Verdict::Weak),
            ("synchronous_standby_names", "ANY 1 (a, b)", Verdict::Fine),
            ("server_version_num", "140011", Verdict::Unsafe),
            ("max_connections", "100", Verdict::Fine),
            ("max_connections", "?", Verdict::Weak),
        ] {
            assert_eq!(verdict(name, value), expected, "{name} = {value}");
        }
    }
}
