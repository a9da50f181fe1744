//! Symbolic links: creating and reading.
//!
//! Why:        S3 sees a link as an object whose body is its target, so the target is stored like a body.
//! Invariants: L1 as create. The target is durable before a commit refers to it, or travels with it.
//! Not here:   following links (the kernel).

use bytes::Bytes;
use margay_rows::Ino;
use margay_rows::record::data::INLINE_BYTES_MAX;
use margay_rows::record::entry::MODE_SYMLINK;
use margay_segment::{RunLength, SegmentError, SegmentPin};
use md5::{Digest, Md5};

use crate::api::{ETag, Error};
use crate::draft::Draft;
use crate::posix::api::{Attributes, FileKind, Name, NewFile, PosixError, SYMLINK_BYTES_MAX};
use crate::posix::attributes::stored_attributes;
use crate::posix::mount::Mount;
use crate::reader::Content;
use crate::upload::Body;
use crate::upload::place::{self, Placed};

/// The permissions of every symbolic link.
const RIGHTS: u32 = 0o777;
/// Attempts to read a target that is moved meanwhile.
const TRIES_MAX: usize = 64;

impl Mount {
    /// Counts one lookup.
    pub fn make_symlink(
        &self,
        parent: Ino,
        name: &Name,
        target: &[u8],
        new: &NewFile,
    ) -> Result<Attributes, PosixError> {
        if target.len() > SYMLINK_BYTES_MAX {
            return Err(PosixError::NameTooLong);
        }
        if target.is_empty() {
            return Err(PosixError::NotFound);
        }
        self.volume.check_room()?;
        self.volume.check_newest_quota(self.bucket_root, 1, target.len() as i64)?;
        let (body, _pin) = self.stage_target(target)?;
        let etag = ETag { digest: Md5::digest(target).into(), parts: 0 };
        let file = self.change(|one| {
            let resolved = self.resolve_for_new(parent, name, one)?;
            if resolved.found.is_some() {
                return Err(PosixError::Exists.into());
            }
            let directory = self.directory(parent, one)?;
            let now = self.volume.now();
            let mut draft = Draft::default();
            let key = resolved.draft_free(&mut draft, &directory, FileKind::Symlink)?;
            let mut file = self.draft_new_file(&mut draft, now, new, &directory, FileKind::Symlink)?;
            let Placed { data, named } = place::place_body(&mut draft, file.ino, &body);
            (file.mode, file.size, file.etag, file.data) = (MODE_SYMLINK | RIGHTS, target.len() as u64, etag, data);
            self.draft_change_in(&mut draft, &directory, now.0);
            self.draft_new_name(&mut draft, (parent, resolved.name.as_str()), &mut file, one)?;
            self.draft_default_retention(&mut draft, &mut file)?;
            place::put_new_file(&mut draft, key, file.clone(), named)?;
            let _turn = self.volume.known.turn(file.ino);
            let done = self.commit(draft)?;
            self.known.remember(file.ino, parent, &resolved.name);
            Ok((file, Some(done)))
        })?;
        // Where its bytes are stored is not known here.
        Ok(Attributes { stored: file.size, ..stored_attributes(&file) })
    }

    /// A staged target, and the pin of its segment until the commit; one too long for a payload is written to a segment
    /// first.
    fn stage_target(&self, target: &[u8]) -> Result<(Body, Option<SegmentPin>), PosixError> {
        let volume = &self.volume;
        let small = volume.engine.payload_bytes_max().min(volume.options.payload_bytes_max).max(INLINE_BYTES_MAX);
        if target.len() <= small {
            return Ok((Body::Small(Bytes::copy_from_slice(target)), None));
        }
        let write = || {
            let mut writer =
                volume.store.begin(RunLength::Exact(target.len() as u64), &self.bucket_root.0.to_be_bytes())?;
            let pin = writer.pin();
            writer.write(target)?;
            let run = writer.end()?;
            volume.store.sync_blocking(run.segment)?;
            Ok::<_, SegmentError>((Body::Runs(vec![run]), Some(pin)))
        };
        Ok(write().map_err(Error::from)?)
    }

    pub fn read_symlink(&self, ino: Ino) -> Result<Bytes, PosixError> {
        for _ in 0..TRIES_MAX {
            let located = self.locate_file(ino)?.ok_or(PosixError::Stale)?;
            if FileKind::of(located.file.mode) != FileKind::Symlink {
                return Err(PosixError::Invalid);
            }
            match self.volume.while_unchanged(&located, |seen| self.volume.hold(&located.file, seen))? {
                None => {}
                Some(Content::Inline(bytes)) => return Ok(bytes),
                Some(Content::Encrypted(_)) => {
                    return Err(Error::Corrupt("a symbolic link is encrypted".to_owned()).into());
                }
                Some(Content::Extents { extents, pins: _pins }) => {
                    if located.observed > self.volume.engine.durable_cursor() {
                        // A payload can be read once the log has written it.
                        self.volume.engine.wait_durable(located.observed).map_err(Error::from)?;
                    }
                    let mut target = Vec::new();
                    for (_, extent) in extents {
                        let bytes = self.volume.store.read(&extent, 0, extent.len).map_err(Error::from)?;
                        target.extend_from_slice(&bytes);
                    }
                    return Ok(target.into());
                }
            }
        }
        Err(Error::Busy.into())
    }
}
