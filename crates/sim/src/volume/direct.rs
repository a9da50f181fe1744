//! The workload's operations as calls of a volume.

use std::sync::Arc;

use bytes::Bytes;
use margay_volume::{
    CopyRequest, DeleteRequest, Documents, ETag, Error, Headers, ListItem, ListRequest, PartChoice, PutRequest,
    ReadCondition, Staged, Volume, WriteCondition,
};

use crate::blob::Blob;
use crate::ledger::Content;
use crate::target::{BUCKET, Part, Target, Trouble};

pub(crate) struct Direct(pub(crate) Arc<Volume>);

/// Any digest does: the volume stores what a door computed.
fn etag(blob: Blob) -> ETag {
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&blob.tag.to_be_bytes());
    digest[8..].copy_from_slice(&(blob.len as u64).to_be_bytes());
    ETag { digest, parts: 0 }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error {
            Error::ReadOnly(_)
            | Error::Io(_)
            | Error::Unavailable(_)
            | Error::StoreUnavailable(_)
            | Error::OutcomeUnknown => Trouble::Unknown(error.to_string()),
            _ => Trouble::Refused(error.to_string()),
        }
    }
}

impl Direct {
    async fn stage(&self, blob: Blob) -> Result<Staged, Error> {
        let mut upload = self.0.begin_upload(BUCKET, blob.len as u64).await?;
        for piece in blob.bytes().chunks(50_000) {
            upload.write(Bytes::copy_from_slice(piece)).await?;
        }
        upload.finish().await
    }

    async fn page(&self, prefix: &str, delimiter: Option<&str>) -> Result<Vec<(String, u64)>, Trouble> {
        let mut items = Vec::new();
        let mut after: Option<(String, bool)> = None;
        loop {
            let request = ListRequest {
                bucket: BUCKET,
                prefix,
                delimiter,
                after: after.as_ref().map(|(key, _)| key.as_str()),
                after_is_prefix: after.as_ref().is_some_and(|(_, is_prefix)| *is_prefix),
                max: 7,
            };
            let mut visit = |item: ListItem<'_>| match item {
                ListItem::Object { key, size, .. } => items.push((key.to_owned(), size)),
                ListItem::Prefix(prefix) => items.push((prefix.to_owned(), 0)),
            };
            let outcome = self.0.list(&request, &mut visit).await?;
            match outcome.next {
                Some(next) => after = Some(next),
                None => return Ok(items),
            }
        }
    }
}

/// `false` for the errors that say that it could not be done on what is there.
fn done(outcome: Result<(), Error>) -> Result<bool, Trouble> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Error::NoSuchKey | Error::PreconditionFailed) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl Target for Direct {
    async fn make_bucket(&self) -> Result<(), Trouble> {
        match self.0.create_bucket(BUCKET).await {
            Ok(_) | Err(Error::BucketExists) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn put(&self, key: &str, blob: Blob) -> Result<(), Trouble> {
        let staged = self.stage(blob).await?;
        let condition = WriteCondition::None;
        let request = PutRequest {
            bucket: BUCKET,
            key,
            etag: etag(blob),
            headers: Headers::new(),
            condition,
            ..PutRequest::default()
        };
        self.0.put_object(request, staged).await?;
        Ok(())
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Trouble> {
        let reader = match self.0.get_object(BUCKET, key, &ReadCondition::default()).await {
            Err(Error::NoSuchKey) => return Ok(None),
            reader => reader?,
        };
        let mut body = Vec::new();
        loop {
            let bytes = reader.read(body.len() as u64, u64::MAX).await?;
            if bytes.is_empty() {
                return Ok(Some(body));
            }
            body.extend_from_slice(&bytes);
        }
    }

    async fn delete(&self, key: &str) -> Result<(), Trouble> {
        self.0.delete_object(BUCKET, &DeleteRequest::of(key)).await?;
        Ok(())
    }

    async fn copy(&self, from: &str, to: &str) -> Result<bool, Trouble> {
        let request =
            CopyRequest { source_bucket: BUCKET, source_key: from, bucket: BUCKET, key: to, ..CopyRequest::default() };
        done(self.0.copy_object(request).await.map(drop))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<bool, Trouble> {
        done(self.0.rename(BUCKET, from, to, &WriteCondition::None).await)
    }

    async fn create_upload(&self, key: &str) -> Result<String, Trouble> {
        Ok(self.0.create_multipart(BUCKET, key, Headers::new(), Documents::new()).await?.upload)
    }

    async fn put_part(&self, key: &str, upload: &str, number: u16, blob: Blob) -> Result<String, Trouble> {
        let staged = self.stage(blob).await?;
        let part = self.0.put_part(BUCKET, key, upload, number, etag(blob), Headers::new(), staged).await?;
        Ok(part.etag.to_string())
    }

    async fn complete(&self, key: &str, upload: &str, parts: &[(u16, Part)]) -> Result<(), Trouble> {
        let choice = |(number, part): &(u16, Part)| PartChoice { number: *number, etag: etag(part.blob) };
        let choices: Vec<PartChoice> = parts.iter().map(choice).collect();
        let none = WriteCondition::None;
        self.0.complete_multipart(BUCKET, key, upload, &choices, Headers::new(), &none).await?;
        Ok(())
    }

    async fn abort(&self, key: &str, upload: &str) -> Result<(), Trouble> {
        Ok(self.0.abort_multipart(BUCKET, key, upload).await?)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, Trouble> {
        self.page(prefix, None).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Vec<String>, Trouble> {
        Ok(self.page(prefix, Some("/")).await?.into_iter().map(|(name, _)| name).collect())
    }

    async fn uploads(&self) -> Result<Vec<(String, String)>, Trouble> {
        let (uploads, more) = self.0.list_multipart(BUCKET, "", None, 10_000).await?;
        assert!(!more, "there are never so many");
        Ok(uploads.into_iter().map(|upload| (upload.key, upload.upload)).collect())
    }

    async fn parts(&self, key: &str, upload: &str) -> Result<Vec<(u16, u64)>, Trouble> {
        let (parts, _) = self.0.list_parts(BUCKET, key, upload, 0, 10_000).await?;
        Ok(parts.into_iter().map(|part| (part.number, part.size)).collect())
    }
}

/// What all objects together must add up to.
pub(super) fn sum<'a>(contents: impl Iterator<Item = &'a Content>) -> margay_volume::Usage {
    contents.fold(margay_volume::Usage::default(), |sum, content| margay_volume::Usage {
        objects: sum.objects + 1,
        bytes: sum.bytes + content.len,
        versions: 0,
    })
}
