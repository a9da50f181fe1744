//! GetObjectLockConfiguration and PutObjectLockConfiguration.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::{DefaultRetention, Error, RETENTION_DAYS_MAX, RETENTION_YEARS_MAX, RetentionPeriod};

use crate::error::{Code, S3Error};
use crate::headers::lock;
use crate::op::Call;
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::read::{Malformed, walk};
use crate::xml::write::Writer;

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let default = match call.volume.object_lock(call.bucket()).await {
        Ok(default) => default,
        Err(Error::NoObjectLock) => {
            return Err(S3Error::from(Code::ObjectLockConfigurationNotFoundError).with("BucketName", call.bucket()));
        }
        Err(error) => return Err(error.into()),
    };
    let mut out = BytesMut::with_capacity(320);
    let mut writer = Writer::new(&mut out);
    writer.root("ObjectLockConfiguration");
    writer.text("ObjectLockEnabled", "Enabled");
    if let Some(DefaultRetention { mode, period }) = default {
        writer.open("Rule");
        writer.open("DefaultRetention");
        writer.text("Mode", lock::mode_name(mode));
        match period {
            RetentionPeriod::Days(days) => writer.number("Days", days.into()),
            RetentionPeriod::Years(years) => writer.number("Years", years.into()),
        }
        writer.close("DefaultRetention");
        writer.close("Rule");
    }
    writer.close("ObjectLockConfiguration");
    Ok(Reply::xml(out))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let default = parse(&payload.document(call.headers, true).await?)?;
    call.volume.set_object_lock(call.bucket(), default).await?;
    Ok(Reply::empty(StatusCode::OK))
}

pub(crate) fn parse(document: &[u8]) -> Result<Option<DefaultRetention>, S3Error> {
    let (mut enabled, mut rule, mut mode, mut days, mut years) = (None, false, None, None, None);
    walk(document, &mut |path, text| {
        let text = text.trim();
        match path {
            "ObjectLockConfiguration" | "ObjectLockConfiguration/Rule" => {}
            "ObjectLockConfiguration/ObjectLockEnabled" => enabled = Some(text == "Enabled"),
            "ObjectLockConfiguration/Rule/DefaultRetention" => rule = true,
            "ObjectLockConfiguration/Rule/DefaultRetention/Mode" => mode = Some(lock::parse_mode(text)),
            "ObjectLockConfiguration/Rule/DefaultRetention/Days" => days = Some(text.parse::<i64>().ok()),
            "ObjectLockConfiguration/Rule/DefaultRetention/Years" => years = Some(text.parse::<i64>().ok()),
            _ => return Err(Malformed::because("an unknown element")),
        }
        Ok(())
    })?;
    if enabled == Some(false) || (rule && mode.flatten().is_none()) {
        return Err(Code::MalformedXML.into());
    }
    let Some(mode) = mode.flatten() else { return Ok(None) };
    let within = |count: Option<i64>, max: u32| -> Result<u32, S3Error> {
        let count = count.ok_or(Code::MalformedXML)?;
        let fits = u32::try_from(count).ok().filter(|count| (1..=max).contains(count));
        fits.ok_or_else(|| S3Error::from(Code::InvalidRetentionPeriod))
    };
    let period = match (days, years) {
        (Some(days), None) => RetentionPeriod::Days(within(days, RETENTION_DAYS_MAX)?),
        (None, Some(years)) => RetentionPeriod::Years(within(years, RETENTION_YEARS_MAX)?),
        _ => return Err(Code::MalformedXML.into()),
    };
    Ok(Some(DefaultRetention { mode, period }))
}

#[cfg(test)]
mod tests {
    use margay_volume::RetentionMode;

    use super::*;

    fn configuration(rule: &str) -> Result<Option<DefaultRetention>, Code> {
        let document = format!(
            "<ObjectLockConfiguration xmlns=\"x\"><ObjectLockEnabled>Enabled</ObjectLockEnabled>{rule}\
             </ObjectLockConfiguration>"
        );
        parse(document.as_bytes()).map_err(|error| error.code)
    }

    #[test]
    fn configurations() {
        let rule = |inside: &str| configuration(&format!("<Rule><DefaultRetention>{inside}</DefaultRetention></Rule>"));
        let default = |period| Ok(Some(DefaultRetention { mode: RetentionMode::Governance, period }));
        assert_eq!(configuration(""), Ok(None));
        assert_eq!(rule("<Mode>GOVERNANCE</Mode><Days>3</Days>"), default(RetentionPeriod::Days(3)));
        assert_eq!(rule("<Mode>GOVERNANCE</Mode><Years>1</Years>"), default(RetentionPeriod::Years(1)));
        for period in ["<Days>0</Days>", "<Years>-1</Years>", "<Days>36501</Days>", "<Years>101</Years>"] {
            assert_eq!(rule(&format!("<Mode>COMPLIANCE</Mode>{period}")), Err(Code::InvalidRetentionPeriod));
        }
        for bad in ["<Mode>governance</Mode><Days>1</Days>", "<Days>1</Days>", "<Mode>GOVERNANCE</Mode>", ""] {
            assert_eq!(rule(bad), Err(Code::MalformedXML), "{bad}");
        }
        assert_eq!(rule("<Mode>GOVERNANCE</Mode><Days>1</Days><Years>1</Years>"), Err(Code::MalformedXML));
        let off = b"<ObjectLockConfiguration><ObjectLockEnabled>Disabled</ObjectLockEnabled></ObjectLockConfiguration>";
        assert_eq!(parse(off).unwrap_err().code, Code::MalformedXML);
    }
}
