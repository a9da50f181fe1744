//! The operations, one file each.
//!
//! Why:        one file shows an operation completely: its input, its call of the volume, its response.
//! Invariants: O1 an operation checks everything that needs no body before it reads the body.
//! Not here:   the volume's operations (volume), routing (route).

mod abort_multipart_upload;
mod acl;
mod append;
pub(crate) mod bucket_accelerate;
mod bucket_cors;
mod bucket_encryption;
mod bucket_lifecycle;
mod bucket_logging;
mod bucket_notification;
mod bucket_policy;
pub(crate) mod bucket_request_payment;
mod bucket_tagging;
mod bucket_website;
mod checksum;
pub(crate) mod complete_multipart_upload;
mod copy_object;
pub(crate) mod create_bucket;
mod create_multipart_upload;
mod delete_bucket;
mod delete_object;
pub(crate) mod delete_objects;
pub(crate) mod encryption;
mod get_bucket_location;
mod get_bucket_versioning;
pub(crate) mod get_object;
mod get_object_attributes;
mod head_bucket;
pub(crate) mod head_object;
mod list_buckets;
mod list_multipart_uploads;
mod list_object_versions;
mod list_objects;
mod list_objects_v2;
mod list_parts;
mod listing;
mod listing_metadata;
mod move_bytes;
pub(crate) mod object_lock;
mod object_tagging;
mod ownership_controls;
mod public_access_block;
pub(crate) mod put_bucket_versioning;
mod put_object;
mod remove_setting;
mod rename_object;
mod select_object_content;
mod sent_body;
pub(crate) mod token;
mod unset;
mod upload_part;
pub(crate) mod upload_part_copy;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use margay_env::Timestamp;
use margay_iam::registry::Account;
use margay_volume::{Document, Documents, RequestRows, Setting, View, Volume};

pub(crate) use self::rename_object::RecentRenames;
use crate::access::rules::BucketRules;
use crate::access::{Access, Ask, Asker, acl_document};
use crate::auth::Host;
use crate::error::{Code, S3Error};
use crate::headers::copy_source::parse_copy_source;
use crate::lifecycle::{self, Subject};
use crate::options::Options;
use crate::payload::Payload;
use crate::reply::Reply;
use crate::route::policy::Op;
use crate::route::query::Query;
use crate::route::target::Target;
use crate::xml::write::Writer;

/// A request whose sender, operation and headers were checked.
pub(crate) struct Call<'r> {
    pub volume: &'r Arc<Volume>,
    /// The rows that the request has read; see [`Call::view`].
    pub rows: &'r RequestRows,
    pub access: &'r Access,
    pub asker: Asker<'r>,
    pub options: &'r Options,
    pub renames: &'r RecentRenames,
    pub op: Op,
    pub target: &'r Target,
    pub query: &'r Query,
    pub headers: &'r HeaderMap,
    /// As the request names it.
    pub host: &'r Host,
}

