//! The XML documents that an S3 client receives and sends.
//!
//! Why:        pages, errors and delete requests are parsed without a schema: unknown elements are skipped.
//! Invariants: X1 any bytes give a value or an error, never a panic.
//! Not here:   walking a document, documents of the server (margay-s3).

use margay_s3::percent::{self, Undecodable};
use margay_s3::xml::read::{Malformed, walk};
use quick_xml::escape::escape;

/// One object of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub modified: String,
    /// Names and values of headers, where the store tells them (`UserMetadata`).
    pub metadata: Option<Vec<(String, String)>>,
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    pub prefixes: Vec<String>,
    pub truncated: bool,
    /// Present when `truncated`.
    pub next_token: Option<String>,
}

/// One bucket of the list of buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketEntry {
    pub name: String,
    pub created: String,
}

/// Whether a path of element names ends with these.
fn is_below(path: &str, names: &str) -> bool {
    path.strip_suffix(names).is_some_and(|above| above.is_empty() || above.ends_with('/'))
}

/// Reads a page of ListObjectsV2 or V1; keys come decoded when the page says that it encoded them.
pub fn parse_page(document: &[u8]) -> Result<Page, String> {
    let mut page = Page::default();
    let mut entry = Entry::default();
    let mut encoded = false;
    let mut seen = false;
    walk(document, &mut |path, text| {
        match path {
            "ListBucketResult" => seen = true,
            "ListBucketResult/Contents" => page.entries.push(std::mem::take(&mut entry)),
            "ListBucketResult/Contents/Key" => entry.key = text.to_owned(),
            "ListBucketResult/Contents/Size" => {
                entry.size = text.parse().map_err(|_| Malformed::because(format!("a size of {text:?}")))?;
            }
            "ListBucketResult/Contents/ETag" => entry.etag = text.to_owned(),
            "ListBucketResult/Contents/LastModified" => entry.modified = text.to_owned(),
            "ListBucketResult/CommonPrefixes/Prefix" => page.prefixes.push(text.to_owned()),
            "ListBucketResult/IsTruncated" => page.truncated = text == "true",
            "ListBucketResult/NextContinuationToken" | "ListBucketResult/NextMarker" => {
                page.next_token = Some(text.to_owned())
            }
            "ListBucketResult/EncodingType" => encoded = text == "url",
            path => {
                let name = path.strip_prefix("ListBucketResult/Contents/UserMetadata");
                if let Some(name) = name {
                    let metadata = entry.metadata.get_or_insert_default();
                    metadata.extend(name.strip_prefix('/').map(|name| (name.to_owned(), text.to_owned())));
                }
            }
        }
        Ok(())
    })
    .map_err(|malformed| malformed.to_string())?;
    if !seen {
        return Err("not a ListBucketResult".to_owned());
    }
    if page.truncated && page.next_token.is_none() {
        return Err("a truncated page without a token for the next".to_owned());
    }
    if encoded {
        for entry in &mut page.entries {
            entry.key = percent_decode(&entry.key)?;
        }
        for prefix in &mut page.prefixes {
            *prefix = percent_decode(prefix)?;
        }
    }
    Ok(page)
}

/// Reads the answer of ListBuckets.
pub fn parse_buckets(document: &[u8]) -> Result<Vec<BucketEntry>, String> {
    let mut buckets = Vec::new();
    let mut bucket = BucketEntry::default();
    walk(document, &mut |path, text| {
        match path {
            path if is_below(path, "Buckets/Bucket/Name") => bucket.name = text.to_owned(),
            path if is_below(path, "Buckets/Bucket/CreationDate") => bucket.created = text.to_owned(),
            path if is_below(path, "Buckets/Bucket") => buckets.push(std::mem::take(&mut bucket)),
            _ => {}
        }
        Ok(())
    })
    .map_err(|malformed| malformed.to_string())?;
    Ok(buckets)
}

/// Code and message of an error document; empty strings where it has none.
pub fn parse_error(document: &[u8]) -> (String, String) {
    let (mut code, mut message) = (String::new(), String::new());
    // What was read of a damaged document still helps.
    let _ = walk(String::from_utf8_lossy(document).as_bytes(), &mut |path, text| {
        match path {
            path if is_below(path, "Error/Code") => code = text.to_owned(),
            path if is_below(path, "Error/Message") => message = text.to_owned(),
            _ => {}
        }
        Ok(())
    });
    (code, message)
}

/// The keys that a DeleteObjects answer reports as not deleted, each with its code.
pub fn parse_delete_failures(document: &[u8]) -> Result<Vec<(String, String)>, String> {
    let mut failures = Vec::new();
    let (mut key, mut code) = (String::new(), String::new());
    walk(document, &mut |path, text| {
        match path {
            "DeleteResult/Error/Key" => key = text.to_owned(),
            "DeleteResult/Error/Code" => code = text.to_owned(),
            "DeleteResult/Error" => failures.push((std::mem::take(&mut key), std::mem::take(&mut code))),
            _ => {}
        }
        Ok(())
    })
    .map_err(|malformed| malformed.to_string())?;
    Ok(failures)
}

/// The first of `parse_delete_failures`.
pub fn parse_delete_failure(document: &[u8]) -> Result<Option<(String, String)>, String> {
    Ok(parse_delete_failures(document)?.into_iter().next())
}

/// The text of the element `name` right below the document's root element `root`.
pub fn parse_field(document: &[u8], root: &str, name: &str) -> Result<String, String> {
    let wanted = format!("{root}/{name}");
    let mut found = None;
    walk(document, &mut |path, text| {
        if path == wanted {
            found = Some(text.to_owned());
        }
        Ok(())
    })
    .map_err(|malformed| malformed.to_string())?;
    found.filter(|text| !text.is_empty()).ok_or_else(|| format!("no {name} in a {root}"))
}

