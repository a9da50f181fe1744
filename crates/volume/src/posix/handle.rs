//! Opening and closing files.
//!
//! Why:        handles are counted; all handles of a file share its state.
//! Invariants: H1 a dropped handle is released; the last one publishes unpublished data.
//!             H2 an open file's location stays recorded until its last publish, whatever kernels forget meanwhile.
//! Locking:    the file's turn; not held while bytes are synced.
//! Not here:   creating a file (create), the state itself (open_files).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_meta::Committed;
use margay_rows::record::data::is_hole;
use margay_rows::record::{Data, FileEntry, Version};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::entry::{Located, needed_lock};
use crate::open::Volume;
use crate::open_files::pieces::Piece;
use crate::open_files::{Base, OpenFile, State, content_number, without_data};
use crate::posix::api::{FileKind, Kept, OpenFlags, PosixError};
use crate::posix::mount::Mount;
use crate::reader::{Content, EncryptedContent, Lock};
use crate::session_state::MountLease;

/// Attempts to open a file that is moved or replaced meanwhile.
const TRIES_MAX: usize = 64;

/// An open file. Dropping it is `release`; call [`Mount::release`] to learn of errors.
#[derive(Debug)]
pub struct Handle {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) flags: OpenFlags,
    volume: Arc<Volume>,
    closed: bool,
}

impl Handle {
    /// The number of the file.
    pub fn ino(&self) -> Ino {
        self.file.ino
    }

    fn close(&mut self) -> Result<(), PosixError> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        self.volume.close(&self.file)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(ino = self.file.ino.0, %error, "what was written to a file could not be published");
        }
    }
}

impl Mount {
    pub fn open_file(&self, ino: Ino, flags: OpenFlags) -> Result<Handle, PosixError> {
        if (flags.write || flags.truncate) && self.options.read_only {
            return Err(PosixError::ReadOnlyMount);
        }
        if let Some(upstream) = &self.options.upstream
            && let Some(location) = self.volume.known.location(ino)
            && !self.volume.is_open(ino)
        {
            upstream.will_open(location.parent, ino);
        }
        let file = {
            let _turn = self.volume.known.turn(ino);
            match self.volume.open_files.enter(ino) {
                Some(file) => self.opened_again(file)?,
                None => {
                    let file = self.volume.open_first(ino, self.bucket_root, &self.lease)?;
                    if flags.read && !flags.truncate {
                        self.volume.begin_read(&file);
                    }
                    file
                }
            }
        };
        let handle = self.handle(file, flags);
        if flags.write || flags.truncate {
            handle.file.written.store(true, Ordering::Relaxed);
            self.check_may_write(&handle)?;
        }
        if flags.truncate {
            self.volume.resize(&handle.file, 0, flags.kill_privileges)?;
        }
        Ok(handle)
    }

    /// What the kernel may keep, now that it has opened the file (C2).
    pub fn kept_at_open(&self, handle: &Handle) -> Kept {
        if !self.volume.engine.is_shared() {
            return Kept::All;
        }
        let now = content_number(&handle.file.state.read().file.etag);
        match self.known.content_is(handle.file.ino, now) {
            0 => Kept::Pages,
            before if before == now => Kept::All,
            _ => Kept::Nothing,
        }
    }

    /// One more handle of a file that is open already; its turn is held.
    fn opened_again(&self, file: Arc<OpenFile>) -> Result<Arc<OpenFile>, PosixError> {
        match self.volume.refresh(&file) {
            Ok(()) => Ok(file),
            Err(error) => {
                self.volume.open_files.leave(file.ino);
                Err(error)
            }
        }
    }

    fn handle(&self, file: Arc<OpenFile>, flags: OpenFlags) -> Handle {
        Handle { file, flags, volume: Arc::clone(&self.volume), closed: false }
    }

    /// Opens an empty file created by this commit, which nobody else can have open yet.
    pub(crate) fn open_new(
        &self,
        parent: Ino,
        sort_name: &str,
        file: &FileEntry,
        done: &Committed,
        flags: OpenFlags,
    ) -> Handle {
        let mut state = State::new(file.clone());
        state.base.version = Some(done.version);
        state.base.row = Some((key::entry(parent, sort_name.as_bytes()), without_data(file)));
        state.own_version = (file.version != Version::OLD).then_some(file.version);
        self.volume.known.opened(file.ino, parent, sort_name);
        let file = Arc::new(OpenFile {
            ino: file.ino,
            root: self.bucket_root,
            lease: Arc::clone(&self.lease),
            written: true.into(),
            state: state.into(),
        });
        self.volume.open_files.insert(Arc::clone(&file));
        self.volume.note_open(file.ino, parent, sort_name, done.cursor);
        self.handle(file, flags)
    }

