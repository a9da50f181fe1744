//! Code shared by the three object listings: parameters, and XML written directly from the volume's visitor.
//!
//! Why:        people wait for a page of 1000 keys; per key it costs a copy of its bytes and no allocation.
//! Invariants: L1 objects come before common prefixes, each in byte order, as at AWS.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use margay_env::Timestamp;
use margay_volume::{ETag, ListItem, ListRequest};

use super::Call;
use crate::error::S3Error;
use crate::reply::Reply;
use crate::time::IsoTimes;
use crate::xml::write::{Writer, carries, decimal, escape, is_plain, percent_encode};

/// Maximum number of items in a page.
pub(crate) const LIST_ITEMS_MAX: u64 = 1000;
/// Behind what `put_line` writes.
pub(crate) const OBJECT_END: &[u8] = b"</Contents>";
/// Approximate size of an object's XML without its key, in bytes.
const ITEM_BYTES: usize = 220;

/// Parameters of all listings.
pub(crate) struct Page<'c> {
    pub bucket: &'c str,
    pub prefix: &'c str,
    pub delimiter: Option<&'c str>,
    pub url_encoded: bool,
    pub max: u64,
    /// A name was written that XML cannot represent.
    unreadable: AtomicBool,
}

impl<'c> Page<'c> {
    pub(crate) fn of(call: &'c Call<'_>, max_name: &str) -> Result<Page<'c>, S3Error> {
        Ok(Page {
            bucket: &call.target.bucket,
            prefix: call.query.get("prefix").unwrap_or(""),
            delimiter: call.query.get("delimiter").filter(|delimiter| !delimiter.is_empty()),
            url_encoded: call.query.get("encoding-type").is_some(),
            max: call.query.number(max_name, LIST_ITEMS_MAX)?.min(LIST_ITEMS_MAX),
            unreadable: AtomicBool::new(false),
        })
    }

    /// The same page with URL-encoded names, if it contained a name that XML cannot represent; the response says so, as
    /// if the client had requested it.
    pub(crate) fn encoded_instead(&self) -> Option<Page<'c>> {
        let Page { bucket, prefix, delimiter, max, .. } = *self;
        let unreadable = self.unreadable.load(Ordering::Relaxed);
        unreadable.then(|| Page {
            bucket,
            prefix,
            delimiter,
            url_encoded: true,
            max,
            unreadable: AtomicBool::new(false),
        })
    }

    /// What the volume is asked for.
    pub(crate) fn request<'a>(&'a self, after: Option<(&'a str, bool)>) -> ListRequest<'a> {
        ListRequest {
            bucket: self.bucket,
            prefix: self.prefix,
            delimiter: self.delimiter,
            after: after.map(|(name, _)| name),
            after_is_prefix: after.is_some_and(|(_, is_prefix)| is_prefix),
            max: self.max as usize,
        }
    }

    /// Whether the start-after name is a common prefix of this listing, so that all of its keys are skipped.
    pub(crate) fn is_common_prefix(&self, name: &str) -> bool {
        let Some(delimiter) = self.delimiter else { return false };
        let Some(rest) = name.strip_prefix(self.prefix) else { return false };
        rest.find(delimiter).is_some_and(|at| at + delimiter.len() == rest.len())
    }

    /// Appends a key, prefix or marker in the requested encoding.
    pub(crate) fn name(&self, out: &mut BytesMut, text: &str) {
        if self.url_encoded {
            return percent_encode(out, text);
        }
        if is_plain(text) {
            return out.put_slice(text.as_bytes());
        }
        if !carries(text) {
            self.unreadable.store(true, Ordering::Relaxed);
        }
        escape(out, text);
    }

    /// An element with a key, prefix or marker.
    pub(crate) fn element(&self, writer: &mut Writer<'_>, element: &str, text: &str) {
        writer.open(element);
        self.name(writer.buffer(), text);
        writer.close(element);
    }

    /// The elements after the bucket's name in every listing.
    pub(crate) fn echo(&self, writer: &mut Writer<'_>) {
        writer.text("Name", self.bucket);
        self.element(writer, "Prefix", self.prefix);
        if let Some(delimiter) = self.delimiter {
            self.element(writer, "Delimiter", delimiter);
        }
        if self.url_encoded {
            writer.text("EncodingType", "url");
        }
    }
}

/// Items of a page, as XML.
pub(crate) struct Items {
    pub objects: BytesMut,
    pub prefixes: BytesMut,
    pub count: u64,
    /// Where the next page begins: a key or prefix, and whether it is a prefix.
    pub next: Option<(String, bool)>,
}

