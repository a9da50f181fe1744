//! GetObjectLegalHold and PutObjectLegalHold.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::{Document, legal_hold_is_on};

use super::{about, documents};
use crate::error::{Code, S3Error};
use crate::headers::{lock, version};
use crate::op::Call;
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::read::{Malformed, walk};
use crate::xml::write::Writer;

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let (documents, version) = documents(call).await?;
    let hold = documents.get(&Document::LegalHold).ok_or(Code::NoSuchObjectLockConfiguration)?;
    let mut out = BytesMut::with_capacity(256);
    let mut writer = Writer::new(&mut out);
    writer.root("LegalHold");
    writer.text("Status", lock::on_name(legal_hold_is_on(hold)));
    writer.close("LegalHold");
    Ok(about(version, Reply::xml(out)))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let asked = version::asked(call.query)?;
    call.volume.object_lock(call.bucket()).await?;
    let on = parse(&payload.document(call.headers, true).await?)?;
    call.volume.set_legal_hold((call.bucket(), call.key(), asked), on).await?;
    Ok(about(asked, Reply::empty(StatusCode::OK)))
}

pub(crate) fn parse(document: &[u8]) -> Result<bool, S3Error> {
    let mut on = None;
    walk(document, &mut |path, text| {
        match path {
            "LegalHold" => {}
            "LegalHold/Status" => on = lock::parse_on(text.trim()),
            _ => return Err(Malformed::because("an unknown element")),
        }
        Ok(())
    })?;
    on.ok_or_else(|| Code::MalformedXML.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents() {
        let code = |status: &str| {
            let document = format!("<LegalHold><Status>{status}</Status></LegalHold>");
            parse(document.as_bytes()).map_err(|error| error.code)
        };
        assert_eq!((code("ON"), code("OFF"), code("abc")), (Ok(true), Ok(false), Err(Code::MalformedXML)));
        assert_eq!(parse(b"<LegalHold/>").unwrap_err().code, Code::MalformedXML);
    }
}
