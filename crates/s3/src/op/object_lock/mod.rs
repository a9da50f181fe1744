//! Operations of object lock: a bucket's configuration, and retention and legal hold of a version.
//!
//! Not here: what a lock prevents (volume), its headers (headers::lock).

pub(crate) mod configuration;
pub(crate) mod legal_hold;
pub(crate) mod retention;

use margay_volume::{Documents, ReadCondition, VersionId};

use super::Call;
use crate::error::S3Error;
use crate::headers::version;
use crate::reply::Reply;

/// The documents of the requested version, in a bucket with object lock.
async fn documents(call: &Call<'_>) -> Result<(Documents, Option<VersionId>), S3Error> {
    let asked = version::asked(call.query)?;
    call.volume.object_lock(call.bucket()).await?;
    let info = call.volume.head_version(call.bucket(), call.key(), asked, &ReadCondition::default()).await?;
    Ok((info.documents, info.version))
}

fn about(version: Option<VersionId>, mut reply: Reply) -> Reply {
    version::give_back(version, &mut reply.headers);
    reply
}
