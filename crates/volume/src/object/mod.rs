//! The operations on objects, one a file.
//!
//! Not here:   buckets (bucket), versions (versions), files (posix), what the operations share (entry).

mod adopt_attributes;
mod append_object;
mod callers_rows;
mod change_documents;
mod change_locks;
mod copy_object;
mod delete_object;
mod delete_objects;
mod evict;
mod get_object;
mod head_listed;
mod import;
mod keep;
mod make_directory;
mod multipart;
mod places;
mod put_object;
pub(crate) mod rename;

pub use self::evict::NamedFile;
pub use self::import::{Imported, ImportedBytes, ImportedKind};
pub use self::places::{ObjectPlaces, ObjectSegment, object_places};
pub(crate) use self::put_object::count;
