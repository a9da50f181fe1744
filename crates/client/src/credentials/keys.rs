//! Keys as values: what signs requests, and what a place answered.
//!
//! Invariants: K1 a secret is never shown.
//! Not here:   where keys come from (the other modules).

use std::fmt;

use margay_env::Timestamp;
use serde_json::Value;

/// A key pair.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// A key pair, and what belongs to a temporary one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub pair: Credentials,
    pub session_token: Option<SessionToken>,
    /// `None`: they are permanent, or nobody said how long they are valid.
    pub expires: Option<Timestamp>,
}

/// Accompanies each request that is signed with a temporary key.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionToken(pub String);

impl fmt::Debug for SessionToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SessionToken")
    }
}

impl Keys {
    /// Keys without an end; an empty token is none.
    pub fn permanent(pair: Credentials, session_token: Option<String>) -> Keys {
        let session_token = session_token.filter(|token| !token.is_empty()).map(SessionToken);
        Keys { pair, session_token, expires: None }
    }

    /// From the JSON of a metadata server, a container's server or a process; `token` names the member with the token.
    pub(super) fn from_json(text: &[u8], token: &str) -> Result<Keys, String> {
        let value: Value = serde_json::from_slice(text).map_err(|_| "an answer that is no JSON".to_owned())?;
        let member = |name: &str| value[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let code = member("Code").filter(|code| code != "Success");
        if let Some(code) = code {
            return Err(format!("it says {code} {}", member("Message").unwrap_or_default()).trim_end().to_owned());
        }
        let needed = |name: &str| member(name).ok_or_else(|| format!("an answer without {name}"));
        let pair = Credentials { access_key: needed("AccessKeyId")?, secret_key: needed("SecretAccessKey")? };
        let expires = member("Expiration").map(|text| time(&text)).transpose()?;
        Ok(Keys { expires, ..Keys::permanent(pair, member(token)) })
    }
}

/// A time as AWS writes it: `2026-11-26T10:00:00Z`.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    let wrong = || format!("an end {text:?} that is no time");
    let moment: jiff::Timestamp = text.trim().parse().map_err(|_| wrong())?;
    i64::try_from(moment.as_nanosecond()).map(Timestamp).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let pair = Credentials { access_key: "visible".to_owned(), secret_key: "hidden".to_owned() };
        let shown = format!("{pair:?} {:?}", Keys::permanent(pair.clone(), Some("hidden too".to_owned())));
        assert!(shown.contains("visible") && !shown.contains("hidden"), "{shown}");
    }

    #[test]
    fn answers_in_json_are_read_or_refused() {
        let read = |text: &str| Keys::from_json(text.as_bytes(), "Token");
        let keys = read(
            r#"{"Code":"Success","AccessKeyId":"a","SecretAccessKey":"s","Token":"t","Expiration":"1970-01-01T00:00:07Z"}"#,
        );
        let pair = Credentials { access_key: "a".to_owned(), secret_key: "s".to_owned() };
        let expected = Keys { expires: Some(Timestamp(7_000_000_000)), ..Keys::permanent(pair, Some("t".to_owned())) };
        assert_eq!(keys, Ok(expected));
        assert_eq!(read(r#"{"AccessKeyId":"a","SecretAccessKey":"s"}"#).unwrap().session_token, None);
        for (wrong, why) in [
            ("<html>", "no JSON"),
            (r#"{"AccessKeyId":"a"}"#, "without SecretAccessKey"),
            (r#"{"AccessKeyId":"a","SecretAccessKey":"s","Expiration":"soon"}"#, "no time"),
            (r#"{"Code":"AssumeRoleUnauthorizedAccess","Message":"no"}"#, "AssumeRoleUnauthorizedAccess no"),
        ] {
            assert!(read(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }
}
