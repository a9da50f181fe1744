//! The body of a request: unwrapped, measured, and checked against everything that its head announced.
//!
//! Why:        bytes pass on as they arrive, so memory stays bounded whatever chunk size a client chooses; whoever
//!             stores them must not show them before both `Decoder::finish` and `Digests::finish` said yes.
//! Invariants: B1 pieces are slices of what the transport delivered, never copies.
//!             B2 of the framing at most `CHUNK_HEADER_BYTES_MAX` or `TRAILER_BYTES_MAX` is held.
//!             B3 a body that was cut short, altered or lied about ends in an error.
//! Not here:   idle limits (the server), where the bytes go (the operations).
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

/// An error of the connection under a body.
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
