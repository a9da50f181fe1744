//! Uploads in parts of the simulated store.
//!
//! Not here:   faults, other requests (store).

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use http::Method;

use crate::documents::{Upload, etag_of, slice, with_field};
use crate::encoded::decoded;
use crate::headers::{holds, metadata};
use crate::listen::{Answer, answer, refusal, text};
use crate::store::{Object, State};

impl State {
    pub(crate) fn multipart(
        &mut self,
        head: &http::request::Parts,
        key: String,
        query: &HashMap<&str, String>,
        body: Bytes,
    ) -> Answer {
        let Some(id) = query.get("uploadId") else {
            let id = format!("upload {}", self.requests);
            let upload = Upload { key, headers: metadata(&head.headers), parts: BTreeMap::new() };
            self.uploads.insert(id.clone(), upload);
            return answer(200, with_field("InitiateMultipartUploadResult", "UploadId", &id));
        };
        if self.uploads.get(id).is_none_or(|upload| upload.key != key) {
            return refusal(404, "NoSuchUpload");
        }
        match head.method {
            Method::DELETE => {
                self.uploads.remove(id);
                answer(204, "")
            }
            Method::PUT => self.part(head, id, query["partNumber"].parse().unwrap(), body),
            _ => self.complete(head, key, id, std::str::from_utf8(&body).unwrap()),
        }
    }

    fn part(&mut self, head: &http::request::Parts, id: &str, number: u32, body: Bytes) -> Answer {
        let source = text(&head.headers, "x-amz-copy-source").map(decoded);
        self.part_bytes += body.len() as u64;
        let body = match &source {
            None => body,
            Some(source) => {
                let Some(from) = self.objects.get(source.strip_prefix("/far/").unwrap()) else {
                    return refusal(404, "NoSuchKey");
                };
                if text(&head.headers, "x-amz-copy-source-if-match").is_some_and(|wanted| wanted != from.etag()) {
                    return refusal(412, "PreconditionFailed");
                }
                self.copied_parts += 1;
                slice(&from.body, text(&head.headers, "x-amz-copy-source-range"))
            }
        };
        let etag = etag_of(&body);
        self.uploads.get_mut(id).unwrap().parts.insert(number, body);
        let document = source.map_or(String::new(), |_| with_field("CopyPartResult", "ETag", &etag));
        let mut answer = answer(200, document);
        answer.headers_mut().insert("etag", etag.parse().unwrap());
        answer
    }

    fn complete(&mut self, head: &http::request::Parts, key: String, id: &str, document: &str) -> Answer {
        let ignores = self.ignores_conditions || self.completes_always;
        if !ignores && !holds(&head.headers, self.objects.get(&key)) {
            let is_missing = head.headers.contains_key("if-match") && !self.objects.contains_key(&key);
            let (status, code) = if is_missing { (404, "NoSuchKey") } else { (412, "PreconditionFailed") };
            return refusal(status, code);
        }
        let now = self.tick();
        let upload = &self.uploads[id];
        let Some((body, etag)) = upload.whole(document) else { return refusal(400, "InvalidPart") };
        let made = Object::new(body, upload.headers.clone(), now);
        let object = Object { parts_etag: Some(etag.clone()), ..made };
        self.objects.insert(key, object);
        self.uploads.remove(id);
        answer(200, with_field("CompleteMultipartUploadResult", "ETag", &etag))
    }
}
