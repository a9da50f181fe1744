//! The query of ListObjectsV2.
//!
//! Not here:   sending it (`client`, `upstream`), pages (`xml`).

use crate::encode::encode_into;

/// What to list; the borrowed fields are not encoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListQuery<'a> {
    pub prefix: &'a str,
    pub delimiter: Option<&'a str>,
    pub start_after: Option<&'a str>,
    pub token: Option<&'a str>,
    /// Keys and prefixes per page; 0 leaves it to the server (1000).
    pub keys_max: u32,
    /// Requests percent-encoded keys, since XML cannot represent all characters.
    pub encoded: bool,
    /// Requests the metadata of each object, which MinIO and margay tell; others pass it over, or refuse it.
    pub metadata: bool,
}

impl ListQuery<'_> {
    /// As in the request line.
    pub fn encode(&self) -> String {
        let mut query = String::from("list-type=2");
        let mut add = |name: &str, value: &str| {
            query.push('&');
            query.push_str(name);
            query.push('=');
            encode_into(&mut query, value, false);
        };
        // Sorted by the names below; list-type is moved to its position afterwards.
        if let Some(token) = self.token {
            add("continuation-token", token);
        }
        if let Some(delimiter) = self.delimiter {
            add("delimiter", delimiter);
        }
        if self.encoded {
            add("encoding-type", "url");
        }
        if self.keys_max > 0 {
            add("max-keys", &self.keys_max.to_string());
        }
        if self.metadata {
            add("metadata", "true");
        }
        add("prefix", self.prefix);
        if let Some(start_after) = self.start_after {
            add("start-after", start_after);
        }
        let mut parts: Vec<&str> = query.split('&').collect();
        parts.sort_unstable();
        parts.join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_encoded_and_sorted() {
        let query = ListQuery {
            prefix: "p/ x",
            delimiter: Some("/"),
            start_after: Some("p/&"),
            keys_max: 7,
            encoded: true,
            metadata: true,
            ..ListQuery::default()
        };
        assert_eq!(
            query.encode(),
            "delimiter=%2F&encoding-type=url&list-type=2&max-keys=7&metadata=true&prefix=p%2F%20x&start-after=p%2F%26"
        );
    }
}
