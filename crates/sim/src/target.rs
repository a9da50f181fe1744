//! What the workload talks to: a volume, a server in this process, or a server that is killed.
//!
//! Why:        one workload and one judge for all of them.
//! Invariants: `Refused` means that nothing happened; `Unknown` that it may have.

#![allow(async_fn_in_trait, reason = "all users are in this crate and run on one thread")]

use crate::blob::Blob;

/// The bucket that everything happens in.
pub const BUCKET: &str = "sim";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// A definite no.
    #[error("refused: {0}")]
    Refused(String),
    /// The answer got lost, or the storage is at fault.
    #[error("unknown: {0}")]
    Unknown(String),
}

/// A part that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub blob: Blob,
    /// As the server names it.
    pub etag: String,
}

pub trait Target {
    /// Fine when it exists.
    async fn make_bucket(&self) -> Result<(), Trouble>;
    async fn put(&self, key: &str, blob: Blob) -> Result<(), Trouble>;
    /// `None` when there is nothing at the key.
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Trouble>;
    async fn delete(&self, key: &str) -> Result<(), Trouble>;
    /// False when there is no source.
    async fn copy(&self, from: &str, to: &str) -> Result<bool, Trouble>;
    /// False when there is no source, or something stands in the way of a directory.
    async fn rename(&self, from: &str, to: &str) -> Result<bool, Trouble>;
    /// The new upload's id.
    async fn create_upload(&self, key: &str) -> Result<String, Trouble>;
    /// The part's ETag.
    async fn put_part(&self, key: &str, upload: &str, number: u16, blob: Blob) -> Result<String, Trouble>;
    async fn complete(&self, key: &str, upload: &str, parts: &[(u16, Part)]) -> Result<(), Trouble>;
    async fn abort(&self, key: &str, upload: &str) -> Result<(), Trouble>;
    /// Keys and sizes, in order.
    async fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, Trouble>;
    /// Keys and common prefixes below a prefix, in one order, with the delimiter `/`.
    async fn list_folder(&self, prefix: &str) -> Result<Vec<String>, Trouble>;
    /// Key and id of every upload under way.
    async fn uploads(&self) -> Result<Vec<(String, String)>, Trouble>;
    /// Numbers and sizes of an upload's parts.
    async fn parts(&self, key: &str, upload: &str) -> Result<Vec<(u16, u64)>, Trouble>;
}
