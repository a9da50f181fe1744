//! CreateBucket.

use bytes::Bytes;
use http::StatusCode;
use margay_iam::acl::Acl;
use margay_volume::{NewBucket, RequestRows, Setting};

use super::Call;
use crate::access::ownership::Ownership;
use crate::access::rules::BucketRules;
use crate::access::{acl_document, grants};
use crate::error::{Code, S3Error};
use crate::headers::text;
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::read::walk;

/// The region in which creating an existing bucket succeeds.
const LENIENT_REGION: &str = "us-east-1";

pub(crate) async fn run(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let document = payload.document(call.headers, true).await?;
    if !document.is_empty() {
        check(&document)?;
    }
    let new = new_bucket(call)?;
    match call.volume.create_bucket_with(call.bucket(), &new).await {
        Err(margay_volume::Error::BucketExists) => exists(call, &new).await?,
        other => drop(other?),
    }
    Reply::empty(StatusCode::OK).header(http::header::LOCATION, &format!("/{}", call.bucket()))
}

/// Owner and settings from the headers.
fn new_bucket(call: &Call<'_>) -> Result<NewBucket, S3Error> {
    let account = call.account();
    let object_lock =
        text(call.headers, "x-amz-bucket-object-lock-enabled")?.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let mut new = NewBucket { object_lock, ..NewBucket::default() };
    if account.id != call.access.root.id {
        new.owner = account.id.clone();
    }
    let ownership = match text(call.headers, "x-amz-object-ownership")? {
        None => None,
        Some(name) => Some(Ownership::of_name(name).ok_or_else(|| {
            S3Error::argument("x-amz-object-ownership", name, "Invalid x-amz-object-ownership header")
        })?),
    };
    if let Some(ownership) = ownership {
        new.settings.insert(Setting::OwnershipControls, Bytes::from_static(ownership.name().as_bytes()));
    }
    if let Some(wish) = grants::wish(call.headers, &*call.access.identities)? {
        let acl = wish.into_acl(&account.canonical_id, &account.canonical_id);
        if acl != Acl::private(&account.canonical_id) {
            if ownership == Some(Ownership::BucketOwnerEnforced) {
                return Err(Code::InvalidBucketAclWithObjectOwnership.into());
            }
            new.settings.insert(Setting::Acl, acl_document::encode(&acl).into());
        }
    }
    Ok(new)
}

/// Whether creating an existing bucket succeeds. In this one region AWS confirms it to the owner, and replaces the
/// access list. Here a different list is refused, since nobody expects a creation to change access.
async fn exists(call: &Call<'_>, new: &NewBucket) -> Result<(), S3Error> {
    let refused = |code: Code| Err(S3Error::from(code).with("BucketName", call.bucket()));
    let rules = BucketRules::of(call.volume.view(&RequestRows::default()), call.bucket()).await?;
    if call.access.owner(&rules.owner).id != call.account().id {
        return refused(Code::BucketAlreadyExists);
    }
    if call.options.region != LENIENT_REGION {
        return refused(Code::BucketAlreadyOwnedByYou);
    }
    for (setting, code) in
        [(Setting::Acl, Code::BucketAlreadyExists), (Setting::OwnershipControls, Code::BucketAlreadyOwnedByYou)]
    {
        let stored = call.volume.bucket_setting(call.bucket(), setting).await?;
        let asked = new.settings.get(&setting);
        if stored.as_ref() != asked && (setting == Setting::Acl || asked.is_some()) {
            return refused(code);
        }
    }
    match new.object_lock {
        true => match call.volume.object_lock(call.bucket()).await {
            Err(margay_volume::Error::NoObjectLock) => refused(Code::BucketAlreadyOwnedByYou),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        },
        false => Ok(()),
    }
}

/// This server accepts every region, so every location constraint is accepted; other elements are refused.
pub(crate) fn check(document: &[u8]) -> Result<(), S3Error> {
    let mut unknown = None;
    let mut root = false;
    walk(document, &mut |path, _| {
        match path {
            "CreateBucketConfiguration" => root = true,
            "CreateBucketConfiguration/LocationConstraint" => {}
            other => {
                unknown.get_or_insert_with(|| other.to_owned());
            }
        }
        Ok(())
    })?;
    match (root, unknown) {
        (true, None) => Ok(()),
        (true, Some(element)) => Err(S3Error::not_implemented(&format!("element {element}"))),
        (false, _) => Err(Code::MalformedXML.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_location_is_taken() {
        let document = |inside: &str| format!("<CreateBucketConfiguration>{inside}</CreateBucketConfiguration>");
        let code = |text: &str| check(text.as_bytes()).map_err(|error| error.code);
        assert_eq!(code(&document("<LocationConstraint>eu-west-1</LocationConstraint>")), Ok(()));
        assert_eq!(code(&document("")), Ok(()));
        assert_eq!(code(&document("<Bucket><Type>Directory</Type></Bucket>")), Err(Code::NotImplemented));
        assert_eq!(code("<Other/>"), Err(Code::MalformedXML));
        assert_eq!(code("<CreateBucketConfiguration>"), Err(Code::MalformedXML));
    }
}