/// Lists one page; `owner` is XML that every object's element contains.
pub(crate) async fn collect(
    call: &Call<'_>,
    page: &Page<'_>,
    after: Option<(&str, bool)>,
    owner: &str,
) -> Result<Items, S3Error> {
    let mut items = Items { objects: BytesMut::new(), prefixes: BytesMut::new(), count: 0, next: None };
    if page.max == 0 {
        call.view().head_bucket(page.bucket).await?;
        return Ok(items);
    }
    items.objects.reserve(page.max.min(64) as usize * ITEM_BYTES);
    let mut times = IsoTimes::default();
    let outcome = call
        .volume
        .list(&page.request(after), &mut |item| {
            items.count += 1;
            match item {
                ListItem::Object { key, size, etag, modified, .. } => {
                    put_line(&mut items.objects, page, owner, &mut times, (key, size, etag, modified));
                    items.objects.put_slice(OBJECT_END);
                }
                ListItem::Prefix(prefix) => put_prefix(&mut items.prefixes, page, prefix),
            }
        })
        .await?;
    assert!(items.count <= page.max, "a page holds no more than was asked for");
    items.next = outcome.next;
    Ok(items)
}

pub(crate) fn put_prefix(out: &mut BytesMut, page: &Page<'_>, prefix: &str) {
    out.put_slice(b"<CommonPrefixes><Prefix>");
    page.name(out, prefix);
    out.put_slice(b"</Prefix></CommonPrefixes>");
}

/// An object's element without its end.
pub(crate) fn put_line(
    out: &mut BytesMut,
    page: &Page<'_>,
    owner: &str,
    times: &mut IsoTimes,
    (key, size, etag, modified): (&str, u64, ETag, Timestamp),
) {
    out.put_slice(b"<Contents><Key>");
    page.name(out, key);
    out.put_slice(b"</Key><LastModified>");
    times.put(out, modified);
    out.put_slice(b"</LastModified><ETag>&quot;");
    let mut digits = [0; 32];
    out.put_slice(base16ct::lower::encode(&etag.digest, &mut digits).expect("32 digits fit"));
    if etag.parts > 0 {
        out.put_u8(b'-');
        decimal(out, u64::from(etag.parts));
    }
    out.put_slice(b"&quot;</ETag><Size>");
    decimal(out, size);
    out.put_slice(b"</Size>");
    out.put_slice(owner.as_bytes());
    out.put_slice(b"<StorageClass>STANDARD</StorageClass>");
}

impl Items {
    /// The whole document: the head, the items, the end of the root.
    pub(crate) fn reply(self, head: BytesMut, root: &str) -> Reply {
        let mut tail = BytesMut::with_capacity(32);
        Writer::new(&mut tail).close(root);
        let buffers: VecDeque<Bytes> =
            [head, self.objects, self.prefixes, tail].into_iter().map(BytesMut::freeze).collect();
        Reply::xml_buffers(buffers)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn page(delimiter: Option<&'static str>, url_encoded: bool) -> Page<'static> {
        Page { bucket: "b", prefix: "p/", delimiter, url_encoded, max: 10, unreadable: AtomicBool::new(false) }
    }

    #[test]
    fn an_object_is_one_element() {
        let mut out = BytesMut::new();
        let etag = ETag { digest: [0xab; 16], parts: 3 };
        let modified = Timestamp(784_111_777_000_000_000);
        let line = ("p/a&b", 42, etag, modified);
        put_line(&mut out, &page(None, false), "", &mut IsoTimes::default(), line);
        let expected = format!(
            "<Contents><Key>p/a&amp;b</Key><LastModified>1994-11-06T08:49:37.000Z</LastModified>\
             <ETag>&quot;{}-3&quot;</ETag><Size>42</Size><StorageClass>STANDARD</StorageClass>",
            "ab".repeat(16)
        );
        assert_eq!(out, expected.as_bytes());
        let mut out = BytesMut::new();
        put_line(&mut out, &page(None, true), "", &mut IsoTimes::default(), line);
        assert!(out.starts_with(b"<Contents><Key>p/a%26b</Key>"));
    }

    #[test]
    fn a_marker_may_be_a_common_prefix() {
        let slash = page(Some("/"), false);
        assert!(slash.is_common_prefix("p/a/"));
        for other in ["p/a", "p/a/b", "p/a/b/", "q/", "p/", "p"] {
            assert!(!slash.is_common_prefix(other), "{other}");
        }
        assert!(!page(None, false).is_common_prefix("p/a/"));
        assert!(page(Some("--"), false).is_common_prefix("p/a--"));
    }
}
