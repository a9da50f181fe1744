//! DeleteObjects.

use bytes::BytesMut;
use margay_volume::{DeleteRequest, Deleted, KEY_BYTES_MAX, WriteCondition};

use super::Call;
use crate::access::asked::{Asked, BYPASS_GOVERNANCE, On};
use crate::body::Algorithm;
use crate::error::{S3Error, key_too_long};
use crate::headers::{etag, lock, version};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::read::{Malformed, walk};
use crate::xml::write::Writer;

/// Maximum number of keys in a request.
const KEYS_MAX: usize = 1000;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Deletions {
    quiet: bool,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    version: Option<String>,
    etag: Option<String>,
}

pub(crate) async fn run(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let is_vouched_for = call.headers.contains_key("content-md5")
        || call.headers.contains_key("x-amz-trailer")
        || Algorithm::ALL.iter().any(|algorithm| call.headers.contains_key(algorithm.header()));
    if !is_vouched_for {
        return Err(S3Error::invalid_request("Missing required header for this request: Content-MD5"));
    }
    call.view().head_bucket(call.bucket()).await?;
    let bypass_governance = lock::bypasses_governance(call.headers)?;
    let deletions = parse(&payload.document(call.headers, true).await?)?;
    // Invalid entries already have their error; the others go to the volume in one call.
    let mut outcomes: Vec<Result<Deleted, S3Error>> = Vec::with_capacity(deletions.entries.len());
    let mut tried = Vec::with_capacity(deletions.entries.len());
    for entry in &deletions.entries {
        let outcome = allowed(call, entry, bypass_governance).await.map(|request| {
            tried.push(request);
            Deleted::default()
        });
        outcomes.push(outcome);
    }
    let mut results = call.volume.delete_objects(call.bucket(), &tried).await?.into_iter();
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
        let result = results.next().ok_or_else(|| S3Error::internal(&"fewer outcomes than deleted keys"))?;
        *outcome = result.map_err(S3Error::from);
    }
    Ok(reply(&deletions, &outcomes))
}

/// The deletion of an entry, if the caller is authorized.
async fn allowed<'e>(call: &Call<'_>, entry: &'e Entry, bypass_governance: bool) -> Result<DeleteRequest<'e>, S3Error> {
    let request = request(entry, bypass_governance)?;
    let action = if entry.version.is_some() { "s3:DeleteObjectVersion" } else { "s3:DeleteObject" };
    let asked = |action, on| Asked {
        action,
        on,
        bucket: call.bucket().to_owned(),
        key: entry.key.clone(),
        version: request.version,
    };
    call.access.require(&call.ask(), &asked(action, On::Entry)).await?;
    if bypass_governance {
        call.access.require(&call.ask(), &asked(BYPASS_GOVERNANCE, On::Attached)).await?;
    }
    Ok(request)
}

fn request(entry: &Entry, bypass_governance: bool) -> Result<DeleteRequest<'_>, S3Error> {
    if entry.key.len() > KEY_BYTES_MAX {
        return Err(key_too_long());
    }
    let version = entry.version.as_deref().map(|text| version::parse("VersionId", text)).transpose()?;
    let condition = match entry.etag.as_deref() {
        None => WriteCondition::None,
        Some("*") => WriteCondition::Present,
        Some(text) => WriteCondition::Matches(etag::parse(text).into_iter().collect()),
    };
    Ok(DeleteRequest { key: &entry.key, version, condition, bypass_governance })
}

pub(crate) fn parse(document: &[u8]) -> Result<Deletions, S3Error> {
    let mut deletions = Deletions::default();
    let mut entry = Entry::default();
    let mut unknown = None;
    walk(document, &mut |path, text| {
        match path {
            "Delete" => {}
            "Delete/Quiet" => deletions.quiet = text.trim().eq_ignore_ascii_case("true"),
            "Delete/Object/Key" => entry.key = text.to_owned(),
            "Delete/Object/VersionId" => entry.version = Some(text.trim().to_owned()),
            "Delete/Object/ETag" => entry.etag = Some(text.trim().to_owned()),
            "Delete/Object" => {
                if entry.key.is_empty() {
                    return Err(Malformed::because("an object without a key"));
                }
                deletions.entries.push(std::mem::take(&mut entry));
                if deletions.entries.len() > KEYS_MAX {
                    return Err(Malformed::because("more than 1000 keys"));
                }
            }
            other if other.starts_with("Delete/Object/") => {
                unknown.get_or_insert_with(|| other.to_owned());
            }
            _ => return Err(Malformed::because("an unknown element")),
        }
        Ok(())
    })?;
    match unknown {
        Some(element) => Err(S3Error::not_implemented(&format!("element {element}"))),
        None if deletions.entries.is_empty() => Err(Malformed::because("no keys").into()),
        None => Ok(deletions),
    }
}

fn reply(deletions: &Deletions, outcomes: &[Result<Deleted, S3Error>]) -> Reply {
    let mut out = BytesMut::with_capacity(256 + deletions.entries.len() * 80);
    let mut writer = Writer::new(&mut out);
    writer.root("DeleteResult");
    for (entry, outcome) in deletions.entries.iter().zip(outcomes) {
        match outcome {
            Ok(_) if deletions.quiet => {}
            Ok(deleted) => {
                writer.open("Deleted");
                writer.text("Key", &entry.key);
                writer.optional("VersionId", entry.version.as_deref());
                if let Some(marker) = deleted.version.filter(|_| deleted.marker) {
                    writer.flag("DeleteMarker", true);
                    writer.text("DeleteMarkerVersionId", &marker.to_string());
                }
                writer.close("Deleted");
            }
            Err(error) => {
                writer.open("Error");
                writer.text("Key", &entry.key);
                writer.optional("VersionId", entry.version.as_deref());
                writer.text("Code", error.code.name());
                writer.text("Message", &error.message);
                writer.close("Error");
            }
        }
    }
    writer.close("DeleteResult");
    Reply::xml(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn keys_are_read_exactly() {
        let text = "<Delete><Quiet>true</Quiet><Object><Key> a&amp;b&#xA;</Key></Object>\
                    <Object><Key>c</Key><VersionId>null</VersionId><ETag>\"x\"</ETag></Object></Delete>";
        let deletions = parse(text.as_bytes()).unwrap();
        assert!(deletions.quiet);
        assert_eq!(deletions.entries[0].key, " a&b\n");
        // An ETag that no object can have must match nothing.
        let request = request(&deletions.entries[1], false).unwrap();
        assert_eq!(request.condition, WriteCondition::Matches(vec![]));
        assert_eq!(request.version, Some(margay_volume::VersionId::Null));
    }

    #[test]
    fn bad_documents_are_refused() {
        let code = |text: &str| parse(text.as_bytes()).unwrap_err().code;
        assert_eq!(code("<Delete></Delete>"), Code::MalformedXML);
        assert_eq!(code("<Delete><Object></Object></Delete>"), Code::MalformedXML);
        assert_eq!(code("<Delete><Nonsense/></Delete>"), Code::MalformedXML);
        assert_eq!(code("<Delete><Object><Key>a</Key><Size>1</Size></Object></Delete>"), Code::NotImplemented);
        let many = "<Object><Key>k</Key></Object>".repeat(1001);
        assert_eq!(code(&format!("<Delete>{many}</Delete>")), Code::MalformedXML);
    }
}
