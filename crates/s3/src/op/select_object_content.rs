//! SelectObjectContent: runs an SQL statement over one object and streams the result as events.
//!
//! Layout:   `request` parses the document, `answer` runs the statement while the client receives, `event` encodes
//!           events.
//! Not here: statement and formats (margay-select), authorization (access: as GetObject).

mod answer;
mod event;
mod request;

use http::{HeaderMap, HeaderValue, StatusCode};
use margay_select::{Compression, InputFormat, Selection};
use margay_volume::{ReadCondition, Reader};

use self::answer::Answer;
use self::request::{ScanRange, SelectRequest};
use super::Call;
use crate::error::{Code, S3Error};
use crate::op::encryption;
use crate::op::encryption::customer::{self, Customer};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::stream::PIECE_BYTES_MAX;

pub(crate) async fn run(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let given = Customer::of(call, customer::OWN)?;
    let document = payload.document(call.headers, true).await?;
    let now = call.asker.circumstances.now.seconds();
    let SelectRequest { request, shows_progress, range } = request::parse(&document, call.options.select_dialect, now)?;
    let condition = ReadCondition::default();
    let mut reader = call.view().get_version(call.bucket(), call.key(), None, &condition).await?;
    let encryption = encryption::unlock(&mut reader, given)?;
    let size = reader.info().size;
    let is_cut_by_bytes = request.compression == Compression::None
        && !matches!(&request.input, InputFormat::Csv(format) if format.quoted_record_delimiters);
    let mut selection = Selection::new(request)?;
    let mut bytes = 0..size;
    if let Some(range) = range {
        if !is_cut_by_bytes {
            let message = "A scan range needs an object that is not compressed, without record delimiters in quotes";
            return Err(S3Error::new(Code::UnsupportedScanRangeInput, message));
        }
        let (start, end) = within(range, size)?;
        if start > 0 {
            read_header(&reader, &mut selection, size).await?;
        }
        selection.restrict(start, end);
        bytes.start = start.saturating_sub(selection.delimiter().len() as u64);
    }
    let answer = Answer::new(selection, reader, bytes, shows_progress);
    let mut headers = HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    encryption::tell(encryption.as_ref(), &mut headers);
    Ok(Reply { status: StatusCode::OK, headers, body: answer.begin().await? })
}

/// First and last byte of a scan range in an object of this size.
fn within(range: ScanRange, size: u64) -> Result<(u64, u64), S3Error> {
    let last = size.saturating_sub(1);
    match (range.start, range.end) {
        (Some(start), Some(end)) if start > end => {
            Err(S3Error::new(Code::InvalidScanRange, "The scan range ends before it begins"))
        }
        (Some(start), end) => Ok((start.min(size), end.unwrap_or(last).min(last))),
        // This many bytes from the end.
        (None, Some(count)) => Ok((size - count.min(size), last)),
        (None, None) => Ok((0, last)),
    }
}

/// Reads the column names, which precede the scan range.
async fn read_header(reader: &Reader, selection: &mut Selection, size: u64) -> Result<(), S3Error> {
    let mut at = 0;
    while !selection.read_header()? {
        if at == size {
            selection.end();
            continue;
        }
        let piece = reader.read(at, (size - at).min(PIECE_BYTES_MAX)).await?;
        if piece.is_empty() {
            return Err(S3Error::internal(&"an object is shorter than its entry says"));
        }
        at += piece.len() as u64;
        selection.push(&piece);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_within_the_object() {
        let of = |start, end| within(ScanRange { start, end }, 10).unwrap();
        assert_eq!(of(Some(3), Some(5)), (3, 5));
        assert_eq!(of(Some(3), None), (3, 9));
        assert_eq!(of(Some(30), Some(50)), (10, 9));
        assert_eq!(of(None, Some(4)), (6, 9));
        assert_eq!(of(None, Some(40)), (0, 9));
        let backwards = within(ScanRange { start: Some(2), end: Some(1) }, 10);
        assert_eq!(backwards.unwrap_err().code, Code::InvalidScanRange);
    }
}
