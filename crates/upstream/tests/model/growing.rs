//! A file of a user that stays open while it is written, step by step, with what the oracle is told.
//!
//! Why:        parts of such a file go to the bucket before it is closed.
//! What:       it grows at its end, is written again in the middle, or becomes shorter; others see it when it is flushed, synced or
//!             closed. Meanwhile its user does other things, with its name too.
//! Invariants: the bucket keeps what was closed last until something newer is closed.
//! Not here:   what is written in one go (change).

use margay_upstream::Fsync;
use margay_volume::Ino;
use margay_volume::posix::*;

use super::{Done, User};
use crate::text::{Growth, named};

/// Bytes of one write: some of them are kept in memory, others are stored at once.
const WRITE_BYTES: usize = 72;

/// Who else sees a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    ToNobody,
    /// As the `close` of one of two descriptors.
    Flushed,
    Synced,
}

pub(super) struct Growing {
    /// Where it was made.
    path: String,
    handle: Handle,
    /// What others see of it.
    closed: String,
}

impl Growing {
    pub(super) fn is(&self, ino: Ino) -> bool {
        self.handle.ino() == ino
    }
}

impl User {
    pub(crate) fn has_open(&self) -> bool {
        self.open.lock().unwrap().is_some()
    }

    /// What others see of the open file.
    pub(super) fn closed_of_open(&self) -> Option<String> {
        self.open.lock().unwrap().as_ref().map(|open| open.closed.clone())
    }

    pub(super) fn is_growing(&self, handle: &Handle) -> bool {
        self.open.lock().unwrap().as_ref().is_some_and(|open| open.is(handle.ino()))
    }

    /// Somebody who has seen this file is about to replace or remove what others see of it.
    pub(super) fn supersedes_closed(&self, handle: &Handle) {
        let open = self.open.lock().unwrap();
        if let Some(open) = open.as_ref().filter(|open| open.is(handle.ino())) {
            self.sim.world().oracle.supersedes(&open.closed);
        }
    }

    /// Others see this of it now.
    pub(super) fn has_closed(&self, handle: &Handle, content: &str) {
        let mut open = self.open.lock().unwrap();
        if let Some(open) = open.as_mut().filter(|open| open.is(handle.ino())) {
            content.clone_into(&mut open.closed);
        }
    }

    /// One more step of the open file, or the first one of another.
    pub(super) fn grow(&self, path: &str, growth: &Growth, shown: Shown) -> Done<()> {
        let open = self.open.lock().unwrap().take();
        let mut open = open.map_or_else(|| self.begin_growing(path), Ok)?;
        let stepped = self.step(&open, growth).and_then(|content| match shown {
            Shown::ToNobody => Ok(()),
            Shown::Flushed | Shown::Synced => self.close_step(&mut open, &content, shown == Shown::Synced),
        });
        *self.open.lock().unwrap() = Some(open);
        stepped
    }

    fn begin_growing(&self, path: &str) -> Done<Growing> {
        let handle = self.create(path)?;
        match self.content(&handle) {
            Ok(closed) => Ok(Growing { path: path.to_owned(), handle, closed }),
            Err(error) => {
                self.mount.release(handle)?;
                Err(error)
            }
        }
    }

    /// Of a file that this user writes, and may have removed.
    fn own_bytes(&self, handle: &Handle) -> Done<Vec<u8>> {
        let bytes = self.mount.read(handle, 0, 1 << 20)?.to_vec();
        self.sim.world().oracle.is_whole(&self.name, &named(&bytes));
        Ok(bytes)
    }

    fn step(&self, open: &Growing, growth: &Growth) -> Done<String> {
        let handle = &open.handle;
        let seen = self.own_bytes(handle)?;
        let (new, before) = (growth.over(&seen), named(&seen));
        let content = named(&new.whole);
        {
            let mut world = self.sim.world();
            world.oracle.writes(&content);
            if before != open.closed {
                world.oracle.supersedes(&before);
            }
        }
        self.orders(|order| order.may_hold(&open.path, Some(content.clone())));
        self.orders(|order| order.is_known = false);
        if seen.len() > new.whole.len() {
            let shorter = AttributeChange { size: Some(new.whole.len() as u64), ..AttributeChange::default() };
            self.mount.set_attributes(handle.ino(), &shorter)?;
        }
        for (offset, some) in (new.offset..).step_by(WRITE_BYTES).zip(new.bytes.chunks(WRITE_BYTES)) {
            self.mount.write(handle, offset as u64, some, false)?;
        }
        Ok(content)
    }

    /// Others see it from now on.
    fn close_step(&self, open: &mut Growing, content: &str, syncs: bool) -> Done<()> {
        let before = std::mem::replace(&mut open.closed, content.to_owned());
        if before != content {
            self.sim.world().oracle.supersedes(&before);
        }
        if let Err(error) = self.mount.flush(&open.handle) {
            self.sim.world().oracle.forgives(&before);
            open.closed = before;
            return Err(error);
        }
        let ino = open.handle.ino();
        let has_name = self.mount.attributes(ino)?.links > 0;
        if has_name {
            self.written.lock().unwrap().push(content.to_owned());
            self.orders(|order| order.has_written(&open.path, content));
        }
        if syncs && self.sync(Some(&open.handle)) && has_name {
            match self.at(&open.path) {
                Ok(at) if at == ino => self.check_sent(&open.path, content),
                // It has another name by now.
                _ if self.fsync == Fsync::Upstream => self.sim.world().oracle.is_somewhere(&self.name, content),
                _ => self.sim.world().oracle.is_kept(&self.name, [content.to_owned()]),
            }
        }
        Ok(())
    }

    /// Closes what is open.
    pub(super) fn close(&self, syncs: bool) -> Done<()> {
        let Some(mut open) = self.open.lock().unwrap().take() else { return Ok(()) };
        let content = self.own_bytes(&open.handle);
        let closed = content.and_then(|content| self.close_step(&mut open, &named(&content), syncs));
        self.mount.release(open.handle)?;
        closed
    }
}
