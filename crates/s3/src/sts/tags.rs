//! Session tags: attributes of the session's user, for conditions in policies.
//!
//! Invariants: G1 their size is limited, because the session's token carries them in every request.
//! Not here:   the permission to set them (`sts:TagSession` in the role's trust policy).

use margay_iam::registry::SessionTags;
use serde_json::Value;

use super::invalid;
use super::provider_error::ProviderError;
use crate::error::{Code, S3Error};
use crate::route::query::Query;

/// The claim that holds tags, as AWS names it.
const CLAIM: &str = "https://aws.amazon.com/tags";
/// Maximum number of tags of a session.
const TAGS_MAX: usize = 50;
/// Maximum length of a tag's name, and of its value, in characters.
const NAME_CHARS_MAX: usize = 128;
const VALUE_CHARS_MAX: usize = 256;
/// Maximum size of all names and values together, in bytes.
const TAGS_BYTES_MAX: usize = 2048;

/// Parses `{"principal_tags": {NAME: [VALUE, ...]}}` from the claims of a token.
pub(super) fn of_claims(claims: &Value) -> Result<SessionTags, ProviderError> {
    let tags = match &claims[CLAIM]["principal_tags"] {
        Value::Null => return Ok(SessionTags::new()),
        Value::Object(tags) => tags,
        _ => return Err(ProviderError::Form),
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let values = |value: &Value| match value {
        Value::Array(list) if !list.is_empty() => list.iter().map(text).collect(),
        other => text(other).map(|one| vec![one]),
    };
    let read = tags.iter().map(|(name, value)| Some((name.clone(), values(value)?)));
    read.collect::<Option<SessionTags>>().ok_or(ProviderError::Form)
}

/// Parses `Tags.member.N.Key` and `Tags.member.N.Value` from a form.
pub(super) fn of_form(form: &Query) -> Result<SessionTags, S3Error> {
    let mut tags = SessionTags::new();
    for number in 1.. {
        let Some(name) = form.get(&format!("Tags.member.{number}.Key")) else { break };
        let value = form.get(&format!("Tags.member.{number}.Value")).unwrap_or_default();
        if tags.insert(name.to_owned(), vec![value.to_owned()]).is_some() {
            return Err(invalid("two tags have the same name"));
        }
    }
    Ok(tags)
}

/// Checks the limits of a session's tags.
pub(super) fn check(tags: &SessionTags) -> Result<(), S3Error> {
    let fits = |text: &str, max: usize| text.chars().take(max + 1).count() <= max;
    let values = || tags.values().flatten();
    let named = tags.keys().all(|name| !name.is_empty() && fits(name, NAME_CHARS_MAX));
    if tags.len() > TAGS_MAX || !named || !values().all(|value| fits(value, VALUE_CHARS_MAX)) {
        return Err(invalid("a session has 50 tags at most, with names of 128 and values of 256 characters"));
    }
    if tags.keys().chain(values()).map(String::len).sum::<usize>() > TAGS_BYTES_MAX {
        return Err(S3Error::new(Code::PackedPolicyTooLarge, "the session tags are too long"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(principal_tags: &Value) -> Result<SessionTags, ProviderError> {
        of_claims(&json!({ CLAIM: { "principal_tags": principal_tags } }))
    }

    #[test]
    fn tags_of_a_token() {
        assert_eq!(of_claims(&json!({"sub": "ann"})), Ok(SessionTags::new()));
        let tags = of(&json!({"Team": ["a", "b"], "Floor": "3"})).unwrap();
        assert_eq!((tags["Team"].join(" "), tags["Floor"].join(" ")), ("a b".to_owned(), "3".to_owned()));
        for wrong in [json!("x"), json!([]), json!({"Team": 1}), json!({"Team": []}), json!({"Team": [["a"]]})] {
            assert_eq!(of(&wrong), Err(ProviderError::Form), "{wrong}");
        }
    }

    #[test]
    fn tags_of_a_form() {
        let read = |text: &str| of_form(&Query::parse(text).unwrap());
        let tags = read("Tags.member.1.Key=Team&Tags.member.1.Value=a&Tags.member.2.Key=Floor&Tags.member.4.Key=No");
        assert_eq!(tags.unwrap().into_keys().collect::<Vec<_>>(), ["Floor", "Team"]);
        assert!(read("Tags.member.1.Key=Team&Tags.member.2.Key=Team").is_err());
    }

    #[test]
    fn tags_are_bounded() {
        let one = |name: &str, value: &str| SessionTags::from([(name.to_owned(), vec![value.to_owned()])]);
        assert!(check(&one("Team", "")).is_ok() && check(&one(&"n".repeat(128), &"ä".repeat(256))).is_ok());
        assert!(check(&one("", "a")).is_err() && check(&one(&"n".repeat(129), "a")).is_err());
        assert!(check(&one("Team", &"v".repeat(257))).is_err());
        let many = |count: usize, value: &str| (0..count).map(|at| (at.to_string(), vec![value.to_owned()])).collect();
        assert!(
            check(&many(50, "a")).is_ok()
                && check(&many(51, "a")).is_err()
                && check(&many(20, &"v".repeat(200))).is_err()
        );
    }
}