impl Call<'_> {
    pub(crate) fn bucket(&self) -> &str {
        &self.target.bucket
    }

    pub(crate) fn key(&self) -> &str {
        &self.target.key
    }

    /// The document of a bucket's setting, or an error that it does not exist.
    pub(crate) async fn setting(&self, setting: Setting, none: Code) -> Result<Bytes, S3Error> {
        let document = self.volume.bucket_setting(self.bucket(), setting).await?;
        document.ok_or_else(|| S3Error::from(none).with("BucketName", self.bucket()))
    }

    /// The volume with the rows that this request has read. For reads before the request has changed anything.
    pub(crate) fn view(&self) -> View<'_> {
        self.volume.view(self.rows)
    }

    /// The input of authorization.
    pub(crate) fn ask(&self) -> Ask<'_> {
        Ask {
            access: self.access,
            volume: self.volume,
            rows: self.rows,
            asker: self.asker,
            op: self.op,
            target: self.target,
            query: self.query,
            headers: self.headers,
        }
    }

    /// The owner of the bucket as an XML element.
    pub(crate) async fn owner(&self, element: &str) -> Result<String, S3Error> {
        let rules = BucketRules::of(self.view(), self.bucket()).await?;
        Ok(account(element, &self.access.owner(&rules.owner)))
    }

    /// Adds the time at which the bucket's lifecycle will expire an object, if it will.
    pub(crate) async fn add_expiration(
        &self,
        headers: &mut HeaderMap,
        (size, modified): (u64, Timestamp),
        documents: &Documents,
    ) -> Result<(), S3Error> {
        let tags = lifecycle::tags(documents);
        let subject = Subject { key: self.key(), size, modified, tags: Some(&tags) };
        if let Some(value) = lifecycle::expiration(self.view(), self.bucket(), &subject).await {
            let value = HeaderValue::from_str(&value).map_err(|error| S3Error::internal(&error))?;
            headers.insert(HeaderName::from_static("x-amz-expiration"), value);
        }
        Ok(())
    }

    /// Initiator and owner of an upload, as XML elements: the owner in its access list, else the owner of the bucket.
    pub(crate) async fn owners_of_upload(&self, documents: &Documents) -> Result<String, S3Error> {
        let list = documents.get(&Document::Acl).and_then(|bytes| acl_document::decode(bytes));
        let Some(list) = list else { return Ok(self.owner("Initiator").await? + &self.owner("Owner").await?) };
        let mut out = BytesMut::with_capacity(320);
        for element in ["Initiator", "Owner"] {
            acl_document::write_owner(&mut Writer::new(&mut out), element, &list.owner, &*self.access.identities);
        }
        String::from_utf8(out.into()).map_err(|error| S3Error::internal(&error))
    }

    /// A required query parameter of this operation.
    pub(crate) fn required(&self, name: &'static str) -> Result<&str, S3Error> {
        self.query.get(name).ok_or_else(|| S3Error::argument(name, "", format!("{name} is required")))
    }

    /// The part number, within its limits.
    pub(crate) fn part_number(&self) -> Result<u16, S3Error> {
        let text = self.required("partNumber")?;
        let number = text.parse::<u16>().ok().filter(|number| (1..=margay_volume::PART_NUMBER_MAX).contains(number));
        number.ok_or_else(|| {
            S3Error::argument("partNumber", text, "Part number must be an integer between 1 and 10000, inclusive")
        })
    }

    /// Refuses a request that expects another bucket owner.
    pub(crate) async fn check_owner(&self) -> Result<(), S3Error> {
        self.check_owner_of("x-amz-expected-bucket-owner", self.bucket()).await?;
        if self.headers.contains_key("x-amz-source-expected-bucket-owner") {
            let source = parse_copy_source("x-amz-copy-source", self.ask().header("x-amz-copy-source")?)?;
            self.check_owner_of("x-amz-source-expected-bucket-owner", &source.bucket).await?;
        }
        Ok(())
    }

    async fn check_owner_of(&self, header: &str, bucket: &str) -> Result<(), S3Error> {
        let Some(expected) = self.headers.get(header) else { return Ok(()) };
        let owner = match BucketRules::of(self.view(), bucket).await {
            Ok(rules) => self.access.owner(&rules.owner),
            // The caller will own the bucket.
            Err(margay_volume::Error::NoSuchBucket) if self.op == Op::CreateBucket => self.account(),
            Err(error) => return Err(error.into()),
        };
        if expected.as_bytes() == owner.id.as_bytes() { Ok(()) } else { Err(Code::AccessDenied.into()) }
    }

    /// The caller's account; root's for an anonymous caller, who owns nothing.
    pub(crate) fn account(&self) -> Arc<Account> {
        Arc::clone(self.asker.identity.map_or(&self.access.root, |identity| &identity.account))
    }
}

/// An account as an XML element.
pub(crate) fn account(element: &str, account: &Account) -> String {
    let mut out = BytesMut::with_capacity(160);
    let mut writer = Writer::new(&mut out);
    writer.open(element);
    writer.text("ID", &account.canonical_id);
    writer.text("DisplayName", &account.display_name);
    writer.close(element);
    String::from_utf8(out.into()).expect("made from text")
}

/// Runs the operation.
pub(crate) async fn run(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    call.check_owner().await?;
    dispatch(call, payload).await
}

