//! The body of a request: decoded, measured, and checked against everything that its head announced.
//!
//! Why:        bytes are passed on as they arrive, so memory is bounded whatever chunk size a client chooses. They must
//!             not become visible before `Decoder::finish` and `Digests::finish` have both succeeded.
//! Invariants: B1 pieces are slices of the transport's buffers, never copies.
//!             B2 at most `CHUNK_HEADER_BYTES_MAX` or `TRAILER_BYTES_MAX` of framing is buffered.
//!             B3 a truncated or altered body, or one with false announcements, ends in an error.
//! Not here:   idle timeouts (the listener), where the bytes go (the operations).
//!
//! ```text
//! let plan = DigestPlan::read(headers, &verified.payload, want)?;
//! let mut decoder = Decoder::new(body, headers, &verified.payload, verified.chain, options)?;
//! let mut digests = plan.digests();
//! while let Some(piece) = decoder.next().await? { digests.update(&piece); /* store it */ }
//! let computed = digests.finish(&decoder.finish()?)?;
//! ```

mod checksum;
mod chunked;
mod decoder;
mod digests;
mod encode;
mod error;
mod md5;
mod plan;
#[cfg(test)]
mod tests;
mod trailer;

/// An error of the connection below a body.
pub(crate) type WireError = Box<dyn std::error::Error + Send + Sync>;
/// A body as it comes from the connection.
pub(crate) type WireBody = Box<dyn http_body::Body<Data = bytes::Bytes, Error = WireError> + Send + Unpin>;

pub use checksum::{Algorithm, Checksum};
pub use chunked::CHUNK_HEADER_BYTES_MAX;
pub use decoder::{Decoder, DecoderOptions, announced_bytes, stored_encoding};
pub use digests::{Computed, Digests};
pub use encode::{ChunkEncoder, encoded_bytes};
pub(crate) use error::timed_out;
pub use error::{BodyError, DigestError};
pub use plan::{DigestPlan, Want};
pub use trailer::{TRAILER_BYTES_MAX, TRAILERS_MAX, Trailers};
