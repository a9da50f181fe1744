//! Uploads in parts of the bucket.
//!
//! What:       besides the habits of all requests, a completion may know no conditions, and may answer 200 and then that it failed, which
//!             may be so or not. Uploads may vanish, as lifecycle rules make them.
//! Not here:   what is lost or comes twice (sim). Nobody asks for lists of uploads or parts, so there are none.

use std::collections::BTreeMap;

use http::Method;
use margay_client::client::Ask;

use crate::documents::{Upload, etag_of, slice, with_field};
use crate::encoded::decoded;
use crate::store::{Object, Outcome, Store, answer, etag_header, header, metadata, plain, refused, source_of};

/// Parts and copies of so many bytes at most; with these sizes every kind of request is made of small contents.
pub(crate) const SIZES: margay_upstream::PartSizes = margay_upstream::PartSizes {
    one_put_bytes_max: 256,
    part_bytes: 160,
    copy_bytes_max: 1280,
    // Open files are looked at when the time of the seed moves.
    look_every: std::time::Duration::from_secs(3600),
};

/// What a store does with the conditions of completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Completes {
    #[default]
    Honours,
    Ignores,
    /// A completion with a condition is refused as not implemented.
    Refuses,
}

impl Store {
    /// Uploads that have parts and have not ended.
    pub(crate) fn open_uploads(&self) -> Vec<&str> {
        let open = self.uploads.values().filter(|upload| !upload.parts.is_empty());
        open.map(|upload| upload.key.as_str()).collect()
    }

    pub(crate) fn multipart(&mut self, ask: &Ask) -> Outcome {
        let pairs = ask.query.split('&').filter_map(|pair| pair.split_once('='));
        let query: BTreeMap<&str, String> = pairs.map(|(name, value)| (name, decoded(value))).collect();
        let Some(id) = query.get("uploadId") else {
            self.begun += 1;
            let id = format!("upload-{}", self.begun);
            let upload = Upload { key: ask.key.clone(), headers: metadata(ask), parts: BTreeMap::new() };
            self.uploads.insert(id.clone(), upload);
            return plain(with_field("InitiateMultipartUploadResult", "UploadId", &id));
        };
        if self.uploads.get(id).is_none_or(|upload| upload.key != ask.key) {
            return Err(refused(ask, 404, "NoSuchUpload"));
        }
        match ask.method {
            Method::DELETE => {
                self.uploads.remove(id);
                plain("")
            }
            Method::PUT => self.part(ask, id, query["partNumber"].parse().unwrap()),
            _ => self.complete(ask, id),
        }
    }

    fn part(&mut self, ask: &Ask, id: &str, number: u32) -> Outcome {
        let source = source_of(ask);
        let body = match &source {
            None => ask.body.clone(),
            Some(source) => slice(&self.source(ask, source)?.body, header(ask, "x-amz-copy-source-range")),
        };
        if source.is_some() && self.fails_in_body().is_some() {
            return plain(ERROR);
        }
        let etag = etag_of(&body);
        self.uploads.get_mut(id).unwrap().parts.insert(number, body);
        let document = source.map(|_| with_field("CopyPartResult", "ETag", &etag)).unwrap_or_default();
        answer(etag_header(&etag), document)
    }

    fn complete(&mut self, ask: &Ask, id: &str) -> Outcome {
        let is_conditional = header(ask, "if-match").or(header(ask, "if-none-match")).is_some();
        match self.completes {
            Completes::Refuses if is_conditional => return Err(refused(ask, 501, "NotImplemented")),
            Completes::Honours => self.check(ask)?,
            _ => {}
        }
        let failed = self.fails_in_body();
        if failed == Some(false) {
            return plain(ERROR);
        }
        let whole = self.uploads[id].whole(std::str::from_utf8(&ask.body).unwrap());
        let (body, etag) = whole.ok_or_else(|| refused(ask, 400, "InvalidPart"))?;
        self.note();
        let upload = self.uploads.remove(id).unwrap();
        self.objects.insert(ask.key.clone(), Object::of_parts(body, upload.headers, etag.clone()));
        match failed {
            Some(_) => plain(ERROR),
            // Such an answer begins before it is known.
            None => plain(format!(" \n  {}", with_field("CompleteMultipartUploadResult", "ETag", &etag))),
        }
    }
}

/// What an answer 200 says of a failure.
pub(crate) const ERROR: &str = " \n<Error><Code>InternalError</Code><Message>-</Message></Error>";
