//! An answer without an end that ends with the right to it.
//!
//! Why:        live requests are one answer that may last for hours. Whoever signs out, disables a key or takes a right away means
//!             these too.
//! Invariants: N1 at most `EVERY` and the time to the next frame after the end of the right nothing more of the answer is sent.
//!             N2 an answer that is read keeps no session alive: nobody may be there.
//! Not here:   what ends it: a session of the console (margay-console), a key and its policies (`administration` of the binary).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame};
use http_body_util::BodyExt;

use crate::body::{BodyError, ResponseBody};

/// Between two looks at the right.
const EVERY: Duration = Duration::from_secs(1);

/// Whether the answer may go on, and the time.
pub trait Alive: Send + 'static {
    fn now(&self) -> Duration;
    fn is_alive(&self) -> bool;
}

struct Bound<A> {
    body: http_body_util::combinators::UnsyncBoxBody<Bytes, BodyError>,
    alive: A,
    looked: Duration,
}

impl<A: Alive + Unpin> Body for Bound<A> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let now = self.alive.now();
        if frame.is_ready() && now.saturating_sub(self.looked) >= EVERY {
            self.looked = now;
            if !self.alive.is_alive() {
                return Poll::Ready(None);
            }
        }
        frame
    }
}

/// Binds an answer to a right, if it is one that is made while it is sent.
pub fn bind(response: Response<ResponseBody>, alive: impl Alive + Unpin) -> Response<ResponseBody> {
    response.map(|answer| match answer.body.size_hint().exact() {
        // Of a known size: it has an end, and keeps its Content-Length.
        Some(_) => answer,
        None => {
            let looked = alive.now();
            let body = Bound { body: answer.body, alive, looked }.boxed_unsync();
            ResponseBody { body, in_memory: None }
        }
    })
}
