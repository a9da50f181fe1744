//! Operations of the S3 side as values, and what can be seen of a bucket.

use margay_volume::*;

use super::*;

#[derive(Clone, Copy, Debug)]
pub enum Action {
    Put(&'static str, usize),
    /// At an offset, so many bytes.
    AppendTo(&'static str, u64, usize),
    PutAbsent(&'static str),
    /// Under the server's key.
    PutEncrypted(&'static str, usize),
    Delete(&'static str),
    /// In one request.
    DeleteBoth(&'static str, &'static str),
    Copy(&'static str, &'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    MakeDirectory(&'static str),
    PutPart,
    ReplacePart,
    Complete(&'static str),
    Abort,
    DeleteBucket,
    /// Of the versions that `a/x` had at the start, counted from the oldest.
    DeleteVersion(usize),
    /// Of the same versions: judged to be due.
    Expire(usize, DueVersion),
    /// Three operations: not for what others may come between.
    PutDeleteAndLook(&'static str),
    Set(Versioning),
}

use Action::*;

/// The upload that `PutPart`, `Complete` and `Abort` mean, and its part's body.
pub const PART: usize = 206;

/// Names that are known before the two operations run.
#[derive(Clone)]
pub struct Given {
    pub upload: String,
    /// The key that the upload is for.
    pub upload_key: &'static str,
    /// Of `a/x`, the oldest first.
    pub versions: Vec<VersionId>,
}

impl Default for Given {
    fn default() -> Given {
        Given { upload: String::new(), upload_key: "a/m", versions: Vec::new() }
    }
}

pub fn ok<T>(done: Result<T, Error>) -> String {
    match done {
        Ok(_) => "done".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

fn removed(done: Result<Deleted, Error>) -> String {
    // Numbers differ from order to order.
    format!("{:?}", done.map(|deleted| (deleted.removed, deleted.marker)))
}

fn put_encrypted(volume: &Volume, key: &str, body: &[u8]) -> Result<PutOutcome, Error> {
    let made = volume.new_data_key(&WrappingKey::Master)?;
    let staged = wait(async {
        let mut staging = volume.begin_encrypted_upload("b", body.len() as u64, &made.key).await?;
        staging.write(body.to_vec().into()).await?;
        staging.finish().await
    })?;
    let documents = [(Document::Encryption, made.document)].into();
    wait(
        volume.put_object(
            PutRequest { bucket: "b", key, etag: etag_of(body), documents, ..PutRequest::default() },
            staged,
        ),
    )
}

/// As lifecycle does: it lists the versions and judges them, and ends them later.
fn expire(volume: &Volume, given: &Given, which: usize, due: DueVersion) -> Result<bool, Error> {
    let id = given.versions.get(which).copied().unwrap_or(VersionId::Numbered(1 << 50));
    let request = ListVersionsRequest { bucket: "b", prefix: "a/x", delimiter: None, after: None, max: 1000 };
    let mut judged = None;
    wait(volume.list_versions(&request, &mut |item| match item {
        VersionItem::Version { version, modified, .. } | VersionItem::DeleteMarker { version, modified, .. }
            if version == id =>
        {
            judged = Some(modified);
        }
        _ => {}
    }))?;
    let Some(modified) = judged else { return Ok(false) };
    wait(volume.expire_version("b", ("a/x", id, modified), due, &Lease::alone()))
}

pub fn run(volume: &Volume, given: &Given, action: Action) -> String {
    let upload = given.upload.as_str();
    let stage = |len: usize| {
        wait(async {
            let mut staging = volume.begin_upload("b", len as u64).await?;
            staging.write(body_of(len, len).into()).await?;
            staging.finish().await
        })
    };
    let put = |key, len: usize, condition| {
        let staged = stage(len)?;
        let etag = etag_of(&body_of(len, len));
        wait(volume.put_object(
            PutRequest { bucket: "b", key, etag, headers: Headers::new(), condition, ..PutRequest::default() },
            staged,
        ))
    };
    match action {
        Put(key, len) => ok(put(key, len, WriteCondition::None)),
        AppendTo(key, offset, len) => ok(stage(len).and_then(|staged| {
            let (etag, condition) = (etag_of(&body_of(len, len)), WriteCondition::None);
            let request = AppendRequest { bucket: "b", key, offset, etag, encryption: None, condition };
            wait(volume.append_object(request, staged))
        })),
        PutAbsent(key) => ok(put(key, 7, WriteCondition::Absent)),
        PutEncrypted(key, len) => ok(put_encrypted(volume, key, &body_of(len, len))),
        Delete(key) => removed(wait(volume.delete_object("b", &DeleteRequest::of(key)))),
        DeleteBoth(one, other) => {
            let requests = [DeleteRequest::of(one), DeleteRequest::of(other)];
            match wait(volume.delete_objects("b", &requests)) {
                Ok(answers) => answers.into_iter().map(|answer| removed(answer) + " ").collect(),
                Err(error) => format!("{error:?}"),
            }
        }
        DeleteVersion(which) => {
            let version = given.versions.get(which).copied().or(Some(VersionId::Numbered(1 << 50)));
            removed(wait(volume.delete_object("b", &DeleteRequest { version, ..DeleteRequest::of("a/x") })))
        }
        Expire(which, due) => format!("{:?}", expire(volume, given, which, due)),
        PutDeleteAndLook(key) => {
            let put = ok(put(key, 212, WriteCondition::None));
            let deleted = removed(wait(volume.delete_object("b", &DeleteRequest::of(key))));
            format!("{put} {deleted} {}", lines(volume).len())
        }
        Set(versioning) => ok(wait(volume.set_versioning("b", versioning))),
        Copy(source_key, key) => ok(wait(volume.copy_object(CopyRequest {
            source_bucket: "b",
            source_key,
            bucket: "b",
            key,
            ..CopyRequest::default()
        }))),
        Link(from, to) => rows::link(volume, "b", from, to),
        Rename(from, to) => ok(wait(volume.rename("b", from, to, &WriteCondition::None))),
        MakeDirectory(path) => ok(wait(volume.make_directory("b", path))),
        PutPart | ReplacePart => {
            let len = if matches!(action, PutPart) { PART } else { PART + 1 };
            ok(stage(len).and_then(|staged| {
                let etag = etag_of(&body_of(len, len));
                wait(volume.put_part("b", given.upload_key, upload, 1, etag, Headers::new(), staged))
            }))
        }
        Complete(key) => {
            let choice = [PartChoice { number: 1, etag: etag_of(&body_of(PART, PART)) }];
            let none = WriteCondition::None;
            ok(wait(volume.complete_multipart("b", key, upload, &choice, Headers::new(), &none)))
        }
        Abort => ok(wait(volume.abort_multipart("b", given.upload_key, upload))),
        DeleteBucket => ok(wait(volume.delete_bucket("b"))),
    }
}

/// Key, id, whether it is the latest, and the content unless it is a delete marker.
pub type Shown = (String, VersionId, bool, Option<(u64, ETag)>);

/// All versions of the bucket, in the order of the listing.
pub fn lines(volume: &Volume) -> Vec<Shown> {
    let request = ListVersionsRequest { bucket: "b", prefix: "", delimiter: None, after: None, max: 1000 };
    let mut lines = Vec::new();
    let _ = wait(volume.list_versions(&request, &mut |item| match item {
        VersionItem::Version { key, version, is_latest, size, etag, .. } => {
            lines.push((key.to_owned(), version, is_latest, Some((size, etag))));
        }
        VersionItem::DeleteMarker { key, version, is_latest, .. } => {
            lines.push((key.to_owned(), version, is_latest, None));
        }
        VersionItem::Prefix(_) => {}
    }));
    lines
}
