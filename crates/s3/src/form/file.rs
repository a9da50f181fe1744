//! The content of a form's file, as the body of an upload.
//!
//! Invariants: B1 pieces are slices of the received bytes; at most the length of a delimiter is held back.
//!             B2 it ends without an error only after the form's closing delimiter and the end of the request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use memchr::memmem;

use super::{FORM_FIELDS_BYTES_MAX, FormError};
use crate::body::{WireBody, WireError};

/// The file's bytes; later parts of the form are read and ignored.
pub(crate) struct FileBody {
    body: WireBody,
    input: Bytes,
    finder: memmem::Finder<'static>,
    state: State,
    /// Bytes after the file so far.
    after: usize,
    size: u64,
    size_min: u64,
    size_max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Content,
    /// After a delimiter, whose end is not known yet.
    Delimiter,
    /// In the parts after the file.
    After,
    /// After the closing delimiter.
    Closed,
    Ended,
}

impl FileBody {
    pub(super) fn new(body: WireBody, input: Bytes, delimiter: Vec<u8>) -> FileBody {
        let finder = memmem::Finder::new(&delimiter).into_owned();
        FileBody { body, input, finder, state: State::Content, after: 0, size: 0, size_min: 0, size_max: u64::MAX }
    }

    /// Limits the size of the file.
    pub(crate) fn with_size(mut self, min: u64, max: u64) -> FileBody {
        (self.size_min, self.size_max) = (min, max);
        self
    }

    /// Processes the available bytes: returns a piece, or `None` if more bytes are needed.
    fn step(&mut self) -> Result<Option<Bytes>, FormError> {
        loop {
            match self.state {
                State::Content | State::After => {
                    let at = self.finder.find(&self.input);
                    let piece = self.input.split_to(at.unwrap_or(self.input.len() - self.held_back()));
                    if at.is_some() {
                        self.input.advance(self.finder.needle().len());
                    }
                    let found = self.found(piece)?;
                    if at.is_some() {
                        self.end_content()?;
                        self.state = State::Delimiter;
                    }
                    if found.is_some() || at.is_none() {
                        return Ok(found);
                    }
                }
                State::Delimiter if self.input.len() < 2 => return Ok(None),
                State::Delimiter => {
                    let closed = self.input.starts_with(b"--");
                    self.state = if closed { State::Closed } else { State::After };
                }
                State::Closed => {
                    let rest = std::mem::take(&mut self.input);
                    self.pass_over(rest.len())?;
                    return Ok(None);
                }
                State::Ended => return Ok(None),
            }
        }
    }

    /// Handles bytes that are not a delimiter: content is returned, everything else is counted.
    fn found(&mut self, piece: Bytes) -> Result<Option<Bytes>, FormError> {
        if self.state != State::Content {
            return self.pass_over(piece.len()).map(|()| None);
        }
        self.size += piece.len() as u64;
        if self.size > self.size_max {
            return Err(FormError::FileTooLarge { max: self.size_max });
        }
        Ok((!piece.is_empty()).then_some(piece))
    }

    fn pass_over(&mut self, bytes: usize) -> Result<(), FormError> {
        self.after += bytes;
        match self.after > FORM_FIELDS_BYTES_MAX {
            true => Err(FormError::Malformed("too much follows the file")),
            false => Ok(()),
        }
    }

    fn end_content(&self) -> Result<(), FormError> {
        if self.state == State::Content && self.size < self.size_min {
            return Err(FormError::FileTooSmall { size: self.size, min: self.size_min });
        }
        Ok(())
    }

    /// Number of bytes at the end of the input that may be the beginning of a delimiter.
    fn held_back(&self) -> usize {
        let delimiter = self.finder.needle();
        let most = self.input.len().min(delimiter.len() - 1);
        (1..=most).rev().find(|count| self.input.ends_with(&delimiter[..*count])).unwrap_or(0)
    }

    fn take(&mut self, data: Bytes) {
        if self.input.is_empty() {
            self.input = data;
            return;
        }
        let mut joined = BytesMut::with_capacity(self.input.len() + data.len());
        joined.extend_from_slice(&self.input);
        joined.extend_from_slice(&data);
        self.input = joined.freeze();
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = WireError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        let this = self.get_mut();
        loop {
            match this.step() {
                Ok(Some(piece)) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Ok(None) if this.state == State::Ended => return Poll::Ready(None),
                Ok(None) => {}
                Err(error) => {
                    this.state = State::Ended;
                    return Poll::Ready(Some(Err(error.into())));
                }
            }
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        this.take(data);
                    }
                }
                Some(Err(error)) => {
                    this.state = State::Ended;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    let whole = this.state == State::Closed;
                    this.state = State::Ended;
                    return Poll::Ready(if whole { None } else { Some(Err(FormError::Incomplete.into())) });
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Ended
    }
}
