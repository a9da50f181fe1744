//! The web console: a page in the binary, sessions for its users, and requests that are passed to the S3 door.
//!
//! Why:        a browser cannot keep a secret key safely, and should not have to sign; so a session here stands for a key,
//!             and each request of the page is signed here and answered by the same door as anybody's.
//! Layout:     `console` routes; `sign_in`, `sessions` and `throttle` let users in; `guard` refuses what other sites
//!             send; `dispatch` signs and passes on, with `target` and `headers`; `raw` shows and
//!             downloads contents; `share` makes links; `files` holds the page.
//! Invariants: W1 a session can do exactly what its key can do at that moment: rights are never decided here, only asked for, so
//!                that the page shows no button that would be refused.
//!             W2 no content of a bucket runs with the origin of the console.
//!             W3 the secret of a key is in no answer, no cookie and no session.
//! Not here:   what requests do (margay-s3), sockets (margay-listener), what the pages of the server show (the binary).

mod console;
mod dispatch;
mod files;
mod guard;
mod headers;
mod keys;
mod ports;
mod raw;
mod sessions;
mod share;
mod sign_in;
mod target;
mod throttle;

pub use console::{Console, ConsoleOptions};
pub use files::{FILES, File};
pub use guard::Refusal;
pub use ports::{Pages, Rights, Who};
pub use raw::{Shown, shown};
pub use sessions::{IDLE_TIME_MAX, LIFE_TIME_MAX, PER_KEY_MAX, SESSIONS_MAX, Session, Sessions};
pub use target::{TargetError, of_query};
pub use throttle::{FAILURES_PER_KEY_MAX, FAILURES_PER_PAIR_MAX, FAILURES_PER_PEER_MAX, Throttle, WINDOW};

/// Everything of the console is below this path; `-` is no valid bucket name.
pub const PATH: &str = "/-/console";

/// Whether a request is for the console.
pub fn is_below(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What guards cookies, requests and headers, for the tests of this crate.
pub mod checks {
    pub use crate::guard::{COOKIE, HEADER, cookie, cookie_name, own_request, session_id};
    pub use crate::headers::{answer_headers, request_headers};
}
