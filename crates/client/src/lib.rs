//! S3 as a client: signed requests, a bucket in the place of a disk, a bucket that many tasks use at once.
//!
//! Why:        backups go to a bucket of any store, and benchmarks and a fresh machine need some client.
//! Layout:     `client` (calls), `connection` (one kept-alive connection), `sign`, `tls`, `target` (which server, as
//!             whom), `xml`, `condition`; above them `calls` (kept connections) and `retry`, then `bucket` (calls that
//!             block), `disk` (files in a bucket) and `upstream` (bounded requests, ranges, multipart uploads).
//! Invariants: C1 `client` and below do nothing that they were not asked for: no retries, no second connection.
//!             C2 a secret is never shown, and an error never holds one.
//! Not here:   chains of credentials, what is in the files (margay-volume).

pub mod bucket;
mod calls;
pub mod client;
mod condition;
pub mod connection;
pub mod disk;
pub mod endpoint;
pub mod error;
pub mod payload;
mod retry;
mod sign;
pub mod target;
pub mod tls;
pub mod upstream;
pub mod xml;

pub use condition::Condition;
pub use error::{ClientError, Refusal};
pub use sign::{PayloadHash, Scheme};
pub use target::{Credentials, REGION_DEFAULT, Target};
