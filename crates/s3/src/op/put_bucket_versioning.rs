//! PutBucketVersioning.

use http::StatusCode;
use margay_volume::Versioning;

use super::Call;
use crate::error::{Code, S3Error};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::read::{Malformed, walk};

pub(crate) async fn run(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let versioning = parse(&payload.document(call.headers, true).await?)?;
    call.volume.set_versioning(call.bucket(), versioning).await?;
    Ok(Reply::empty(StatusCode::OK))
}

/// MFA delete may only be disabled, which it is anyway.
pub(crate) fn parse(document: &[u8]) -> Result<Versioning, S3Error> {
    let (mut status, mut mfa_delete) = (None, None);
    walk(document, &mut |path, text| {
        match path {
            "VersioningConfiguration" => {}
            "VersioningConfiguration/Status" => status = Some(text.trim().to_owned()),
            "VersioningConfiguration/MfaDelete" => mfa_delete = Some(text.trim().to_owned()),
            _ => return Err(Malformed::because("an unknown element")),
        }
        Ok(())
    })?;
    match mfa_delete.as_deref() {
        None | Some("Disabled") => {}
        Some("Enabled") => return Err(S3Error::not_implemented("element MfaDelete with the value Enabled")),
        Some(_) => return Err(Code::MalformedXML.into()),
    }
    match status.as_deref() {
        Some("Enabled") => Ok(Versioning::Enabled),
        Some("Suspended") => Ok(Versioning::Suspended),
        Some(_) => Err(Code::MalformedXML.into()),
        None => Err(Code::IllegalVersioningConfigurationException.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents() {
        let of = |inside: &str| {
            let document = format!("<VersioningConfiguration xmlns=\"x\">{inside}</VersioningConfiguration>");
            parse(document.as_bytes()).map_err(|error| error.code)
        };
        assert_eq!(of("<Status>Enabled</Status>"), Ok(Versioning::Enabled));
        assert_eq!(of("<MfaDelete>Disabled</MfaDelete><Status>Suspended</Status>"), Ok(Versioning::Suspended));
        assert_eq!(of("<Status>enabled</Status>"), Err(Code::MalformedXML));
        assert_eq!(of("<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>"), Err(Code::NotImplemented));
        assert_eq!(of("<Other/>"), Err(Code::MalformedXML));
        assert_eq!(of(""), Err(Code::IllegalVersioningConfigurationException));
    }
}
