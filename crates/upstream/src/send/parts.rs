//! Content and copies of large files, in parts.
//!
//! Invariants: P1 a part is used for a state of the file only if its bytes are where they were when it was sent, or when the
//!                object that it is copied from was sent.
//!             P2 a reader of the bucket sees a key with the whole old object or the whole new one.
//!             P3 what was sent while the file was open has a temporary key, since its name and its times were not final, and is
//!                copied to its key with the attributes that it has by then.
//! Not here:   parts of open files (ahead), when an upload ends (uploads).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use margay_client::upstream::{Grid, Metadata, PartOf, Source, StateOf};
use margay_client::{ClientError, Condition};
use margay_rows::Ino;
use margay_volume::posix::is_unmoved;

use super::Sender;
use super::request::{FileSource, Sent, Unsent, condition};
use super::uploads::{Begun, Placed, SentPart};
use crate::plan::PlannedRequest;

/// An object whose parts may be copied: its key, its ETag, and where its bytes were when it was sent.
struct Old {
    key: String,
    etag: String,
    placed: Arc<Placed>,
}

/// No part is read.
struct Nothing;

impl Source for Nothing {
    async fn read(&self, _range: Range<u64>) -> io::Result<Bytes> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Sender {
    /// Puts a file in parts: those that the bucket has are not sent.
    pub(super) async fn put_parts(
        &self,
        request: &PlannedRequest,
        source: FileSource,
        metadata: &Metadata,
    ) -> Result<Sent, Unsent> {
        let (ino, size, source) = (Ino(request.file), source.reader.info().size, Arc::new(source));
        let old = self.old_object(ino);
        let kept = self.uploads.take(ino).await;
        let is_fit = |kept: &Begun| self.is_fit(kept, request, (&source, size), old.as_ref());
        let begun = match kept {
            Some(kept) if is_fit(&kept) => Ok(kept),
            kept => {
                if let Some(kept) = kept {
                    self.abandon(kept).await;
                }
                let part_bytes = Grid::of_parts(size, self.sizes.part_bytes).part_bytes();
                self.begin_upload(&request.key, metadata, part_bytes, Some(request.changed)).await
            }
        };
        let mut begun = begun?;
        if begun.completed.is_none() {
            let grid = Grid::of_parts(size, begun.part_bytes);
            begun = self.complete_parts((request, metadata), begun, grid, &source, old.as_ref()).await?;
        }
        let Some((_, etag)) = begun.completed.clone() else { unreachable!("it was completed") };
        let (etag, answered) = match begun.changed {
            Some(_) => (etag, None),
            None => self.copy_from_aside(request, begun, (&etag, size), metadata).await?,
        };
        if let Some(places) = source.reader.places(0..size) {
            self.uploads.set_placed(ino, &etag, places);
        }
        Ok(Sent { etag, size: Some(size), write_id: Some(self.write_id(request)), answered })
    }

    /// The object of a file, if it is known where its bytes were.
    fn old_object(&self, file: Ino) -> Option<Old> {
        if !self.honoured.lock().copies_parts() {
            return None;
        }
        let object = self.tracked.files.lock().table.get(file)?.object.clone()?;
        let placed = self.uploads.placed(file, &object.etag)?;
        Some(Old { key: object.key, etag: object.etag, placed })
    }

    /// Whether an upload that was begun brings this state. One at a temporary key costs a copy, so it must save half of the
    /// bytes at least.
    fn is_fit(
        &self,
        kept: &Begun,
        request: &PlannedRequest,
        (source, size): (&FileSource, u64),
        old: Option<&Old>,
    ) -> bool {
        if let Some((content, _)) = &kept.completed {
            return *content == request.content;
        }
        let grid = Grid::of_parts(size, kept.part_bytes);
        if grid.part_bytes() != kept.part_bytes {
            return false;
        }
        if let Some(changed) = kept.changed {
            return changed == request.changed && kept.upload.key == request.key;
        }
        let (mut there, mut lacking) = (0, 0);
        for number in 1..=grid.parts() {
            let range = grid.part(number);
            let len = range.end - range.start;
            match part_of(kept, source, (number, range), old) {
                PartOf::There(_) => there += len,
                PartOf::Sent => lacking += len,
                PartOf::Copied(..) => {}
            }
        }
        there >= lacking && (size <= self.sizes.copy_bytes_max || self.honoured.lock().copies_parts())
    }

    /// Sends the missing parts and completes the upload. A failure that says nothing of the upload keeps it for the next try.
    async fn complete_parts(
        &self,
        (request, metadata): (&PlannedRequest, &Metadata),
        mut begun: Begun,
        grid: Grid,
        source: &Arc<FileSource>,
        old: Option<&Old>,
    ) -> Result<Begun, Unsent> {
        let ino = Ino(request.file);
        let parts: Vec<PartOf> =
            (1..=grid.parts()).map(|number| part_of(&begun, source, (number, grid.part(number)), old)).collect();
        let (upload, sent) = (begun.upload.clone(), &mut begun.parts);
        let keep = |number: u32, etag: &str| {
            if let Some(places) = source.reader.places(grid.part(number)) {
                sent.insert(number, SentPart { places, etag: etag.to_owned() });
            }
        };
        let part = |number: u32| parts[number as usize - 1].clone();
        let etags = match self.upstream.send_parts(&upload, grid, Arc::clone(source), part, keep).await {
            Ok(etags) => etags,
            Err(error) => {
                self.uploads.forget_placed(ino);
                match error.status() {
                    // Of a part it says nothing of the key.
                    Some(404 | 412) => {
                        self.abandon(begun).await;
                        return Err(Unsent::Local(format!("a part was not taken, all are sent again: {error}")));
                    }
                    _ => self.uploads.park(ino, begun),
                }
                return Err(error.into());
            }
        };
        let completed = match begun.changed {
            Some(_) => self.complete(&upload, &etags, request, metadata).await,
            None => {
                let aside = Metadata::new();
                self.upstream.complete_upload(&upload, &etags, Condition::Always, &aside).await.map_err(|error| {
                    match error.status() {
                        // Of a temporary key it says nothing of the file's.
                        Some(404 | 412) => Unsent::Local(error.to_string()),
                        _ => error.into(),
                    }
                })
            }
        };
        match completed {
            Ok(etag) => {
                self.upload_ended(&begun);
                begun.completed = Some((request.content, etag));
                Ok(begun)
            }
            Err(unsent) => {
                match &unsent {
                    Unsent::Bucket(error) if !matches!(error, ClientError::Refused(_)) => self.uploads.park(ino, begun),
                    _ => self.abandon(begun).await,
                }
                Err(unsent)
            }
        }
    }

    /// The object at a temporary key comes to its own key, and the temporary one goes. Returns when the first was answered: the
    /// second may take long.
    async fn copy_from_aside(
        &self,
        request: &PlannedRequest,
        begun: Begun,
        (etag, size): (&str, u64),
        metadata: &Metadata,
    ) -> Result<(String, Option<Duration>), Unsent> {
        let temporary = begun.upload.key.clone();
        let copied = match self.holds_for_copy(request).await {
            Ok(true) => self.copy_to(StateOf { key: &temporary, etag }, size, request, metadata).await,
            Ok(false) => Err(Unsent::Overtaken),
            Err(error) => Err(error.into()),
        };
        let answered = self.clock.monotonic();
        let is_kept = matches!(&copied, Err(Unsent::Bucket(error)) if !matches!(error.status(), Some(404 | 412)));
        if is_kept {
            self.uploads.park(Ino(request.file), begun);
        } else {
            self.remove_temporary(&temporary).await;
        }
        copied.map(|etag| (etag, Some(answered)))
    }

    /// Copies a state of an object of this size to the key of the request.
    pub(super) async fn copy_to(
        &self,
        source: StateOf<'_>,
        size: u64,
        request: &PlannedRequest,
        metadata: &Metadata,
    ) -> Result<String, Unsent> {
        // A large one takes the store long, and parts are copied at once.
        if size <= self.sizes.copy_bytes_max / 4 || !self.honoured.lock().copies_parts() {
            let copied = self.upstream.copy_object(source, &request.key, condition(request), Some(metadata)).await;
            return copied.map_err(Unsent::from);
        }
        let grid = Grid::of_parts(size, self.sizes.copy_bytes_max / 8);
        let begun = self.begin_upload(&request.key, metadata, grid.part_bytes(), None).await?;
        let part = |_| PartOf::Copied(source.key.to_owned(), source.etag.to_owned());
        let answered = |_: u32, _: &str| self.tracked.answered();
        let copied = match self.upstream.send_parts(&begun.upload, grid, Arc::new(Nothing), part, answered).await {
            Ok(etags) => self.complete(&begun.upload, &etags, request, metadata).await,
            Err(error) => Err(error.into()),
        };
        match copied {
            Ok(etag) => {
                self.upload_ended(&begun);
                Ok(etag)
            }
            Err(unsent) => {
                self.abandon(begun).await;
                Err(unsent)
            }
        }
    }
}

/// How a part of the state that is read gets to the bucket.
fn part_of(begun: &Begun, source: &FileSource, (number, range): (u32, Range<u64>), old: Option<&Old>) -> PartOf {
    let Some(places) = source.reader.places(range.clone()) else { return PartOf::Sent };
    if let Some(sent) = begun.parts.get(&number).filter(|sent| sent.places == places) {
        return PartOf::There(sent.etag.clone());
    }
    match old.filter(|old| is_unmoved(&old.placed.places, &places, range)) {
        Some(old) => PartOf::Copied(old.key.clone(), old.etag.clone()),
        None => PartOf::Sent,
    }
}
