//! Directory entries: paths to them, reading and replacing one, its documents, locks and events, walks over many.
//!
//! Why:        the operations of both doors change entries in the same ways.
//! Not here:   the operations (object, posix), earlier versions (versions), rows as bytes (margay-rows).

mod current;
pub(crate) mod documents;
mod events;
mod implicit_directories;
mod list;
mod lock;
mod names;
mod object_keys;
mod orphan;
mod paths;
mod release;
mod tree;
mod tree_ahead;

pub(crate) use self::current::{Current, check_key};
pub(crate) use self::list::{end_of, text};
pub(crate) use self::names::Located;
pub use self::object_keys::NewKey;
pub(crate) use self::object_keys::{needed_lock, stored_len_by_itself};
pub(crate) use self::orphan::release_part;
pub(crate) use self::paths::Walk;
pub(crate) use self::release::RELEASE_ROWS_MAX;
pub(crate) use self::tree::{Next, Shown, Tree};
