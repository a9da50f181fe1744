//! The headers that follow the last chunk of a body.
//!
//! Why: clients end lines with CRLF or LF and put empty lines in different places. All of that is accepted, since only
//!      names and values matter and the transport already delimits the body.

use super::BodyError;

/// Maximum bytes after the last chunk's header line, empty lines included.
pub const TRAILER_BYTES_MAX: usize = 16 * 1024;
/// The most trailing headers.
pub const TRAILERS_MAX: usize = 16;

const SIGNATURE: &str = "x-amz-trailer-signature";

/// Trailing headers: lower-case names, trimmed values, sorted by name, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailers(Vec<(String, String)>);

impl Trailers {
    /// The value of a trailing header, by its lower-case name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn insert(&mut self, name: String, value: &str) -> Result<(), BodyError> {
        match self.0.binary_search_by(|(held, _)| held.cmp(&name)) {
            Ok(_) => Err(BodyError::BadTrailer("a trailing header is given twice")),
            Err(_) if self.0.len() == TRAILERS_MAX => Err(BodyError::BadTrailer("there are too many trailing headers")),
            Err(place) => {
                self.0.insert(place, (name, value.to_owned()));
                Ok(())
            }
        }
    }

    /// The text that a trailer signature covers.
    pub(crate) fn canonical(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, value) in self.iter() {
            for part in [name, ":", value, "\n"] {
                text.extend_from_slice(part.as_bytes());
            }
        }
        text
    }
}

/// Parses a trailer line by line.
#[derive(Debug, Default)]
pub(crate) struct TrailerReader {
    trailers: Trailers,
    signature: Option<[u8; 32]>,
}

impl TrailerReader {
    /// Takes a line without its end.
    pub(crate) fn line(&mut self, line: &[u8]) -> Result<(), BodyError> {
        if line.is_empty() {
            return Ok(());
        }
        if self.signature.is_some() {
            return Err(BodyError::BadTrailer("something follows the trailer's signature"));
        }
        let text = std::str::from_utf8(line).ok().filter(|text| text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        let (name, value) = text
            .and_then(|text| text.split_once(':'))
            .ok_or(BodyError::BadTrailer("a trailing header is not NAME:VALUE in ASCII"))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        if name == SIGNATURE {
            let signature = crate::auth::hex::decode(value.as_bytes());
            self.signature = Some(signature.ok_or(BodyError::BadTrailer("the trailer's signature is not hex"))?);
            return Ok(());
        }
        self.trailers.insert(name, value)
    }

    /// The trailer and its signature, after the body has ended.
    pub(crate) fn into_parts(self) -> (Trailers, Option<[u8; 32]>) {
        (self.trailers, self.signature)
    }
}
