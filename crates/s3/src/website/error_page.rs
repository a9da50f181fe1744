//! The HTML page of an error, in AWS's form.
//!
//! Invariants: P1 text is escaped.  P2 it reveals nothing that the XML of the same error would not.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::S3Error;
use crate::xml::write::escape;

/// An error, and why the website's own error document is not shown.
pub(crate) struct ErrorPage<'e> {
    pub error: &'e S3Error,
    /// The key of the error document and its error; `None` when the website has none.
    pub document: Option<(&'e str, &'e S3Error)>,
    pub request_id: &'e str,
    pub host_id: &'e str,
}

impl ErrorPage<'_> {
    pub(crate) fn html(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(512);
        let status = self.error.code.status();
        let title = format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default());
        out.extend_from_slice(b"<html>\n<head><title>");
        escape(&mut out, &title);
        out.extend_from_slice(b"</title></head>\n<body>\n<h1>");
        escape(&mut out, &title);
        out.extend_from_slice(b"</h1>\n<ul>\n");
        items(&mut out, self.error);
        item(&mut out, "RequestId", self.request_id);
        item(&mut out, "HostId", self.host_id);
        out.extend_from_slice(b"</ul>\n");
        if let Some((key, error)) = self.document {
            out.extend_from_slice(
                b"<h3>An Error Occurred While Attempting to Retrieve a Custom Error Document</h3>\n<ul>\n",
            );
            items(&mut out, error);
            if !error.details.iter().any(|(name, _)| *name == "Key") {
                item(&mut out, "Key", key);
            }
            out.extend_from_slice(b"</ul>\n");
        }
        out.extend_from_slice(b"<hr/>\n</body>\n</html>\n");
        out.freeze()
    }
}

/// Adds the error to the headers for programs, whatever page people see.
pub(crate) fn name_error(error: &S3Error, headers: &mut HeaderMap) {
    for (name, value) in [("x-amz-error-code", error.code.name()), ("x-amz-error-message", &error.message)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

fn items(out: &mut BytesMut, error: &S3Error) {
    item(out, "Code", error.code.name());
    item(out, "Message", &error.message);
    error.details.iter().for_each(|(name, value)| item(out, name, value));
}

fn item(out: &mut BytesMut, name: &str, value: &str) {
    out.extend_from_slice(b"<li>");
    escape(out, name);
    out.extend_from_slice(b": ");
    escape(out, value);
    out.extend_from_slice(b"</li>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn what_a_key_says_is_shown_and_not_believed() {
        let error = S3Error::from(Code::NoSuchKey).with("Key", "<script>alert('x')</script>");
        let denied = S3Error::from(Code::AccessDenied);
        let page = |document| {
            let page = ErrorPage { error: &error, document, request_id: "R", host_id: "H" };
            String::from_utf8(page.html().to_vec()).unwrap()
        };
        let plain = page(None);
        assert!(plain.contains("<h1>404 Not Found</h1>\n<ul>\n<li>Code: NoSuchKey</li>\n<li>Message: "));
        assert!(plain.contains("<li>Key: &lt;script&gt;alert('x')&lt;/script&gt;</li>"));
        assert!(!plain.contains("<script>") && !plain.contains("Custom Error"));
        let own = page(Some(("e&o.html", &denied)));
        assert!(own.contains("Custom Error Document</h3>\n<ul>\n<li>Code: AccessDenied</li>"));
        assert!(own.contains("<li>Key: e&amp;o.html</li>"));
    }
}
