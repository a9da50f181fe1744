//! What a page of a listing says of an object, as HEAD would say it.
//!
//! Invariants: L1 what is returned is whole: a page that names no content type, which every object has, or that has names or
//!                values which are no headers, says too little.
//! Not here:   asking for it (`ListQuery::metadata`).

use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LAST_MODIFIED};

use super::Described;
use crate::xml::Entry;

/// `None`: the page says too little.
pub fn described(entry: &Entry) -> Option<Described> {
    let mut headers = HeaderMap::with_capacity(entry.metadata.as_ref()?.len() + 1);
    for (name, value) in entry.metadata.iter().flatten() {
        let name = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes()).ok()?;
        headers.insert(name, HeaderValue::from_str(value).or_else(|_| HeaderValue::from_bytes(value.as_bytes())).ok()?);
    }
    if !headers.contains_key(CONTENT_TYPE) {
        return None;
    }
    let modified: jiff::Timestamp = entry.modified.parse().ok()?;
    let modified = modified.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    headers.insert(LAST_MODIFIED, HeaderValue::from_str(&modified).ok()?);
    // Some stores quote ETags in headers alone.
    let etag = if entry.etag.starts_with('"') { entry.etag.clone() } else { format!("\"{}\"", entry.etag) };
    Some(Described { etag, size: entry.size, headers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(metadata: Option<&[(&str, &str)]>) -> Entry {
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Entry {
            key: "k".to_owned(),
            size: 3,
            etag: "e".to_owned(),
            modified: "2017-07-14T02:40:00.900Z".to_owned(),
            metadata: metadata.map(pairs),
        }
    }

    #[test]
    fn a_line_says_what_head_says() {
        let said = described(&entry(Some(&[("X-Amz-Meta-Mode", "0100644"), ("content-type", "a/b")]))).unwrap();
        assert_eq!((said.size, said.etag.as_str()), (3, "\"e\""));
        assert_eq!(said.headers["x-amz-meta-mode"], "0100644");
        assert_eq!(said.headers["content-type"], "a/b");
        assert_eq!(said.headers["last-modified"], "Fri, 14 Jul 2017 02:40:00 GMT");
    }

    #[test]
    fn a_line_that_says_too_little_says_nothing() {
        for little in
            [None, Some(&[][..]), Some(&[("X-Amz-Meta-Mode", "1")]), Some(&[("content-type", "a"), ("b", "\n")])]
        {
            assert!(described(&entry(little)).is_none(), "{little:?}");
        }
        let odd = Entry { modified: "yesterday".to_owned(), ..entry(Some(&[("content-type", "a")])) };
        assert!(described(&odd).is_none());
    }
}
