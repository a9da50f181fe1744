//! The response body, produced while the client receives it.
//!
//! Why:        an object of any size is scanned with one piece of it and part of the result in memory.
//! Invariants: A1 nothing is read or evaluated before the client has taken the previous output, so a slow client slows
//!                the scan.
//!             A2 evaluation runs on blocking threads, for at most one piece or one part of a result at a time.
//!             A3 an error before the first event is an HTTP error; later it is an error event after the records so
//!                far, and no End event follows.

use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use margay_select::{Selection, Step};
use margay_volume::Reader;

use super::event::{self, Counts};
use crate::error::S3Error;
use crate::stream::{PIECE_BYTES_MAX, Producer, Producing, S3Body};

/// After this many decompressed bytes without a result the client is sent a progress event.
const SILENCE_BYTES_MAX: u64 = 16 << 20;

pub(super) struct Answer {
    /// `None`: all events were produced.
    selection: Option<Selection>,
    reader: Arc<Reader>,
    rest: Range<u64>,
    counts: Counts,
    shows_progress: bool,
}

impl Answer {
    pub(super) fn new(selection: Selection, reader: Reader, bytes: Range<u64>, shows_progress: bool) -> Answer {
        let (selection, reader) = (Some(selection), Arc::new(reader));
        Answer { selection, reader, rest: bytes, counts: Counts::default(), shows_progress }
    }

    /// Produces the first events.
    pub(super) async fn begin(mut self) -> Result<S3Body, S3Error> {
        let mut out = BytesMut::new();
        if let Err(error) = self.advance(&mut out).await {
            if out.is_empty() {
                return Err(error);
            }
            event::failure(&mut out, &error);
        }
        Ok(S3Body::produced(out.freeze(), Box::new(self)))
    }

    /// Continues until there are events; returns none after the last one. After an error it is over, and `out` contains
    /// the output so far.
    async fn advance(&mut self, out: &mut BytesMut) -> Result<(), S3Error> {
        let begin = self.counts.processed;
        while let Some(selection) = self.selection.take() {
            let (mut selection, result, step) = step(selection).await?;
            self.counts.processed = selection.processed();
            self.counts.returned += result.len() as u64;
            event::records(out, result.as_bytes());
            match step? {
                Step::Output => self.selection = Some(selection),
                Step::Input => {
                    self.feed(&mut selection).await?;
                    self.selection = Some(selection);
                }
                Step::Done => {
                    if self.shows_progress {
                        event::progress(out, self.counts);
                    }
                    event::stats(out, self.counts);
                    event::end(out);
                    break;
                }
            }
            if out.is_empty() && self.counts.processed - begin >= SILENCE_BYTES_MAX {
                event::continuation(out);
            }
            if !out.is_empty() {
                if self.shows_progress {
                    event::progress(out, self.counts);
                }
                break;
            }
        }
        Ok(())
    }

    /// Reads the next bytes of the object.
    async fn feed(&mut self, selection: &mut Selection) -> Result<(), S3Error> {
        if self.rest.is_empty() {
            selection.end();
            return Ok(());
        }
        let len = (self.rest.end - self.rest.start).min(PIECE_BYTES_MAX);
        let piece = self.reader.read(self.rest.start, len).await?;
        if piece.is_empty() {
            return Err(S3Error::internal(&"an object is shorter than its entry says"));
        }
        self.rest.start += piece.len() as u64;
        self.counts.scanned += piece.len() as u64;
        selection.push(&piece);
        Ok(())
    }
}

/// Runs one step on a blocking thread.
async fn step(mut selection: Selection) -> Result<(Selection, String, Result<Step, margay_select::Error>), S3Error> {
    let stepping = tokio::task::spawn_blocking(move || {
        let mut result = String::new();
        let step = selection.step(&mut result);
        (selection, result, step)
    });
    stepping.await.map_err(|error| S3Error::internal(&error))
}

impl Producer for Answer {
    fn next(mut self: Box<Self>) -> Producing {
        Box::pin(async move {
            self.selection.as_ref()?;
            let mut out = BytesMut::new();
            if let Err(error) = self.advance(&mut out).await {
                event::failure(&mut out, &error);
            }
            Some((out.freeze(), self as Box<dyn Producer>))
        })
    }
}