/// The body of CompleteMultipartUpload for parts with these ETags, numbered from 1.
pub fn complete_request(etags: &[String]) -> String {
    let mut body = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (number, etag) in (1..).zip(etags) {
        body.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", escape(etag)));
    }
    body.push_str("</CompleteMultipartUpload>");
    body
}

/// Whether a document can have the key: XML 1.0 has no control characters but three, and parsers change one of these.
pub fn holds(key: &str) -> bool {
    !key.chars().any(|one| one.is_control() || matches!(one, '\u{fffe}' | '\u{ffff}'))
}

/// The body of a quiet DeleteObjects request.
pub fn delete_request<'a>(keys: impl IntoIterator<Item = &'a str>) -> String {
    delete_body(keys.into_iter().map(|key| (key, None)))
}

/// As `delete_request`; each key is deleted only if its object has this ETag, where the store supports that.
pub fn delete_states_request<'a>(states: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    delete_body(states.into_iter().map(|(key, etag)| (key, Some(etag))))
}

fn delete_body<'a>(objects: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut body = String::from("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>");
    for (key, etag) in objects {
        body.push_str("<Object><Key>");
        // A parser takes a plain carriage return for a line feed.
        body.push_str(&escape(key).replace('\r', "&#13;"));
        body.push_str("</Key>");
        if let Some(etag) = etag {
            body.push_str(&format!("<ETag>{}</ETag>", escape(etag)));
        }
        body.push_str("</Object>");
    }
    body.push_str("</Delete>");
    body
}

/// Undoes percent-encoding; `+` is a space, as listings with `encoding-type=url` write it.
fn percent_decode(text: &str) -> Result<String, String> {
    percent::decode(text, true).map_err(|why| match why {
        Undecodable::Escape => format!("broken percent-encoding in {text:?}"),
        Undecodable::Utf8 => format!("{text:?} is not UTF-8 when decoded"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read() {
        let page = parse_page(
            br#"<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>
            <Prefix/><IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>
            <Contents><Key>a&lt;&#233;</Key><Size>7</Size><ETag>&quot;e&quot;</ETag><Owner><ID>i</ID></Owner></Contents>
            <Contents><Key>b</Key><Size>0</Size></Contents><CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>
            </ListBucketResult>"#,
        )
        .unwrap();
        assert_eq!(page.entries.len(), 2);
        assert_eq!((page.entries[0].key.as_str(), page.entries[0].size), ("a<\u{e9}", 7));
        assert_eq!(page.entries[0].etag, "\"e\"");
        assert_eq!(page.prefixes, ["c/"]);
        assert_eq!(page.next_token.as_deref(), Some("t&1"));
    }

    #[test]
    fn metadata_of_a_page_is_read() {
        let page = parse_page(
            b"<ListBucketResult><Contents><Key>a</Key><UserMetadata><content-type>x/y</content-type>\
              <X-Amz-Meta-Mode>0100644</X-Amz-Meta-Mode></UserMetadata><UserTags>k=v</UserTags></Contents>\
              <Contents><Key>b</Key></Contents><Contents><Key>c</Key><UserMetadata/></Contents></ListBucketResult>",
        )
        .unwrap();
        let metadata: Vec<_> = page.entries.into_iter().map(|entry| entry.metadata).collect();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let first = vec![pair("content-type", "x/y"), pair("X-Amz-Meta-Mode", "0100644")];
        assert_eq!(metadata, [Some(first), None, Some(Vec::new())]);
    }

    #[test]
    fn an_encoded_page_is_decoded() {
        let page = parse_page(
            b"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>\
              <Contents><Key>a%2Bb+c%20%C3%A9/d</Key></Contents></ListBucketResult>",
        )
        .unwrap();
        assert_eq!(page.entries[0].key, "a+b c \u{e9}/d");
    }

    #[test]
    fn damage_is_an_error() {
        for wrong in [
            "",
            "<Other/>",
            "<ListBucketResult><Contents><Key>a</Key>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<ListBucketResult><Contents><Size>x</Size></Contents></ListBucketResult>",
            "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%zz</Key></Contents></ListBucketResult>",
            "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult><ListBucketResult/>",
        ] {
            assert!(parse_page(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_and_delete_results_are_read() {
        let document = b"<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>";
        assert_eq!(parse_error(document), ("NoSuchKey".to_owned(), "gone".to_owned()));
        assert_eq!(parse_error(b"<html"), (String::new(), String::new()));
        let document = b"<DeleteResult><Error><Key>k</Key><Code>AccessDenied</Code></Error></DeleteResult>";
        assert_eq!(parse_delete_failure(document).unwrap(), Some(("k".to_owned(), "AccessDenied".to_owned())));
        assert_eq!(parse_delete_failure(b"<DeleteResult/>").unwrap(), None);
        let begun = b"<R><X><Id>no</Id></X><Id>a&amp;b</Id></R>";
        assert_eq!(parse_field(begun, "R", "Id").unwrap(), "a&b");
        assert!(parse_field(begun, "R", "X").is_err() && parse_field(b"<R><Id/></R>", "R", "Id").is_err());
        assert!(complete_request(&["\"e\"".to_owned()]).contains("<PartNumber>1</PartNumber><ETag>&quot;e&quot;<"));
        assert!(delete_request(["a<b"]).contains("<Key>a&lt;b</Key>"));
    }
}
