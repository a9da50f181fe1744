//! The XML documents that an S3 client receives and sends.
//!
//! Why:        pages, errors and delete requests are parsed without a schema: unknown elements are skipped.
//! Invariants: X1 any bytes give a value or an error, never a panic.
//! Not here:   documents of the server (crates/s3).

use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::Event;

/// One object of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub modified: String,
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

/// Walks a document. `visit(path, Some(text))` is called for each element without children, with the names above it,
/// and `visit(path, None)` at the end of every other element.
fn walk(document: &[u8], mut visit: impl FnMut(&[String], Option<&str>)) -> Result<(), String> {
    let mut reader = Reader::from_reader(document);
    let mut path: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut leaf = false;
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(start) => {
                path.push(String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
                text.clear();
                leaf = true;
            }
            Event::Empty(start) => {
                path.push(String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
                visit(&path, Some(""));
                path.pop();
                leaf = false;
            }
            Event::Text(piece) => text.push_str(&piece.decode().map_err(|error| error.to_string())?),
            Event::CData(piece) => text.push_str(&piece.decode().map_err(|error| error.to_string())?),
            Event::GeneralRef(name) => {
                if let Some(character) = name.resolve_char_ref().map_err(|error| error.to_string())? {
                    text.push(character);
                } else {
                    let name = name.decode().map_err(|error| error.to_string())?;
                    text.push_str(resolve_predefined_entity(&name).ok_or_else(|| format!("unknown entity &{name};"))?);
                }
            }
            Event::End(_) => {
                visit(&path, leaf.then_some(text.as_str()));
                path.pop();
                leaf = false;
            }
            Event::Eof => break,
            _ => {}
        }
    }
    if path.is_empty() { Ok(()) } else { Err(format!("the document ends inside <{}>", path.join("><"))) }
}

fn names(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// Reads a page of ListObjectsV2 or V1; keys come decoded when the page says that it encoded them.
pub fn parse_page(document: &[u8]) -> Result<Page, String> {
    let mut page = Page::default();
    let mut entry = Entry::default();
    let mut encoded = false;
    let mut seen = false;
    let mut wrong = None;
    walk(document, |path, text| match (names(path).as_slice(), text) {
        (["ListBucketResult"], _) => seen = true,
        (["ListBucketResult", "Contents"], None) => page.entries.push(std::mem::take(&mut entry)),
        (["ListBucketResult", "Contents", "Key"], Some(text)) => entry.key = text.to_owned(),
        (["ListBucketResult", "Contents", "Size"], Some(text)) => match text.parse() {
            Ok(size) => entry.size = size,
            Err(_) => wrong = Some(format!("a size of {text:?}")),
        },
        (["ListBucketResult", "Contents", "ETag"], Some(text)) => entry.etag = text.to_owned(),
        (["ListBucketResult", "Contents", "LastModified"], Some(text)) => entry.modified = text.to_owned(),
        (["ListBucketResult", "CommonPrefixes", "Prefix"], Some(text)) => page.prefixes.push(text.to_owned()),
        (["ListBucketResult", "IsTruncated"], Some(text)) => page.truncated = text == "true",
        (["ListBucketResult", "NextContinuationToken" | "NextMarker"], Some(text)) => {
            page.next_token = Some(text.to_owned());
        }
        (["ListBucketResult", "EncodingType"], Some(text)) => encoded = text == "url",
        _ => {}
    })?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
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
    walk(document, |path, text| match (names(path).as_slice(), text) {
        ([.., "Buckets", "Bucket", "Name"], Some(text)) => bucket.name = text.to_owned(),
        ([.., "Buckets", "Bucket", "CreationDate"], Some(text)) => bucket.created = text.to_owned(),
        ([.., "Buckets", "Bucket"], None) => buckets.push(std::mem::take(&mut bucket)),
        _ => {}
    })?;
    Ok(buckets)
}

/// Code and message of an error document; empty strings where it has none.
pub fn parse_error(document: &[u8]) -> (String, String) {
    let (mut code, mut message) = (String::new(), String::new());
    // What was read of a damaged document still helps.
    let _ = walk(document, |path, text| match (names(path).as_slice(), text) {
        ([.., "Error", "Code"], Some(text)) => code = text.to_owned(),
        ([.., "Error", "Message"], Some(text)) => message = text.to_owned(),
        _ => {}
    });
    (code, message)
}

/// The first key that a DeleteObjects answer reports as not deleted, with its code.
pub fn parse_delete_failure(document: &[u8]) -> Result<Option<(String, String)>, String> {
    let mut failure = None;
    let (mut key, mut code) = (String::new(), String::new());
    walk(document, |path, text| match (names(path).as_slice(), text) {
        (["DeleteResult", "Error", "Key"], Some(text)) => key = text.to_owned(),
        (["DeleteResult", "Error", "Code"], Some(text)) => code = text.to_owned(),
        (["DeleteResult", "Error"], None) if failure.is_none() => {
            failure = Some((std::mem::take(&mut key), std::mem::take(&mut code)));
        }
        _ => {}
    })?;
    Ok(failure)
}

/// The text of the element `name` right below the document's root element `root`.
pub fn parse_field(document: &[u8], root: &str, name: &str) -> Result<String, String> {
    let mut found = None;
    walk(document, |path, text| {
        if let (&[first, second], Some(text)) = (names(path).as_slice(), text)
            && (first, second) == (root, name)
        {
            found = Some(text.to_owned());
        }
    })?;
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

/// The body of a quiet DeleteObjects request.
pub fn delete_request<'a>(keys: impl IntoIterator<Item = &'a str>) -> String {
    let mut body = String::from("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>");
    for key in keys {
        body.push_str("<Object><Key>");
        body.push_str(&escape(key));
        body.push_str("</Key></Object>");
    }
    body.push_str("</Delete>");
    body
}

/// Undoes percent-encoding; `+` is a space, as listings with `encoding-type=url` write it.
fn percent_decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let mut digit = || rest.next().and_then(|&digit| (digit as char).to_digit(16));
                match (digit(), digit()) {
                    (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
                    _ => return Err(format!("broken percent-encoding in {text:?}")),
                }
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is not UTF-8 when decoded"))
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
