//! S3 as a client: signed requests, and a bucket in the place of a disk.
//!
//! Why:        backups go to a bucket of any store, and benchmarks and a fresh machine need some client.
//! Layout:     `client` (calls), `connection` (one kept-alive connection), `sign`, `tls`, `target` (which server, as
//!             whom), `xml`; above them `bucket` (one bucket, calls that block and are tried again) and `disk` (files in it).
//! Invariants: C1 `client` and below do nothing that they were not asked for: no retries, no second connection.
//!             C2 a secret is never shown, and an error never holds one.
//! Not here:   multipart uploads, chains of credentials, what is in the files (margay-volume).

pub mod bucket;
pub mod client;
pub mod connection;
pub mod disk;
pub mod endpoint;
pub mod error;
pub mod payload;
mod sign;
pub mod target;
pub mod tls;
pub mod xml;

pub use error::{ClientError, Refusal};
pub use sign::{PayloadHash, Scheme};
pub use target::{Credentials, REGION_DEFAULT, Target};
