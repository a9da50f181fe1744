//! Patroni's REST interface, as far as operators need it here.
//!
//! Invariants: R1 what it answers is checked: a member without a name, or an answer that is no JSON, is an error.
//! Not here:   what is asked of it (failover).

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// It looks at its store for a moment.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// A switch-over is answered when it is done.
const ORDER_TIME_MAX: Duration = Duration::from_secs(60);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Unless the URL says another one.
const PORT: &str = "8008";
const USER: &str = "margay";

/// A server of the cluster, as Patroni sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) role: String,
    pub(super) state: String,
    pub(super) timeline: Option<u64>,
    /// Bytes of the log that it lacks, if that is known.
    pub(super) lag: Option<u64>,
    /// Of its Patroni, if that is told.
    pub(super) api_url: Option<String>,
}

impl Member {
    pub(super) fn is_leader(&self) -> bool {
        ["leader", "master", "standby_leader"].contains(&self.role.as_str())
    }

    /// It has all commits that were answered, or is one of some of which each commit is on enough.
    pub(super) fn is_synchronous(&self) -> bool {
        self.role == "sync_standby" || self.is_of_quorum()
    }

    /// It may lack commits that were answered, since others have confirmed them.
    pub(super) fn is_of_quorum(&self) -> bool {
        self.role == "quorum_standby"
    }

    pub(super) fn runs(&self) -> bool {
        ["running", "streaming"].contains(&self.state.as_str())
    }
}

pub(super) fn members_of(answer: &str) -> Result<Vec<Member>, String> {
    let nonsense = |why: &str| format!("Patroni answers what it should not: {why}");
    let value: Value = serde_json::from_str(answer).map_err(|error| nonsense(&error.to_string()))?;
    let members = value["members"].as_array().ok_or_else(|| nonsense("no members"))?;
    members
        .iter()
        .map(|member| {
            let text = |name: &str| member[name].as_str().map(str::to_owned).ok_or_else(|| nonsense(name));
            Ok(Member {
                name: text("name")?,
                role: text("role")?,
                state: text("state")?,
                timeline: member["timeline"].as_u64(),
                lag: member["lag"].as_u64(),
                api_url: member["api_url"].as_str().map(str::to_owned),
            })
        })
        .collect()
}

/// Those of the cluster, any of which may be asked.
#[derive(Debug)]
pub(super) struct Patroni {
    /// Each as `HOST:PORT`.
    places: Vec<String>,
    /// For orders.
    password: Option<String>,
}

impl Patroni {
    pub(super) fn new(urls: &[String], password: Option<String>) -> Result<Patroni, String> {
        let places: Result<Vec<String>, String> = urls.iter().map(|url| place_of(url)).collect();
        Ok(Patroni { places: places?, password })
    }

    /// Of the first that answers.
    pub(super) fn members(&self) -> Result<Vec<Member>, String> {
        let (status, answer) = self.ask("GET", "/cluster", None)?;
        if status == 200 { members_of(&answer) } else { Err(format!("Patroni answers {status} {}", answer.trim())) }
    }

    /// Gives an order, once.
    pub(super) fn order(&self, path: &str, order: &Value) -> Result<(u16, String), String> {
        self.ask("POST", path, Some(order))
    }

    /// Whether PostgreSQL of a primary answers its own Patroni now; what the others know of it may be some seconds old.
    pub(super) fn answers(&self, member: &Member) -> bool {
        let url = member.api_url.as_deref().map(|url| url.trim_end_matches("/patroni"));
        let Some(Ok(place)) = url.map(place_of) else { return false };
        self.ask_one(&place, "GET", "/primary", None).is_ok_and(|(status, _)| status == 200)
    }

    fn ask(&self, method: &str, path: &str, order: Option<&Value>) -> Result<(u16, String), String> {
        let mut whys = Vec::new();
        for place in &self.places {
            match self.ask_one(place, method, path, order) {
                Ok(answer) => return Ok(answer),
                // Another one is asked only if this one was not reached: an order is given once.
                Err(Failed { why, was_sent: true }) if order.is_some() => {
                    return Err(format!("{place}: {why}; whether it was carried out is not known"));
                }
                Err(Failed { why, .. }) => whys.push(format!("{place}: {why}")),
            }
        }
        Err(format!("no Patroni answers: {}", whys.join("; ")))
    }

    fn ask_one(&self, place: &str, method: &str, path: &str, order: Option<&Value>) -> Result<(u16, String), Failed> {
        let failed = |was_sent| move |error: std::io::Error| Failed { why: error.to_string(), was_sent };
        let address = place.to_socket_addrs().map_err(failed(false))?.next();
        let address = address.ok_or_else(|| Failed { why: "the name has no address".to_owned(), was_sent: false })?;
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX).map_err(failed(false))?;
        let patience = if order.is_some() { ORDER_TIME_MAX } else { ANSWER_TIME_MAX };
        stream.set_read_timeout(Some(patience)).map_err(failed(false))?;
        let body = order.map(Value::to_string).unwrap_or_default();
        let who = self.password.as_ref().map_or_else(String::new, |password| {
            format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{USER}:{password}")))
        });
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {place}\r\n{who}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).map_err(failed(true))?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(failed(true))?;
        answer_of(&answer).ok_or_else(|| Failed { why: "it does not speak HTTP".to_owned(), was_sent: true })
    }
}

struct Failed {
    why: String,
    was_sent: bool,
}

/// Status and body.
fn answer_of(bytes: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

fn place_of(url: &str) -> Result<String, String> {
    let wrong = || format!("{url:?} is not where Patroni answers: http://HOST:{PORT}");
    let place = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    if place.is_empty() || place.contains(['/', '@', ' ']) {
        return Err(wrong());
    }
    Ok(if place.contains(':') { place.to_owned() } else { format!("{place}:{PORT}") })
}

/// The order to make `candidate` the primary in place of `leader`, or one that Patroni chooses.
pub(super) fn switch(leader: &str, candidate: Option<&str>) -> Value {
    match candidate {
        Some(candidate) => json!({"leader": leader, "candidate": candidate}),
        None => json!({"leader": leader}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_patroni_are_understood_and_others_refused() {
        let told = r#"{"members": [{"name": "a", "role": "leader", "state": "running", "timeline": 3,
             "api_url": "http://10.0.0.1:8008/patroni"},
            {"name": "b", "role": "sync_standby", "state": "streaming", "timeline": 3, "lag": 0},
            {"name": "c", "role": "replica", "state": "start failed", "lag": "unknown"}], "scope": "margay"}"#;
        let members = members_of(told).unwrap();
        assert!(members[0].is_leader() && members[0].runs() && members[1].is_synchronous() && !members[2].runs());
        assert_eq!((members[1].lag, members[2].lag), (Some(0), None));
        assert_eq!(members[0].api_url.as_deref(), Some("http://10.0.0.1:8008/patroni"));
        assert_eq!(switch("a", None), json!({"leader": "a"}));
        for wrong in ["", "[]", r#"{"members": 1}"#, r#"{"members": [{"role": "leader"}]}"#] {
            assert!(members_of(wrong).is_err(), "{wrong}");
        }
        assert_eq!(answer_of(b"HTTP/1.0 412 no\r\nA: b\r\n\r\nwhy"), Some((412, "why".to_owned())));
        assert_eq!(answer_of(b"SSH-2.0"), None);
        assert_eq!(place_of("http://10.0.0.1/").unwrap(), "10.0.0.1:8008");
        assert_eq!(place_of("a:1").unwrap(), "a:1");
        assert!(place_of("https://a").is_err() && place_of("http://u:p@a").is_err());
    }
}