    /// Releases a handle; a file's last one publishes unpublished data.
    pub fn release(&self, mut handle: Handle) -> Result<(), PosixError> {
        handle.close()
    }
}

impl Volume {
    /// Opens a file that is not open; its turn is held.
    fn open_first(&self, ino: Ino, root: Ino, lease: &Arc<MountLease>) -> Result<Arc<OpenFile>, PosixError> {
        for _ in 0..TRIES_MAX {
            let Some(located) = self.locate_file(ino)? else { return Err(PosixError::Stale) };
            if FileKind::of(located.file.mode) != FileKind::Regular {
                return Err(PosixError::Invalid);
            }
            let Some(state) = self.load(&located)? else { continue };
            let Some(location) = self.known.location(ino) else { return Err(PosixError::Stale) };
            self.known.opened(ino, location.parent, &location.sort_name);
            self.open_files.memory_changed(0, state.pieces.memory());
            let lease = Arc::clone(lease);
            let file = Arc::new(OpenFile { ino, root, lease, written: false.into(), state: state.into() });
            self.open_files.insert(Arc::clone(&file));
            self.note_open(ino, location.parent, &location.sort_name, located.observed);
            return Ok(file);
        }
        Err(Error::Busy.into())
    }

    /// A file is usually read after it was opened, so the device starts to read ahead. Nobody has written to the file
    /// yet: its turn is held.
    fn begin_read(&self, file: &OpenFile) {
        let state = file.state.read();
        if let Some(extent) = state.pieces.from(0).next().and_then(|(_, piece)| piece.extent()) {
            // Only a hint: the read itself reports errors.
            let _ = self.store.will_read(extent);
        }
    }

    /// The state of a file according to its row; `None` if the row changed meanwhile.
    pub(crate) fn load(&self, located: &Located) -> Result<Option<State>, Error> {
        let held = self
            .while_unchanged(located, |seen| Ok((self.lock_of(&located.file, seen)?, self.hold(&located.file, seen)?)));
        let Some((lock, content)) = held? else { return Ok(None) };
        let mut state = State::new(located.file.clone());
        state.readable = located.observed;
        let in_rows = state.file.data == Data::Rows;
        state.file.data = Data::Inline(Vec::new());
        let row = (!located.linked()).then(|| (located.row_key.clone(), state.file.clone()));
        state.base = Base { version: Some(located.version), extents: Vec::new(), in_rows, row };
        if let Some(Lock { envelope, plain_lens }) = needed_lock(&located.file, lock)? {
            let key = envelope.open(None, &self.options.master_keys)?;
            if let Content::Extents { extents, .. } = &content {
                state.base.extents = extents.clone();
            }
            let content = EncryptedContent::new(key, &plain_lens, content, Arc::clone(&self.store));
            state.pieces.push(Piece::encrypted(located.file.size, Arc::new(content)));
            return Ok(Some(state));
        }
        match content {
            Content::Encrypted(_) => return Err(Error::Corrupt("a file without a key is encrypted".to_owned())),
            Content::Inline(bytes) => state.pieces.push(Piece::memory(bytes.to_vec())),
            Content::Extents { extents, pins } => {
                for (_, extent) in &extents {
                    state.pieces.push(if is_hole(extent) { Piece::hole(extent.len) } else { Piece::stored(*extent) });
                }
                state.base.extents = extents;
                state.pins = pins.into_iter().map(|pin| (pin.segment(), pin)).collect();
            }
        }
        Ok(Some(state))
    }

    /// Removes a handle; the last one publishes unpublished data.
    fn close(&self, file: &OpenFile) -> Result<(), PosixError> {
        let last = {
            let _turn = self.known.turn(file.ino);
            self.open_files.handles(file.ino) == 1
        };
        let published = if last { self.publish(file) } else { Ok(()) };
        let _turn = self.known.turn(file.ino);
        let locked = if last { self.lock_closed(file) } else { Ok(()) };
        if self.open_files.leave(file.ino) {
            self.open_files.memory_changed(file.state.read().pieces.memory(), 0);
            self.known.closed(file.ino);
            self.trails.closed(file.ino);
        }
        published.and(locked.map_err(PosixError::from))
    }

    pub(crate) fn monotonic(&self) -> Duration {
        self.env.clock.monotonic()
    }
}
