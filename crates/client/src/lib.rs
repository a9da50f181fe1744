//! An S3 client: signed requests, a bucket as a disk, and a bucket for many concurrent tasks.
//!
//! Why:        backups go to a bucket of any store; benchmarks and a fresh machine need some client.
//! Layout:     `client` (calls), `connection` (one keep-alive connection), `sign`, `tls`, `target` (server and
//!             keys), `credentials` (where keys come from), `xml`, `condition`, `list_query`, `encode`; above them `calls` (connection pool) and `retry`, then `bucket`
//!             (blocking calls), `disk` (files in a bucket) and `upstream` (limited concurrency, ranges, multipart
//!             uploads).
//!             `fuzzing` feeds what a store answers.
//! Invariants: C1 `client` and the modules below it send only what was requested: no retries, no second connection.
//!             C2 a secret is never shown, and no error contains one.
//! Not here:   the content of files (margay-volume).

pub mod bucket;
mod calls;
pub mod client;
mod condition;
pub mod connection;
pub mod credentials;
pub mod disk;
mod encode;
pub mod endpoint;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod list_query;
pub mod payload;
mod retry;
mod sign;
pub mod target;
pub mod tls;
pub mod upstream;
pub mod xml;

pub use condition::Condition;
pub use credentials::{Credentials, KeyChain, REGION_DEFAULT};
pub use error::{ClientError, Refusal};
pub use sign::{PayloadHash, Scheme};
pub use target::Target;
