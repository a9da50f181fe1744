//! Reads a form up to the content of its file.

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt as _;
use memchr::memmem;

use super::{FORM_FIELDS_BYTES_MAX, FileBody, Form, FormError, disposition};
use crate::body::WireBody;

/// Maximum length of a boundary, in bytes (RFC 2046).
const BOUNDARY_BYTES_MAX: usize = 70;

/// The boundary in a `Content-Type` header.
pub(crate) fn boundary(content_type: Option<&http::HeaderValue>) -> Result<&str, FormError> {
    let text = content_type.and_then(|value| value.to_str().ok()).ok_or(FormError::NotMultipart)?;
    let (kind, parameters) = text.split_once(';').ok_or(FormError::NotMultipart)?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return Err(FormError::NotMultipart);
    }
    let named = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    });
    named.filter(|name| (1..=BOUNDARY_BYTES_MAX).contains(&name.len())).ok_or(FormError::NotMultipart)
}

/// Reads the fields before the file; returns the file's content as a body.
pub(crate) async fn read(body: WireBody, boundary: &str) -> Result<(Form, FileBody), FormError> {
    let mut reader = Reader { body, input: BytesMut::new(), delimiter: format!("\r\n--{boundary}"), taken: 0 };
    // The first delimiter has no line break before it.
    reader.first_delimiter().await?;
    let mut form = Form::default();
    loop {
        let head = reader.take_until(b"\r\n\r\n").await?;
        let part = disposition::parse(&head)?;
        if part.name.eq_ignore_ascii_case("file") {
            let file = FileBody::new(reader.body, reader.input.freeze(), reader.delimiter.into_bytes());
            return Ok((form.end(&part.filename), file));
        }
        let delimiter = std::mem::take(&mut reader.delimiter);
        let value = reader.take_until(delimiter.as_bytes()).await;
        reader.delimiter = delimiter;
        let value = String::from_utf8(value?.to_vec()).map_err(|_| FormError::Malformed("a field is not UTF-8"))?;
        form.insert(&part.name, value)?;
        reader.end_of_delimiter().await?;
    }
}

struct Reader {
    body: WireBody,
    /// Received bytes that are not parsed yet.
    input: BytesMut,
    delimiter: String,
    taken: usize,
}

impl Reader {
    async fn receive(&mut self) -> Result<(), FormError> {
        loop {
            match self.body.frame().await {
                None => return Err(FormError::Incomplete),
                Some(Err(error)) => return Err(FormError::Transport(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.input.extend_from_slice(&data);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Removes and returns the bytes before `end`, and removes `end` too.
    async fn take_until(&mut self, end: &[u8]) -> Result<BytesMut, FormError> {
        loop {
            if let Some(at) = memmem::find(&self.input, end) {
                self.count(at + end.len())?;
                let before = self.input.split_to(at);
                self.input.advance(end.len());
                return Ok(before);
            }
            self.count(0)?;
            if self.taken + self.input.len() > FORM_FIELDS_BYTES_MAX {
                return Err(FormError::FieldsTooLarge);
            }
            self.receive().await?;
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), FormError> {
        self.taken += bytes;
        if self.taken > FORM_FIELDS_BYTES_MAX { Err(FormError::FieldsTooLarge) } else { Ok(()) }
    }

    async fn first_delimiter(&mut self) -> Result<(), FormError> {
        let delimiter = self.delimiter[2..].to_owned();
        while self.input.len() < self.delimiter.len() {
            self.receive().await?;
        }
        if self.input.starts_with(b"\r\n") {
            self.input.advance(2);
        }
        if !self.input.starts_with(delimiter.as_bytes()) {
            return Err(FormError::Malformed("it does not begin with its boundary"));
        }
        self.input.advance(delimiter.len());
        self.end_of_delimiter().await
    }

    /// A delimiter ends with a line break, or with two dashes after the last part.
    async fn end_of_delimiter(&mut self) -> Result<(), FormError> {
        while self.input.len() < 2 {
            self.receive().await?;
        }
        if self.input.starts_with(b"--") {
            return Err(FormError::NoFile);
        }
        let rest = self.take_until(b"\r\n").await?;
        // The header of the part may begin here.
        match rest.iter().all(|byte| matches!(byte, b' ' | b'\t')) {
            true => Ok(()),
            false => Err(FormError::Malformed("a boundary goes on")),
        }
    }
}
