//! What the simulated store reads in the headers and the path of a request.

use std::collections::BTreeMap;

use http::HeaderMap;

use crate::listen::text;
use crate::store::Object;

pub(crate) fn holds(headers: &HeaderMap, there: Option<&Object>) -> bool {
    let etag = there.map(Object::etag);
    text(headers, "if-match").is_none_or(|wanted| etag.as_deref() == Some(wanted))
        && text(headers, "if-none-match").is_none_or(|_| etag.is_none())
}

pub(crate) fn metadata(headers: &HeaderMap) -> BTreeMap<String, String> {
    let kept = headers.iter().filter(|(name, _)| name.as_str().starts_with("x-amz-meta-") || *name == "content-type");
    kept.map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap().to_owned())).collect()
}

pub(crate) fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next().unwrap()).to_digit(16).unwrap() as u8;
                digit() * 16 + digit()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}
