//! What a request is about to do, so that its rows are read in one call.
//!
//! Why:        the source of a copy is in a header, an upload and a version in the query: only the door can tell.
//! Invariants: L1 it is a hint: what cannot be parsed is left out, and the operation refuses it.
//! Not here:   which rows those are (the volume).

use margay_volume::{Purpose, VersionId};

use super::Signed;
use crate::headers::copy_source::{CopySource, parse_copy_source, parse_rename_source};
use crate::headers::{text, version};
use crate::route::policy::Op;
use crate::route::target::check_bucket_name;

/// The parts of a request that name rows.
pub(super) struct LookedFor<'r> {
    op: Op,
    key: &'r str,
    version: Option<VersionId>,
    upload: Option<&'r str>,
    part: Option<u16>,
    source: Option<CopySource>,
    renamed: Option<String>,
}

impl<'r> LookedFor<'r> {
    pub(super) fn of(op: Op, signed: &'r Signed<'_>) -> LookedFor<'r> {
        let Signed { target, query, headers, .. } = signed;
        let header = |name| text(headers, name).ok().flatten();
        let copies = matches!(op, Op::CopyObject | Op::UploadPartCopy);
        let source = header("x-amz-copy-source").filter(|_| copies);
        let source = source.and_then(|source| parse_copy_source("x-amz-copy-source", source).ok());
        let renamed = header("x-amz-rename-source").filter(|_| op == Op::RenameObject);
        LookedFor {
            op,
            key: &target.key,
            version: version::asked(query).ok().flatten(),
            upload: query.get("uploadId"),
            part: query.get("partNumber").and_then(|number| number.parse().ok()),
            source: source.filter(|source| check_bucket_name(&source.bucket).is_ok()),
            renamed: renamed.and_then(|source| parse_rename_source(&target.bucket, source).ok()),
        }
    }

    pub(super) fn purpose(&self) -> Purpose<'_> {
        let LookedFor { op, key, version, upload, part, source, renamed } = self;
        match (op, *upload, *part, source) {
            (Op::GetObject | Op::SelectObjectContent, ..) => Purpose::GetObject(key, *version),
            (Op::HeadObject | Op::GetObjectAttributes | Op::GetObjectTagging, ..) => Purpose::HeadObject(key, *version),
            (Op::PutObject, ..) => Purpose::PutObject(key),
            (Op::DeleteObject, ..) => Purpose::DeleteObject(key, *version),
            (Op::CopyObject, _, _, Some(source)) => Purpose::CopyObject { key, source: source.name() },
            (Op::UploadPart, Some(upload), Some(number), _) => Purpose::PutPart { key, upload, number },
            (Op::UploadPartCopy, Some(upload), Some(number), Some(source)) => {
                Purpose::CopyPart { key, upload, number, source: source.name() }
            }
            (Op::CompleteMultipartUpload, Some(upload), ..) => Purpose::CompleteUpload { key, upload },
            (Op::AbortMultipartUpload | Op::ListParts, Some(upload), ..) => Purpose::Upload { key, upload },
            (Op::RenameObject, ..) => match renamed {
                Some(from) => Purpose::RenameObject { from, to: key },
                None => Purpose::Bucket,
            },
            _ => Purpose::Bucket,
        }
    }
}
