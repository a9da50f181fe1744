//! The S3 door: HTTP requests become operations on a volume, and their outcomes become answers.
//!
//! Why:        an own front on hyper, because every header must be implemented or refused by name, bodies must stream
//!             through without a whole chunk in memory, and a list page must cost little more than its bytes.
//! Layout:     `door` takes a request; `auth` and `identities` say who sent it; `access` whether he may; `route` finds
//!             its operation or refuses it; `op` has one file per operation; `body` decodes payloads; `form` reads a
//!             browser's form; `headers`, `xml` and `time` are the wire's forms; `error` is the one table from causes to
//!             codes; `iam` and `sts` are the other services of the endpoint.
//! Invariants: nothing of a request is silently ignored; every check that needs no body comes before the body is read.
//! Not here:   what operations mean (volume), listeners, TLS, metrics (the binary).

mod access;
mod access_line;
mod access_subject;
pub mod auth;
pub mod body;
mod bucket_logging;
mod cors;
mod door;
pub mod error;
mod form;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod hashing;
mod headers;
pub mod iam;
pub mod identities;
pub mod lifecycle;
pub mod notification;
mod observer;
mod op;
mod options;
mod payload;
mod query_api;
mod reply;
pub mod route;
mod stream;
pub mod sts;
mod tags;
mod time;
mod website;
mod xml;

pub use access_line::{access_line, log_object_name};
pub use access_subject::AccessSubject;
pub use bucket_logging::BucketLogging;
pub use door::S3Door;
pub use error::{Code, S3Error};
pub use observer::{Observer, RequestDone};
pub use op::encryption::configuration::default_key;
pub use options::{Dialect, Options};
pub use stream::S3Body;
pub use time::iso as iso_time;
