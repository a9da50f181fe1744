//! GetObjectRetention and PutObjectRetention.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::{Document, Retention};

use super::{about, documents};
use crate::error::{Code, S3Error};
use crate::headers::{lock, version};
use crate::op::Call;
use crate::payload::Payload;
use crate::reply::Reply;
use crate::time::iso;
use crate::xml::read::{Malformed, walk};
use crate::xml::write::Writer;

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let (documents, version) = documents(call).await?;
    let retention = documents.get(&Document::Retention).and_then(|stored| Retention::of_document(stored));
    let Retention { mode, until } = retention.ok_or(Code::NoSuchObjectLockConfiguration)?;
    let mut out = BytesMut::with_capacity(256);
    let mut writer = Writer::new(&mut out);
    writer.root("Retention");
    writer.text("Mode", lock::mode_name(mode));
    writer.text("RetainUntilDate", &iso(until));
    writer.close("Retention");
    Ok(about(version, Reply::xml(out)))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let asked = version::asked(call.query)?;
    let bypass = lock::bypasses_governance(call.headers)?;
    call.volume.object_lock(call.bucket()).await?;
    let retention = parse(&payload.document(call.headers, true).await?)?;
    call.volume.set_retention((call.bucket(), call.key(), asked), retention, bypass).await?;
    Ok(about(asked, Reply::empty(StatusCode::OK)))
}

/// An empty document removes the retention.
pub(crate) fn parse(document: &[u8]) -> Result<Option<Retention>, S3Error> {
    let (mut mode, mut until) = (None, None);
    walk(document, &mut |path, text| {
        match path {
            "Retention" => {}
            "Retention/Mode" => mode = Some(lock::parse_mode(text.trim())),
            "Retention/RetainUntilDate" => until = Some(lock::parse_until(text.trim())),
            _ => return Err(Malformed::because("an unknown element")),
        }
        Ok(())
    })?;
    match (mode, until) {
        (None, None) => Ok(None),
        (Some(Some(mode)), Some(Some(until))) => Ok(Some(Retention { mode, until })),
        _ => Err(Code::MalformedXML.into()),
    }
}

#[cfg(test)]
mod tests {
    use margay_volume::RetentionMode;

    use super::*;

    #[test]
    fn documents() {
        let text =
            "<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>2030-01-01T00:00:00Z</RetainUntilDate></Retention>";
        assert_eq!(parse(text.as_bytes()).unwrap().unwrap().mode, RetentionMode::Compliance);
        assert_eq!(parse(b"<Retention/>").unwrap(), None);
        for bad in ["<Retention><Mode>COMPLIANCE</Mode></Retention>", "<Retention><Mode>abc</Mode></Retention>", "<X/>"]
        {
            assert_eq!(parse(bad.as_bytes()).unwrap_err().code, Code::MalformedXML);
        }
    }
}
