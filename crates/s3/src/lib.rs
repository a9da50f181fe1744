//! The S3 door: turns HTTP requests into operations on a volume, and their results into responses.
//!
//! Why:        an own front end on hyper: every header is implemented or refused by name, bodies stream through
//!             without a whole chunk in memory, and a list page costs little more than its bytes (docs/design/0002).
//! Layout:     `door` handles a request; `auth` and `identities` authenticate, `access` authorizes; `route` finds the
//!             operation; `op` has one file per operation; `body` decodes payloads, `form` parses browser forms;
//!             `headers`, `xml`, `percent`, `time` are wire formats; `error` maps causes to codes; `iam`, `sts` are
//!             the endpoint's other services, `administration` admits those who administer the server.
//! Invariants: R1 nothing of a request is silently ignored.  R2 every check that needs no body precedes reading it.
//! Not here:   what operations mean (margay-volume), listeners and TLS (margay-listener), metrics (margay-metrics).

mod access;
mod access_line;
mod access_subject;
pub mod administration;
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
mod only_bucket;
mod op;
mod options;
mod payload;
pub mod percent;
mod query_api;
mod reply;
pub mod route;
mod stream;
pub mod sts;
mod tags;
pub mod time;
mod website;
pub mod xml;

pub use access::simulation;
pub use access_line::{access_line, log_object_name};
pub use access_subject::{AccessSubject, ShownSubject};
pub use bucket_logging::BucketLogging;
pub use door::S3Door;
pub use error::{Code, S3Error};
pub use observer::{Observer, RequestDone, SpanPlace};
pub use op::encryption::configuration::default_key;
pub use options::{Dialect, Options};
pub use stream::S3Body;
pub use time::iso as iso_time;
