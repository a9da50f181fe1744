//! Rows of a volume: every key and every value, as bytes and as types.
//!
//! Why:        the bytes on disk are defined in one crate, without any logic that decides on them.
//! Layout:     `key` builds and parses keys, `record` encodes and decodes values; both follow docs/format/keys.md. The
//!             other modules are the types inside them.
//! Invariants: R1 decoding is total: any bytes give a value or `Damaged`, never a panic.  R2 no library defines the
//!                bytes.
//! Not here:   reading and changing rows (margay-meta), what a change means (margay-volume).

pub mod event;
mod ino;
pub mod key;
pub mod kinds;
pub mod numbered;
pub mod object_lock;
pub mod record;
pub mod values;

pub use ino::Ino;
