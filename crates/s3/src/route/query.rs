//! The query string, decoded once.
//!
//! Why:      router, refusals and operations use the same names and values.
//! Not here: the canonical query string of a signature (auth), which is built from the raw bytes.

use crate::error::{Code, S3Error};
use crate::percent::{self, Undecodable};

/// Maximum number of parameters in a request.
pub(crate) const QUERY_PARAMETERS_MAX: usize = 100;

/// Parameters in the order of the request; a parameter without `=` has an empty value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(raw: &str) -> Result<Query, S3Error> {
        Query::parse_at_most(raw, QUERY_PARAMETERS_MAX)
    }

    /// A form in a body, with at most `fields_max` fields.
    pub(crate) fn parse_at_most(raw: &str, fields_max: usize) -> Result<Query, S3Error> {
        let mut pairs = Vec::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            if pairs.len() == fields_max {
                return Err(S3Error::new(Code::InvalidURI, "the query has too many parameters"));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode(name, true)?, decode(value, true)?));
        }
        Ok(Query { pairs })
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Removes the parameters with such names.
    pub(crate) fn remove(&mut self, unwanted: impl Fn(&str) -> bool) {
        self.pairs.retain(|(name, _)| !unwanted(name));
    }

    /// A whole number; `default` when the parameter is absent.
    pub(crate) fn number(&self, name: &str, default: u64) -> Result<u64, S3Error> {
        match self.get(name) {
            None => Ok(default),
            Some(text) => text.parse::<u64>().ok().filter(|number| *number <= i32::MAX as u64).ok_or_else(|| {
                S3Error::argument(name, text, format!("Provided {name} not an integer or within integer range"))
            }),
        }
    }
}

/// Decodes `%XX`; in queries `+` is a space.
pub(crate) fn decode(raw: &str, plus_is_space: bool) -> Result<String, S3Error> {
    percent::decode(raw, plus_is_space).map_err(|why| {
        let text = match why {
            Undecodable::Escape => "a percent sign without two hexadecimal digits",
            Undecodable::Utf8 => "names and keys must be UTF-8",
        };
        S3Error::new(Code::InvalidURI, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_once() {
        let query = Query::parse("uploads&prefix=a%2Fb+c%252B&max-keys=7&x=").unwrap();
        assert_eq!(query.get("uploads"), Some(""));
        assert_eq!(query.get("prefix"), Some("a/b c%2B"));
        assert_eq!(query.number("max-keys", 1000).unwrap(), 7);
        assert_eq!(query.number("max-parts", 1000).unwrap(), 1000);
        assert!(query.has("x") && !query.has("y"));
    }

    #[test]
    fn bad_encodings_are_refused() {
        for raw in ["a=%", "a=%4", "a=%zz", "a=%ff", "%c3=1"] {
            assert_eq!(Query::parse(raw).unwrap_err().code, Code::InvalidURI, "{raw}");
        }
        assert!(Query::parse("n=-1").unwrap().number("n", 1).is_err());
        assert!(Query::parse("n=99999999999").unwrap().number("n", 1).is_err());
        assert!(Query::parse(&"a&".repeat(QUERY_PARAMETERS_MAX + 1)).is_err());
    }

    #[test]
    fn plus_is_literal_in_paths() {
        assert_eq!(decode("a+b%2B", false).unwrap(), "a+b+");
    }
}
