//! The doorway: connections, their limits, TLS, and the bodies that pass.
//!
//! Why:        slow, idle or too many clients cost little and never hurt the others, whatever is asked for.
//! Layout:     `listener` accepts, `connection` serves one (with `wire`, `pulse`, `body`, `unread`), `tls` holds the
//!             certificate, `handler` is what answers, `answer` makes small answers.
//! Not here:   what requests mean (margay-s3, the binary's own pages), settings (the binary).

pub mod answer;
pub mod body;
mod connection;
mod error;
mod handler;
mod limits;
mod listener;
mod pulse;
pub mod tls;
mod traffic;
mod unread;
mod wire;

pub use error::{BindError, TlsError};
pub use handler::{AnswerFuture, Handler};
pub use limits::ConnectionLimits;
pub use listener::{Listener, bind};
pub use traffic::{Open, Traffic};
