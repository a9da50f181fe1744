//! Copies an object by reading and writing, where bytes cannot be shared or their digest is needed.
//!
//! Invariants: M1 one piece is in memory at a time; it is hashed on a blocking thread.

use std::ops::Range;

use http::HeaderMap;
use margay_volume::{Error, Reader, Staged};

use super::Call;
use crate::auth::PayloadForm;
use crate::body::{Algorithm, Computed, DigestPlan, Want};
use crate::error::S3Error;
use crate::op::encryption::WriteKey;
use crate::payload::Length;
use crate::stream::PIECE_BYTES_MAX;

/// Reads these bytes of an object into a new body, with their MD5 and, if requested, a checksum.
pub(super) async fn move_bytes(
    call: &Call<'_>,
    reader: &Reader,
    mut rest: Range<u64>,
    write_key: &WriteKey,
    algorithm: Option<Algorithm>,
) -> Result<(Staged, Computed), S3Error> {
    if rest.end > reader.info().size {
        return Err(Error::InvalidRange.into());
    }
    let mut upload = write_key.begin_upload(call, Length::Exactly(rest.end - rest.start)).await?;
    let want = Want { md5: true, fallback: algorithm };
    let mut digests = DigestPlan::read(&HeaderMap::new(), &PayloadForm::Unsigned, want)?.digests();
    while !rest.is_empty() {
        let piece = reader.read(rest.start, (rest.end - rest.start).min(PIECE_BYTES_MAX)).await?;
        if piece.is_empty() {
            return Err(Error::Corrupt("an object is shorter than its entry says".to_owned()).into());
        }
        rest.start += piece.len() as u64;
        let hashed = piece.clone();
        digests = tokio::task::spawn_blocking(move || {
            digests.update(&hashed);
            digests
        })
        .await
        .map_err(|error| S3Error::internal(&error))?;
        upload.write(piece).await?;
    }
    let computed = digests.finish(&Default::default())?;
    Ok((upload.finish().await?, computed))
}