async fn dispatch(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    match call.op {
        Op::AbortMultipartUpload => abort_multipart_upload::run(call).await,
        Op::CompleteMultipartUpload => complete_multipart_upload::run(call, payload).await,
        Op::CopyObject => copy_object::run(call).await,
        Op::CreateBucket => create_bucket::run(call, payload).await,
        Op::CreateMultipartUpload => create_multipart_upload::run(call).await,
        Op::DeleteBucket => delete_bucket::run(call).await,
        Op::DeleteObject => delete_object::run(call).await,
        Op::DeleteObjectTagging => object_tagging::delete(call).await,
        Op::DeleteObjects => delete_objects::run(call, payload).await,
        Op::GetBucketLocation => get_bucket_location::run(call).await,
        Op::GetObject => get_object::run(call).await,
        Op::GetObjectLegalHold => object_lock::legal_hold::get(call).await,
        Op::GetObjectRetention => object_lock::retention::get(call).await,
        Op::GetObjectAttributes => get_object_attributes::run(call).await,
        Op::GetObjectTagging => object_tagging::get(call).await,
        Op::HeadBucket => head_bucket::run(call).await,
        Op::HeadObject => head_object::run(call).await,
        Op::ListBuckets => list_buckets::run(call).await,
        Op::ListMultipartUploads => list_multipart_uploads::run(call).await,
        Op::ListObjectVersions => list_object_versions::run(call).await,
        Op::ListObjects => list_objects::run(call).await,
        Op::ListObjectsV2 => list_objects_v2::run(call).await,
        Op::ListParts => list_parts::run(call).await,
        Op::PutObjectLegalHold => object_lock::legal_hold::put(call, payload).await,
        Op::PutObjectRetention => object_lock::retention::put(call, payload).await,
        Op::PutObject => put_object::run(call, payload).await,
        Op::PutObjectTagging => object_tagging::put(call, payload).await,
        Op::RenameObject => rename_object::run(call).await,
        Op::SelectObjectContent => select_object_content::run(call, payload).await,
        Op::UploadPart => upload_part::run(call, payload).await,
        Op::UploadPartCopy => upload_part_copy::run(call).await,
        _ => dispatch_setting(call, payload).await,
    }
}

/// Bucket settings and access lists.
async fn dispatch_setting(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    match call.op {
        Op::DeleteBucketOwnershipControls => ownership_controls::delete(call).await,
        Op::DeleteBucketPolicy => bucket_policy::delete(call).await,
        Op::DeletePublicAccessBlock => public_access_block::delete(call).await,
        Op::GetBucketOwnershipControls => ownership_controls::get(call).await,
        Op::GetBucketPolicy => bucket_policy::get(call).await,
        Op::GetBucketPolicyStatus => bucket_policy::status(call).await,
        Op::GetPublicAccessBlock => public_access_block::get(call).await,
        Op::PutBucketAcl | Op::PutObjectAcl => acl::put(call, payload).await,
        Op::PutBucketOwnershipControls => ownership_controls::put(call, payload).await,
        Op::PutBucketPolicy => bucket_policy::put(call, payload).await,
        Op::PutPublicAccessBlock => public_access_block::put(call, payload).await,
        Op::DeleteBucketCors => remove_setting::run(call, Setting::Cors).await,
        Op::DeleteBucketEncryption => remove_setting::run(call, Setting::Encryption).await,
        Op::DeleteBucketLifecycle => remove_setting::run(call, Setting::Lifecycle).await,
        Op::DeleteBucketTagging => remove_setting::run(call, Setting::Tagging).await,
        Op::DeleteBucketWebsite => remove_setting::run(call, Setting::Website).await,
        Op::GetBucketAcl | Op::GetObjectAcl => acl::get(call).await,
        Op::GetBucketCors => bucket_cors::get(call).await,
        Op::GetBucketEncryption => bucket_encryption::get(call).await,
        Op::GetBucketLifecycleConfiguration => bucket_lifecycle::get(call).await,
        Op::GetBucketLogging => bucket_logging::get(call).await,
        Op::GetBucketNotificationConfiguration => bucket_notification::get(call).await,
        Op::GetBucketRequestPayment => bucket_request_payment::get(call).await,
        Op::GetBucketTagging => bucket_tagging::get(call).await,
        Op::GetBucketWebsite => bucket_website::get(call).await,
        Op::GetBucketVersioning => get_bucket_versioning::run(call).await,
        Op::GetObjectLockConfiguration => object_lock::configuration::get(call).await,
        Op::PutBucketAccelerateConfiguration => bucket_accelerate::put(call, payload).await,
        Op::PutBucketCors => bucket_cors::put(call, payload).await,
        Op::PutBucketEncryption => bucket_encryption::put(call, payload).await,
        Op::PutBucketLifecycleConfiguration => bucket_lifecycle::put(call, payload).await,
        Op::PutBucketLogging => bucket_logging::put(call, payload).await,
        Op::PutBucketNotificationConfiguration => bucket_notification::put(call, payload).await,
        Op::PutBucketRequestPayment => bucket_request_payment::put(call, payload).await,
        Op::PutBucketTagging => bucket_tagging::put(call, payload).await,
        Op::PutBucketWebsite => bucket_website::put(call, payload).await,
        Op::PutBucketVersioning => put_bucket_versioning::run(call, payload).await,
        Op::PutObjectLockConfiguration => object_lock::configuration::put(call, payload).await,
        _ => unset::run(call).await,
    }
}
