//! Connections: limits, TLS, and the bodies of requests and responses.
//!
//! Why:        slow, idle or too many clients cost little and never slow down others, whatever they request.
//! Layout:     `listener` accepts, `connection` serves one connection (with `wire`, `pulse`, `body`, `unread`, `idle`), `tls`
//!             holds the certificate (`validity` reads when it ends), `bound` ends answers with the right to them, `handler` is the interface to the application, `answer` builds small responses.
//! Not here:   what requests mean (margay-s3, the binary's own pages), settings (the binary).

pub mod answer;
pub mod body;
pub mod bound;
mod connection;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handler;
mod idle;
mod limits;
mod listener;
mod pulse;
pub mod tls;
mod traffic;
mod unread;
mod validity;
mod wire;

pub use error::{BindError, TlsError};
pub use handler::{AnswerFuture, Handler};
pub use limits::ConnectionLimits;
pub use listener::{Listener, bind};
pub use traffic::{Open, Traffic};
