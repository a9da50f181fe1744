//! Headers of object lock: retention and legal hold of new objects, and in responses.
//!
//! Not here: whether the bucket has object lock (volume), who may bypass a retention (access).

use http::{HeaderMap, HeaderName, HeaderValue};
use margay_env::Timestamp;
use margay_volume::{Document, Documents, Retention, RetentionMode, encode_legal_hold, legal_hold_is_on};

use super::text;
use crate::error::S3Error;
use crate::time::{iso, parse_http_date};

const MODE: &str = "x-amz-object-lock-mode";
const UNTIL: &str = "x-amz-object-lock-retain-until-date";
const LEGAL_HOLD: &str = "x-amz-object-lock-legal-hold";
const BYPASS: &str = "x-amz-bypass-governance-retention";

/// Whether the request asks to bypass governance mode; authorization decides whether its sender may.
pub(crate) fn bypasses_governance(headers: &HeaderMap) -> Result<bool, S3Error> {
    Ok(text(headers, BYPASS)?.is_some_and(|value| value.eq_ignore_ascii_case("true")))
}

/// The requested locks of a new object.
pub(crate) fn collect(headers: &HeaderMap) -> Result<Documents, S3Error> {
    let mut documents = Documents::new();
    match (text(headers, MODE)?, text(headers, UNTIL)?) {
        (None, None) => {}
        (Some(mode), Some(until)) => {
            let mode = parse_mode(mode).ok_or_else(|| S3Error::argument(MODE, mode, "Unknown wormMode directive."))?;
            let until = parse_until(until).ok_or_else(|| {
                S3Error::argument(UNTIL, until, "The retain until date must be provided in ISO 8601 format")
            })?;
            documents.insert(Document::Retention, Retention { mode, until }.encode());
        }
        _ => {
            let message = format!("{UNTIL} and {MODE} must both be supplied");
            return Err(S3Error::argument(UNTIL, "", message));
        }
    }
    if let Some(hold) = text(headers, LEGAL_HOLD)? {
        let on = parse_on(hold)
            .ok_or_else(|| S3Error::argument(LEGAL_HOLD, hold, "Legal Hold must be either of 'ON' or 'OFF'"))?;
        documents.insert(Document::LegalHold, encode_legal_hold(on));
    }
    Ok(documents)
}

/// Adds an object's locks to a response.
pub(crate) fn give_back(documents: &Documents, headers: &mut HeaderMap) {
    if let Some(Retention { mode, until }) =
        documents.get(&Document::Retention).and_then(|one| Retention::of_document(one))
    {
        headers.insert(HeaderName::from_static(MODE), HeaderValue::from_static(mode_name(mode)));
        let until = HeaderValue::from_str(&iso(until)).expect("a time is digits and punctuation");
        headers.insert(HeaderName::from_static(UNTIL), until);
    }
    if let Some(hold) = documents.get(&Document::LegalHold) {
        headers.insert(HeaderName::from_static(LEGAL_HOLD), HeaderValue::from_static(on_name(legal_hold_is_on(hold))));
    }
}

pub(crate) fn parse_mode(text: &str) -> Option<RetentionMode> {
    match text {
        "GOVERNANCE" => Some(RetentionMode::Governance),
        "COMPLIANCE" => Some(RetentionMode::Compliance),
        _ => None,
    }
}

pub(crate) fn mode_name(mode: RetentionMode) -> &'static str {
    match mode {
        RetentionMode::Governance => "GOVERNANCE",
        RetentionMode::Compliance => "COMPLIANCE",
    }
}

pub(crate) fn parse_on(text: &str) -> Option<bool> {
    match text {
        "ON" => Some(true),
        "OFF" => Some(false),
        _ => None,
    }
}

pub(crate) fn on_name(on: bool) -> &'static str {
    if on { "ON" } else { "OFF" }
}

pub(crate) fn parse_until(text: &str) -> Option<Timestamp> {
    parse_http_date(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn of(pairs: &[(&'static str, &'static str)]) -> Result<Documents, Code> {
        let headers =
            pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        collect(&headers.collect()).map_err(|error| error.code)
    }

    #[test]
    fn locks_are_read_and_told() {
        let pairs = [(MODE, "COMPLIANCE"), (UNTIL, "2030-01-01T00:00:00Z"), (LEGAL_HOLD, "ON")];
        let mut told = HeaderMap::new();
        give_back(&of(&pairs).unwrap(), &mut told);
        assert_eq!(told[MODE], "COMPLIANCE");
        assert_eq!(told[LEGAL_HOLD], "ON");
        assert_eq!(told[UNTIL], "2030-01-01T00:00:00.000Z");
        assert!(of(&[]).unwrap().is_empty());
        for bad in
            [&pairs[..1], &pairs[1..2], &[(LEGAL_HOLD, "on")], &[(MODE, "x"), pairs[1]], &[pairs[0], (UNTIL, "x")]]
        {
            assert_eq!(of(bad), Err(Code::InvalidArgument));
        }
    }
}
