//! A pool of read buffers.
//!
//! Why:        a new buffer is zeroed before the disk fills it, which takes an eighth of the time of a read from the
//!             page cache; a reused one is not.
//! Invariants: B1 idle buffers are bounded by [`IDLE_BUFFER_BYTES_MAX`].
//!             B2 a buffer is at most twice as long as requested; its user overwrites all of it before reading.
//! Locking:    one lock, held for one operation.
//! Not here:   reading (reader).

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum size of idle buffers kept for later reads, in bytes.
pub const IDLE_BUFFER_BYTES_MAX: usize = 16 << 20;
/// Shorter buffers are not pooled.
const BUFFER_BYTES_MIN: usize = 64 << 10;
/// Number of size classes, each twice the previous one.
const CLASSES: usize = 6;

#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers(Arc<Mutex<Idle>>);

#[derive(Debug, Default)]
struct Idle {
    /// By size: the first class has `BUFFER_BYTES_MIN`, each next one twice as much.
    classes: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
}

/// A buffer of unknown content; returns to the pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    home: Buffers,
}

/// The size class for a length; none if it is too small or too large.
fn class(len: usize) -> Option<usize> {
    let class = len.div_ceil(BUFFER_BYTES_MIN).next_power_of_two().trailing_zeros() as usize;
    (len >= BUFFER_BYTES_MIN && class < CLASSES).then_some(class)
}

impl Buffers {
    pub(crate) fn take(&self, len: usize) -> Buffer {
        let bytes = match class(len) {
            None => vec![0; len],
            Some(class) => self.take_idle(class).unwrap_or_else(|| vec![0; BUFFER_BYTES_MIN << class]),
        };
        Buffer { bytes, len, home: self.clone() }
    }

    fn take_idle(&self, class: usize) -> Option<Vec<u8>> {
        let mut idle = self.0.lock();
        let bytes = idle.classes[class].pop()?;
        idle.bytes -= bytes.len();
        Some(bytes)
    }
}

impl Buffer {
    /// Shortens the buffer.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(class) = class(self.bytes.len()) else { return };
        let mut idle = self.home.0.lock();
        if idle.bytes + self.bytes.len() <= IDLE_BUFFER_BYTES_MAX {
            idle.bytes += self.bytes.len();
            idle.classes[class].push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_idle_ones_are_bounded() {
        let buffers = Buffers::default();
        let idle = || buffers.0.lock().bytes;
        for len in [0, 1, BUFFER_BYTES_MIN - 1, BUFFER_BYTES_MIN << CLASSES] {
            assert_eq!(buffers.take(len).len(), len);
            assert_eq!(idle(), 0, "{len}");
        }
        for len in [BUFFER_BYTES_MIN, BUFFER_BYTES_MIN + 1, 1 << 20, BUFFER_BYTES_MIN << (CLASSES - 1)] {
            let mut buffer = buffers.take(len);
            assert!(buffer.len() == len && buffer.bytes.len() < 2 * len.max(2));
            buffer.truncate(len - 1);
            assert_eq!(buffer.len(), len - 1);
        }
        let before = idle();
        let buffer = buffers.take(1 << 20);
        assert_eq!(idle(), before - (1 << 20));
        drop(buffer);
        assert_eq!(idle(), before);
        drop((0..100).map(|_| buffers.take(1 << 20)).collect::<Vec<_>>());
        assert!(idle() <= IDLE_BUFFER_BYTES_MAX && idle() > IDLE_BUFFER_BYTES_MAX - (2 << 20));
    }
}
