//! Creates files: regular ones, which are also opened, and pipes, sockets and devices.
//!
//! Why:        the hot path of a mount: one commit, usually without a read.
//! Invariants: C1 the commit asserts the directory and that both entries of the name are absent (X5). A new file counts
//!                as looked up before anybody else can ask for it.
//! Not here:   opening (handle), symbolic links, directories.

use margay_env::Timestamp;
use margay_rows::Ino;
use margay_rows::record::entry::EMPTY_ETAG;
use margay_rows::record::{Data, FileEntry};

use crate::api::Headers;
use crate::draft::Draft;
use crate::open_files::content_number;
use crate::posix::Handle;
use crate::posix::api::{Attributes, FileKind, Name, NewFile, OpenFlags, PosixError};
use crate::posix::attempt::Attempt;
use crate::posix::attributes::stored_attributes;
use crate::posix::locate::LocatedDirectory;
use crate::posix::mount::Mount;
use crate::posix::resolve::Found;

/// Result of `create`.
enum Made {
    New(Box<FileEntry>, Option<Handle>),
    There,
}

impl Mount {
    /// Creates and opens a regular file, or opens an existing one unless `flags.exclusive`. Counts one lookup.
    pub fn create(
        &self,
        parent: Ino,
        name: &Name,
        new: &NewFile,
        flags: OpenFlags,
    ) -> Result<(Attributes, Handle), PosixError> {
        loop {
            match self.make_entry(parent, name, new, (FileKind::Regular, 0), Some(flags))? {
                Made::New(file, Some(handle)) => return Ok((stored_attributes(&file), handle)),
                Made::New(..) => return Err(PosixError::BadHandle),
                Made::There => {}
            }
            let found = match self.lookup(parent, name) {
                Ok(found) => found,
                // Removed since.
                Err(PosixError::NotFound) => continue,
                Err(error) => return Err(error),
            };
            let opened = match found.kind {
                FileKind::Directory => Err(PosixError::IsDirectory),
                _ => self.open_file(found.ino, flags),
            };
            let handle = opened.inspect_err(|_| self.forget(found.ino, 1))?;
            return Ok((self.attributes(found.ino)?, handle));
        }
    }

    /// `mknod`: creates a file of any kind except directory and symlink. Counts one lookup.
    pub fn make_file(
        &self,
        parent: Ino,
        name: &Name,
        new: &NewFile,
        kind: FileKind,
        device: u32,
    ) -> Result<Attributes, PosixError> {
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(PosixError::Invalid);
        }
        let device = if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) { device } else { 0 };
        match self.make_entry(parent, name, new, (kind, device), None)? {
            Made::New(file, ..) => Ok(stored_attributes(&file)),
            Made::There => Err(PosixError::Exists),
        }
    }

    /// Creates an entry without data and counts its lookup; opens it if there are flags. An existing file is refused
    /// unless the flags allow it.
    fn make_entry(
        &self,
        parent: Ino,
        name: &Name,
        new: &NewFile,
        (kind, device): (FileKind, u32),
        open: Option<OpenFlags>,
    ) -> Result<Made, PosixError> {
        self.volume.check_room()?;
        let may_exist = open.is_some_and(|flags| !flags.exclusive);
        self.change(|one| {
            let resolved = self.resolve_for_new(parent, name, one)?;
            match &resolved.found {
                Some(Found::File(_)) if may_exist => return Ok((Made::There, None)),
                Some(Found::Directory(_)) if may_exist => return Err(PosixError::IsDirectory.into()),
                Some(_) => return Err(PosixError::Exists.into()),
                None => {}
            }
            self.volume.check_newest_quota(self.bucket_root, 1, 0)?;
            if open.is_some_and(|flags| flags.write) {
                self.check_plain(self.volume.bucket_state(self.bucket_root)?.encrypts)?;
            }
            let directory = self.directory(parent, one)?;
            let now = self.volume.now();
            let mut draft = Draft::default();
            let key = resolved.draft_free(&mut draft, &directory, kind)?;
            let mut file = self.draft_new_file(&mut draft, now, new, &directory, kind)?;
            file.device = device;
            self.draft_change_in(&mut draft, &directory, now.0);
            self.draft_new_name(&mut draft, (parent, resolved.name.as_str()), &mut file, one)?;
            if open.is_none() {
                self.draft_default_retention(&mut draft, &mut file)?;
            }
            draft.put(key, file.encode().value);
            // Until it is opened and recorded here, nobody else opens or moves it.
            let _turn = self.volume.known.turn(file.ino);
            let done = self.commit(draft)?;
            self.known.remember(file.ino, parent, &resolved.name);
            self.known.content_is(file.ino, content_number(&file.etag));
            let handle = open.map(|flags| self.open_new(parent, &resolved.name, &file, &done, flags));
            Ok((Made::New(Box::new(file), handle), Some(done)))
        })
    }

    /// A new empty file, with its access control list drafted; the caller puts its entry.
    pub(crate) fn draft_new_file(
        &self,
        draft: &mut Draft,
        now: Timestamp,
        new: &NewFile,
        parent: &LocatedDirectory,
        kind: FileKind,
    ) -> Result<FileEntry, Attempt> {
        let ino = self.volume.new_ino()?;
        let inherited = self.inherit(new, parent, kind)?;
        inherited.draft(draft, ino);
        let mut file = FileEntry::new(ino, 0, EMPTY_ETAG, now, Data::Inline(Vec::new()), Headers::new());
        file.mode = kind.stored_bits() | inherited.rights;
        (file.uid, file.gid, file.xattrs) = (new.uid, inherited.gid, inherited.has_xattrs());
        Ok(file)
    }
}
