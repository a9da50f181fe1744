//! AWS's query APIs: a POST of a form that names an action, answered in XML.
//!
//! Why:        STS and IAM use it, on the S3 endpoint.
//! Invariants: Q1 the size of a form is bounded.  Q2 an error reveals its code, never what caused a denial.
//! Not here:   the signature (door), actions (`iam`, `sts`).

use bytes::BytesMut;
use http::request::Parts;

use crate::error::{Code, S3Error};
use crate::reply::Reply;
use crate::route::query::Query;
use crate::xml::write::Writer;

/// Maximum size of a form, in bytes.
pub(crate) const FORM_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of fields of a form.
pub(crate) const FORM_FIELDS_MAX: usize = 300;

/// One of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Iam,
    Sts,
}

impl Service {
    fn namespace(self) -> &'static str {
        match self {
            Service::Iam => "https://iam.amazonaws.com/doc/2010-05-08/",
            Service::Sts => "https://sts.amazonaws.com/doc/2011-06-15/",
        }
    }
}

/// Whether a request may be addressed to these services.
pub(crate) fn is_form(parts: &Parts) -> bool {
    let form = parts.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_form = form.is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    });
    parts.method == http::Method::POST && parts.uri.path() == "/" && is_form
}

/// Parses a form.
pub(crate) fn read(body: &[u8]) -> Result<Query, S3Error> {
    let wrong = |_| invalid("the form is not UTF-8, not percent-encoded, or has too many fields");
    let text = std::str::from_utf8(body).map_err(|_| invalid("the form is not UTF-8"))?;
    Query::parse_at_most(text, FORM_FIELDS_MAX).map_err(wrong)
}

/// A required field.
pub(crate) fn required<'f>(form: &'f Query, name: &str) -> Result<&'f str, S3Error> {
    form.get(name).filter(|value| !value.is_empty()).ok_or_else(|| invalid(&format!("{name} is missing")))
}

/// A field with several values: `NAME.member.1` and so on.
pub(crate) fn members(form: &Query, name: &str) -> Vec<String> {
    let field = |number: usize| form.get(&format!("{name}.member.{number}")).map(str::to_owned);
    (1..=FORM_FIELDS_MAX).map_while(field).collect()
}

pub(crate) fn invalid(message: &str) -> S3Error {
    S3Error::new(Code::ValidationError, message.to_owned())
}

/// The response of an action; `inside` writes its result.
pub(crate) fn answer(service: Service, action: &str, request_id: &str, inside: impl FnOnce(&mut Writer<'_>)) -> Reply {
    let mut out = BytesMut::with_capacity(2048);
    let mut writer = Writer::new(&mut out);
    writer.document();
    writer.raw(&format!("<{action}Response xmlns=\"{}\">", service.namespace()));
    let result = format!("{action}Result");
    writer.open(&result);
    inside(&mut writer);
    writer.close(&result);
    writer.open("ResponseMetadata");
    writer.text("RequestId", request_id);
    writer.close("ResponseMetadata");
    writer.close(&format!("{action}Response"));
    Reply::xml(out)
}

/// The error response, which differs from S3's.
pub(crate) fn refusal(service: Service, error: &S3Error, request_id: &str) -> Reply {
    tracing::debug!(%error, request_id, "refused");
    let (code, message) = match error.code {
        // Named differently in S3.
        Code::InvalidAccessKeyId => {
            let error = S3Error::from(Code::InvalidClientTokenId);
            (error.code, error.message)
        }
        code => (code, error.message.clone()),
    };
    let mut out = BytesMut::with_capacity(512);
    let mut writer = Writer::new(&mut out);
    writer.document();
    writer.raw(&format!("<ErrorResponse xmlns=\"{}\">", service.namespace()));
    writer.open("Error");
    writer.text("Type", if code.status().is_server_error() { "Receiver" } else { "Sender" });
    writer.text("Code", code.name());
    writer.text("Message", &message);
    writer.close("Error");
    writer.text("RequestId", request_id);
    writer.close("ErrorResponse");
    let mut reply = Reply::xml(out);
    reply.status = code.status();
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read_with_their_lists() {
        let form = read(b"Action=TagUser&TagKeys.member.1=a&TagKeys.member.2=b%20c&TagKeys.member.4=d").unwrap();
        assert_eq!(members(&form, "TagKeys"), ["a", "b c"]);
        assert_eq!(members(&form, "Tags"), Vec::<String>::new());
        assert_eq!(required(&form, "Action").unwrap(), "TagUser");
        assert_eq!(required(&form, "UserName").unwrap_err().code, Code::ValidationError);
        let many = "a=1&".repeat(FORM_FIELDS_MAX + 1);
        for bad in [&b"a=%"[..], b"\xff=1", many.as_bytes()] {
            assert_eq!(read(bad).unwrap_err().code, Code::ValidationError);
        }
    }
}
