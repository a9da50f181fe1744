//! Encoder of aws-chunked framing: the client's side of `chunked`.

use crate::auth::{ChunkChain, PayloadForm};

/// Writes the chunks of one body.
#[derive(Clone, Debug)]
pub struct ChunkEncoder {
    form: PayloadForm,
    chain: Option<ChunkChain>,
}

impl ChunkEncoder {
    /// `chain` is what `Signer::sign` returned for this form.
    pub fn new(form: PayloadForm, chain: Option<ChunkChain>) -> ChunkEncoder {
        assert!(form.is_chunked(), "only a chunked form has chunks");
        assert_eq!(chain.is_some(), form.has_signed_chunks(), "signed chunks and their chain come together");
        ChunkEncoder { form, chain }
    }

    /// Appends the header line of a chunk. Send the payload itself and then CRLF after it.
    pub fn head(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{:x}", payload.len()).as_bytes());
        if let Some(chain) = &mut self.chain {
            out.extend_from_slice(b";chunk-signature=");
            out.extend_from_slice(&chain.sign_chunk(payload));
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Appends a whole chunk. The payload is not empty, since an empty chunk ends the body.
    pub fn chunk(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        assert!(!payload.is_empty(), "an empty chunk ends the body");
        self.head(payload, out);
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the last chunk and the trailer: lower-case names, sorted; empty unless the form has a trailer.
    pub fn finish(mut self, trailers: &[(&str, &str)], out: &mut Vec<u8>) {
        assert!(trailers.is_empty() || self.form.has_trailer(), "this form has no trailer");
        self.head(b"", out);
        let mut canonical = Vec::new();
        for (name, value) in trailers {
            out.extend_from_slice(format!("{name}:{value}\r\n").as_bytes());
            canonical.extend_from_slice(format!("{name}:{value}\n").as_bytes());
        }
        if let Some(chain) = self.chain.as_mut().filter(|_| self.form.has_trailer()) {
            out.extend_from_slice(b"x-amz-trailer-signature:");
            out.extend_from_slice(&chain.sign_trailer(&canonical));
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The length of an encoded body (its `Content-Length`) whose chunks all hold `chunk_bytes`, except a shorter last
/// one.
pub fn encoded_bytes(form: &PayloadForm, payload_bytes: u64, chunk_bytes: u64, trailers: &[(&str, &str)]) -> u64 {
    assert!(chunk_bytes > 0, "a chunk holds something");
    let head = |bytes: u64| {
        let digits = u64::from((64 - bytes.leading_zeros()).div_ceil(4)).max(1);
        digits + 2 + if form.has_signed_chunks() { 17 + 64 } else { 0 }
    };
    let whole = payload_bytes / chunk_bytes;
    let rest = payload_bytes % chunk_bytes;
    let chunks = whole * (head(chunk_bytes) + 2) + if rest > 0 { head(rest) + 2 } else { 0 };
    let trailer: usize = trailers.iter().map(|(name, value)| name.len() + 1 + value.len() + 2).sum();
    let signature = if *form == PayloadForm::StreamingSignedTrailer { 24 + 64 + 2 } else { 0 };
    payload_bytes + chunks + head(0) + trailer as u64 + signature + 2
}
