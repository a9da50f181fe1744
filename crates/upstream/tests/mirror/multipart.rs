//! Uploads in parts of the simulated store.
//!
//! Not here:   faults, other requests (store).

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use http::Method;
use md5::{Digest, Md5};

use crate::encoded::decoded;
use crate::headers::{holds, metadata};
use crate::listen::{Answer, answer, refusal, text};
use crate::store::{Object, State};

/// An upload in parts that has not ended.
pub(crate) struct Upload {
    pub(crate) key: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) parts: BTreeMap<u32, Bytes>,
}

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
            return answer(
                200,
                format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"),
            );
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
                let range = text(&head.headers, "x-amz-copy-source-range");
                let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
                range.map_or(from.body.clone(), |(first, last)| {
                    from.body.slice(first.parse::<usize>().unwrap()..=last.parse::<usize>().unwrap())
                })
            }
        };
        let etag = format!("\"{:x}\"", Md5::digest(&body));
        self.uploads.get_mut(id).unwrap().parts.insert(number, body);
        let document = source.map_or(String::new(), |_| {
            format!("<CopyPartResult><ETag>{}</ETag></CopyPartResult>", etag.replace('"', "&quot;"))
        });
        let mut answer = answer(200, document);
        answer.headers_mut().insert("etag", etag.parse().unwrap());
        answer
    }

    fn complete(&mut self, head: &http::request::Parts, key: String, id: &str, document: &str) -> Answer {
        if !self.ignores_conditions && !holds(&head.headers, self.objects.get(&key)) {
            let is_missing = head.headers.contains_key("if-match") && !self.objects.contains_key(&key);
            let (status, code) = if is_missing { (404, "NoSuchKey") } else { (412, "PreconditionFailed") };
            return refusal(status, code);
        }
        let now = self.tick();
        let upload = &self.uploads[id];
        let digests: Vec<_> = upload.parts.values().map(Md5::digest).collect();
        let named = document.matches("<Part>").count();
        let is_named = |(number, digest): (&u32, &md5::digest::Output<Md5>)| {
            document.contains(&format!("<PartNumber>{number}</PartNumber><ETag>&quot;{digest:x}&quot;</ETag>"))
        };
        // Parts that are not named are left out; of those that are, each must be the newest one.
        let named_parts: Vec<_> = upload.parts.keys().zip(&digests).filter(|part| is_named((part.0, part.1))).collect();
        if named_parts.len() != named || named == 0 {
            return refusal(400, "InvalidPart");
        }
        let body: Vec<u8> = named_parts.iter().flat_map(|(number, _)| upload.parts[number].to_vec()).collect();
        let digest = Md5::digest(named_parts.iter().flat_map(|(_, digest)| digest.to_vec()).collect::<Vec<u8>>());
        let etag = format!("\"{digest:x}-{named}\"");
        let made = Object::new(body.into(), upload.headers.clone(), now);
        let object = Object { parts_etag: Some(etag.clone()), ..made };
        self.objects.insert(key, object);
        self.uploads.remove(id);
        let etag = etag.replace('"', "&quot;");
        answer(200, format!("<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"))
    }
}
